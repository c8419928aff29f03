# SPDX-License-Identifier: BSD-2-Clause
"""Serves LOCK, LOCKT and LOCKU (RFC 8881, 18.10 to 18.12)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from livedma.nfs.numbers import OPAQUE_MOST, LockType, Op
from livedma.nfs.server.ops.registry import operation
from livedma.nfs.server.state.locks import FirstLock, Range
from livedma.nfs.stateid import Stateid
from livedma.rpc.xdr import Decoder

if TYPE_CHECKING:
    from livedma.nfs.server.context import Context
    from livedma.nfs.server.reply import ReplyEncoder

__all__: list[str] = []


def decode_owner(args: Decoder) -> bytes:
    """Decodes an open-owner or lock-owner; its client ID is that of the session (8.1)."""
    args.u64()
    return args.opaque(OPAQUE_MOST)


def _locker(args: Decoder) -> FirstLock | Stateid:
    is_first = args.boolean()
    if not is_first:
        stateid = Stateid.decode(args)
        args.u32()  # A seqid, which sessions have made needless; the same holds below.
        return stateid
    args.u32()
    open_stateid = Stateid.decode(args)
    args.u32()
    return FirstLock(open_stateid, decode_owner(args))


@operation(Op.LOCK, needs_handle=True)
def lock(ctx: Context, args: Decoder, out: ReplyEncoder) -> None:
    """Locks a range."""
    kind = args.enum(LockType)
    is_reclaim = args.boolean()
    offset, length = args.u64(), args.u64()
    locker = _locker(args)
    ctx.node.want_file()
    wanted = Range.of(offset, length, kind.is_exclusive)
    ctx.current_stateid = ctx.server.locks.lock(ctx, locker, wanted, is_reclaim=is_reclaim)
    ctx.current_stateid.encode(out)


@operation(Op.LOCKT, needs_handle=True)
def lockt(ctx: Context, args: Decoder, _: ReplyEncoder) -> None:
    """Says whether a range could be locked."""
    kind = args.enum(LockType)
    offset, length = args.u64(), args.u64()
    owner = decode_owner(args)
    ctx.node.want_file()
    ctx.server.locks.test(ctx, owner, Range.of(offset, length, kind.is_exclusive))


@operation(Op.LOCKU, needs_handle=True)
def locku(ctx: Context, args: Decoder, out: ReplyEncoder) -> None:
    """Unlocks a range."""
    kind = args.enum(LockType)
    args.u32()
    stateid = Stateid.decode(args)
    offset, length = args.u64(), args.u64()
    wanted = Range.of(offset, length, kind.is_exclusive)
    ctx.current_stateid = ctx.server.locks.unlock(ctx, stateid, wanted)
    ctx.current_stateid.encode(out)
