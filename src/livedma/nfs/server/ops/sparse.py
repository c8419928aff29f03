# SPDX-License-Identifier: BSD-2-Clause
"""Serves SEEK, ALLOCATE, DEALLOCATE and COPY (RFC 7862)."""

from __future__ import annotations

import os
from dataclasses import replace

from livedma.nfs.numbers import NfsError, Op, Stable, Status
from livedma.nfs.server.context import Context
from livedma.nfs.server.ops.registry import operation
from livedma.nfs.server.reply import ReplyEncoder
from livedma.nfs.stateid import Stateid
from livedma.rpc.xdr import Decoder

_WHENCE = {0: os.SEEK_DATA, 1: os.SEEK_HOLE}  # data_content4
_U64_MOST = (1 << 64) - 1


@operation(Op.SEEK, minor=2, needs_handle=True)
def seek(ctx: Context, decoder: Decoder, out: ReplyEncoder) -> None:
    """Finds where the next data or hole begins."""
    stateid, offset, what = Stateid.decode(decoder), decoder.u64(), decoder.u32()
    ctx.node.want_file()
    whence = _WHENCE.get(what)
    if whence is None:
        raise NfsError(Status.UNION_NOTSUPP)
    with ctx.server.opens.for_io(ctx, stateid, write=False) as fd:
        found, is_end = ctx.server.store.seek(fd, offset, whence)
    out.boolean(is_end)
    out.u64(found)


@operation(Op.ALLOCATE, minor=2, needs_handle=True, changes=True)
def allocate(ctx: Context, decoder: Decoder, out: ReplyEncoder) -> None:
    """Reserves space for a range of the file."""
    stateid, offset, length = _range(ctx, decoder)
    with ctx.server.opens.for_io(ctx, stateid, write=True) as fd:
        ctx.server.store.allocate(fd, offset, length)
    ctx.server.store.modified(ctx.node)


@operation(Op.DEALLOCATE, minor=2, needs_handle=True, changes=True)
def deallocate(ctx: Context, decoder: Decoder, out: ReplyEncoder) -> None:
    """Makes a hole in the file."""
    stateid, offset, length = _range(ctx, decoder)
    with ctx.server.opens.for_io(ctx, stateid, write=True) as fd:
        ctx.server.store.deallocate(fd, offset, length)
    ctx.server.store.modified(ctx.node)


def _range(ctx: Context, decoder: Decoder) -> tuple[Stateid, int, int]:
    stateid, offset, length = Stateid.decode(decoder), decoder.u64(), decoder.u64()
    ctx.node.want_file()
    if offset + length > _U64_MOST:
        raise NfsError(Status.INVAL)
    return stateid, offset, length


@operation(Op.COPY, minor=2, needs_handle=True, changes=True)
def copy(ctx: Context, decoder: Decoder, out: ReplyEncoder) -> None:
    """Copies data from the saved file to the current one before the reply.

    The copy is synchronous and in order whatever the client prefers, and perhaps not complete: the
    client sees that by the count, and asks for the rest.
    """
    source_state, target_state = Stateid.decode(decoder), Stateid.decode(decoder)
    source_at, target_at, count = decoder.u64(), decoder.u64(), decoder.u64()
    decoder.boolean(), decoder.boolean()  # consecutive, synchronous
    if decoder.u32():  # Files of other servers would have to be fetched from there.
        raise NfsError(Status.NOTSUPP)
    if ctx.saved is None:
        raise NfsError(Status.NOFILEHANDLE)
    ctx.saved.want_file()
    ctx.node.want_file()
    store, opens = ctx.server.store, ctx.server.opens
    from_saved = replace(ctx, current=ctx.saved, current_stateid=ctx.saved_stateid)
    with (
        opens.for_io(from_saved, source_state, write=False) as source,
        opens.for_io(ctx, target_state, write=True) as target,
    ):
        if ctx.saved.key == ctx.node.key and _overlap(source_at, target_at, count):
            raise NfsError(Status.INVAL)  # RFC 7862 §15.2.3
        verifier = store.verifier
        copied = store.copy(source, source_at, target, target_at, count)
    store.modified(ctx.node)
    out.u32(0)  # no stateid: no copy goes on
    out.u64(copied)
    out.u32(Stable.UNSTABLE)
    out.fixed(verifier, len(verifier))
    out.boolean(True)
    out.boolean(True)


def _overlap(source_at: int, target_at: int, count: int) -> bool:
    return count == 0 or abs(source_at - target_at) < count
