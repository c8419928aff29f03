# SPDX-License-Identifier: BSD-2-Clause
"""Serves READ, WRITE and COMMIT."""

from __future__ import annotations

from time import perf_counter_ns

from livedma.nfs.numbers import NfsError, Op, Stable, Status
from livedma.nfs.server.attributes import io_bytes
from livedma.nfs.server.context import Context
from livedma.nfs.server.ops.registry import operation
from livedma.nfs.server.reply import ReplyEncoder
from livedma.nfs.stateid import Stateid
from livedma.rpc.xdr import Decoder

_U64_MOST = (1 << 64) - 1


@operation(Op.READ, needs_handle=True)
def read(ctx: Context, decoder: Decoder, out: ReplyEncoder) -> None:
    """Reads data from an offset on, and says whether the file ends there."""
    stateid, offset, count = Stateid.decode(decoder), decoder.u64(), decoder.u32()
    ctx.node.want_file()
    with ctx.server.opens.for_io(ctx, stateid, write=False) as fd:
        began_ns = perf_counter_ns()
        data, is_end = ctx.server.store.read(fd, offset, min(count, io_bytes(ctx.server.config)))
        ctx.storage_ns += perf_counter_ns() - began_ns
    ctx.read_bytes += len(data)
    out.boolean(is_end)
    out.data(data)


@operation(Op.WRITE, needs_handle=True, changes=True)
def write(ctx: Context, decoder: Decoder, out: ReplyEncoder) -> None:
    """Writes data to the file, and to the disk before the reply if the client wants that."""
    stateid, offset = Stateid.decode(decoder), decoder.u64()
    stable, data = decoder.enum(Stable), decoder.opaque()
    ctx.node.want_file()
    store = ctx.server.store
    if offset + len(data) > _U64_MOST:
        raise NfsError(Status.INVAL)
    with ctx.server.opens.for_io(ctx, stateid, write=True) as fd:
        # Taken before the data is written: if the data is lost later, the client sees a change.
        verifier = store.verifier
        began_ns = perf_counter_ns()
        written = store.write(fd, offset, data, stable)
        ctx.storage_ns += perf_counter_ns() - began_ns
    ctx.written_bytes += written
    store.modified(ctx.node)
    out.u32(written, stable)
    out.fixed(verifier, len(verifier))


@operation(Op.COMMIT, needs_handle=True)
def commit(ctx: Context, decoder: Decoder, out: ReplyEncoder) -> None:
    """Makes all that was written to the file survive a crash, whatever range the client names."""
    offset, count = decoder.u64(), decoder.u32()
    if offset + count > _U64_MOST:
        raise NfsError(Status.INVAL)
    store = ctx.server.store
    ctx.server.delegations.make_way_to_read(ctx, ctx.node)
    held = ctx.server.delegations.shared(ctx, ctx.node)
    began_ns = perf_counter_ns()
    if held is None:
        verifier = store.commit(ctx.node)
    else:
        try:
            store.sync(held.fd)
        finally:
            held.drop()
        verifier = store.verifier
    ctx.storage_ns += perf_counter_ns() - began_ns
    out.fixed(verifier, len(verifier))
