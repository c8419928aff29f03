# SPDX-License-Identifier: BSD-2-Clause
"""Serves OPEN, OPEN_DOWNGRADE and CLOSE (RFC 8881, 18.16, 18.18, 18.2)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from livedma.nfs.bitmap import bits, encode_bitmap
from livedma.nfs.numbers import Attribute, Claim, DelegationType, NfsError, Op, Status, Want, WhyNot
from livedma.nfs.server.attributes_set import bits_of
from livedma.nfs.server.ops.change_info import encode_change
from livedma.nfs.server.ops.delegation import encode_delegation
from livedma.nfs.server.ops.open_arguments import OpenArguments, decode_share
from livedma.nfs.server.ops.registry import operation
from livedma.nfs.server.state.opens import client_of
from livedma.nfs.server.state.shares import BOTH, READ, WRITE
from livedma.nfs.server.store import ChangeInfo, Node, Settings
from livedma.nfs.stateid import ANONYMOUS, INVALID, Stateid
from livedma.rpc.xdr import Decoder

if TYPE_CHECKING:
    from livedma.nfs.server.context import Context
    from livedma.nfs.server.reply import ReplyEncoder
    from livedma.nfs.server.state.opened import Delegation
    from livedma.nfs.server.state.opens import Opened

__all__: list[str] = []

RESULT_LOCKTYPE_POSIX = 4  # locks may be split and joined
_NO_CHANGE = ChangeInfo(0, 0)
_RECLAIMED = (DelegationType.NONE, DelegationType.READ, DelegationType.WRITE)
# Where the store keeps an exclusive create's verifier: the client sets them afterwards (18.16.3).
_OF_THE_VERIFIER = bits(Attribute.TIME_ACCESS, Attribute.TIME_MODIFY)


@dataclass(slots=True)
class _Found:
    """Holds the file to open. fd: of one that was just made. done: the attributes that were set."""

    node: Node
    change: ChangeInfo = _NO_CHANGE
    fd: int | None = None
    done: int = 0
    is_cut: bool = False
    owner_may: bool = False


@operation(Op.OPEN, needs_handle=True)
def open_file(ctx: Context, args: Decoder, out: ReplyEncoder) -> None:
    """Opens a file, and makes it if the client asks for that."""
    asked = OpenArguments.decode(ctx, args)
    _check(ctx, asked)
    found = _find(ctx, asked)
    ctx.current = found.node
    if asked.delegated is not None:
        ctx.server.delegations.claimed(ctx, asked.delegated, asked.share)
    try:
        opened = ctx.server.opens.open(
            ctx,
            found.node,
            asked.owner,
            asked.share,
            fd=found.fd,
            owner_may=found.owner_may,
        )
    except NfsError as refused:
        if asked.claim == Claim.PREVIOUS and refused.status == Status.SHARE_DENIED:
            raise NfsError(Status.RECLAIM_CONFLICT) from None
        raise
    if found.is_cut:
        _cut(ctx, opened)
    ctx.current_stateid = opened.stateid
    opened.stateid.encode(out)
    encode_change(out, found.change)
    out.u32(RESULT_LOCKTYPE_POSIX)
    out.raw(encode_bitmap(found.done))
    encode_delegation(out, asked.want, _delegation(ctx, asked, found, opened))


@operation(Op.OPEN_DOWNGRADE, needs_handle=True)
def open_downgrade(ctx: Context, args: Decoder, out: ReplyEncoder) -> None:
    """Gives up a part of what the open allows and denies."""
    stateid = Stateid.decode(args)
    args.u32()
    access, deny = args.u32(), args.u32()
    share, _ = decode_share(access, deny)
    ctx.current_stateid = ctx.server.opens.downgrade(ctx, stateid, share)
    ctx.current_stateid.encode(out)


@operation(Op.CLOSE, needs_handle=True)
def close(ctx: Context, args: Decoder, out: ReplyEncoder) -> None:
    """Gives up the open and its locks, as Linux's server does (18.2.3 leaves it to the server)."""
    args.u32()
    stateid = Stateid.decode(args)
    ctx.server.opens.close(ctx, stateid)
    # The stateid that is returned is of no use, and clients are not to use it (18.2.4).
    ctx.current_stateid = INVALID
    INVALID.encode(out)


def _check(ctx: Context, asked: OpenArguments) -> None:
    """Refuses what can be refused without a look at the file."""
    server = ctx.server
    if asked.claim in (Claim.DELEGATE_PREV, Claim.DELEG_PREV_FH):
        raise NfsError(Status.NOTSUPP)
    is_reclaim = asked.claim == Claim.PREVIOUS
    if is_reclaim and asked.delegation not in _RECLAIMED:
        raise NfsError(Status.INVAL)
    if server.config.read_only and (asked.share.access & WRITE or asked.creation is not None):
        raise NfsError(Status.ROFS)
    server.recovery.admit(client_of(ctx), is_reclaim=is_reclaim, now=server.clock())
    if asked.creation is not None:  # Otherwise a file might be made that could then not be opened.
        server.opens.check_room_for_one(client_of(ctx))


def _find(ctx: Context, asked: OpenArguments) -> _Found:
    if asked.name is None:
        # The mode may have changed since the client opened the file before the restart.
        return _Found(ctx.node, owner_may=asked.claim == Claim.PREVIOUS)
    store, directory = ctx.server.store, ctx.node
    creation = asked.creation
    if creation is None:
        node = store.lookup(directory, asked.name)
        change = store.change(directory)
        return _Found(node, ChangeInfo(change, change))
    settings = creation.settings
    created = store.create_file(directory, asked.name, creation.how, settings)
    if created.is_new or creation.how.is_exclusive:
        done = bits_of(settings) | (_OF_THE_VERIFIER if creation.how.is_exclusive else 0)
        # A create that is repeated opens what it made the first time.
        return _Found(created.node, created.change, created.fd, done, owner_may=True)
    is_cut = settings.size == 0
    done = bits(Attribute.SIZE) if is_cut else 0
    return _Found(created.node, created.change, done=done, is_cut=is_cut)


def _cut(ctx: Context, opened: Opened) -> None:
    """Cuts a file that existed to no bytes, if the client may write to it now."""
    is_writer = opened.state.share.access & WRITE
    stateid = opened.stateid if is_writer else ANONYMOUS
    try:
        with ctx.server.opens.for_io(ctx, stateid, True) as fd:
            ctx.server.store.setattr(ctx.node, Settings(size=0), fd)
            ctx.server.store.modified(ctx.node)
    except NfsError:
        ctx.server.opens.undo(opened)
        raise


def _delegation(
    ctx: Context, asked: OpenArguments, found: _Found, opened: Opened
) -> Delegation | WhyNot:
    """Returns what the caller gets beyond the open, or why not. A delegation to write is given only
    if the client asks for one.

    A delegation from before a restart is not given again: the kernel's leases ended with the
    server, local programs may have written since, and the client would not look.
    """
    if asked.want == Want.NONE:
        return WhyNot.NOT_WANTED
    if asked.want == Want.CANCEL:
        return WhyNot.CANCELLED
    offer = ctx.server.delegations.offer
    if asked.claim not in (Claim.NULL, Claim.FH):
        return WhyNot.RESOURCE
    if asked.share.access == READ and asked.want != Want.WRITE:
        return offer(ctx, found.node, found.owner_may)
    if asked.share.access == BOTH and asked.want in (Want.WRITE, Want.ANY):
        return offer(ctx, found.node, found.owner_may, opened.state)
    return WhyNot.RESOURCE
