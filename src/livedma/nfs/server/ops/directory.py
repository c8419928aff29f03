# SPDX-License-Identifier: BSD-2-Clause
"""Serves LOOKUP, LOOKUPP, CREATE, REMOVE and RENAME."""

from __future__ import annotations

from livedma.nfs.bitmap import bits, encode_bitmap
from livedma.nfs.numbers import Attribute, NfsError, Op, Status
from livedma.nfs.server.attributes import SETTABLE
from livedma.nfs.server.attributes_set import bits_of, decode_settings
from livedma.nfs.server.context import Context
from livedma.nfs.server.ops.change_info import encode_change
from livedma.nfs.server.ops.registry import operation
from livedma.nfs.server.reply import ReplyEncoder
from livedma.nfs.server.store import Kind
from livedma.rpc.xdr import Decoder

_LINK_MOST = 4095  # bytes of a symbolic link's target
_SETTABLE = SETTABLE & ~bits(Attribute.SIZE)
_CREATABLE = frozenset(Kind) - {Kind.REG}


@operation(Op.LOOKUP, needs_handle=True)
def lookup(ctx: Context, decoder: Decoder, out: ReplyEncoder) -> None:
    """Makes an entry of the current directory the current file."""
    ctx.current = ctx.server.store.lookup(ctx.node, decoder.opaque())


@operation(Op.LOOKUPP, needs_handle=True)
def lookupp(ctx: Context, decoder: Decoder, out: ReplyEncoder) -> None:
    """Makes the parent directory the current one."""
    ctx.current = ctx.server.store.parent(ctx.node)


@operation(Op.CREATE, needs_handle=True, changes=True)
def create(ctx: Context, decoder: Decoder, out: ReplyEncoder) -> None:
    """Makes a directory, link or special file, which is then the current file."""
    number = decoder.u32()
    target, device = b"", (0, 0)
    if number == Kind.LNK:
        target = decoder.opaque()
    elif number in (Kind.BLK, Kind.CHR):
        device = decoder.u32(), decoder.u32()
    name = decoder.opaque()
    if number not in _CREATABLE:
        raise NfsError(Status.BADTYPE)
    kind = Kind(number)
    settings = decode_settings(decoder, ctx.server, ctx.minor, _SETTABLE)
    if kind == Kind.LNK:
        _check_target(target)
    node, change = ctx.server.store.create_node(ctx.node, name, kind, settings, target, device)
    ctx.current = node
    encode_change(out, change)
    out.raw(encode_bitmap(bits_of(settings)))


def _check_target(target: bytes) -> None:
    if not target or b"\0" in target:
        raise NfsError(Status.INVAL)
    if len(target) > _LINK_MOST:
        raise NfsError(Status.NAMETOOLONG)


@operation(Op.REMOVE, needs_handle=True, changes=True)
def remove(ctx: Context, decoder: Decoder, out: ReplyEncoder) -> None:
    """Removes an entry of the current directory."""
    name = decoder.opaque()
    ctx.server.delegations.make_way_for_name(ctx, ctx.node, name)
    encode_change(out, ctx.server.store.remove(ctx.node, name))


@operation(Op.RENAME, needs_handle=True, changes=True)
def rename(ctx: Context, decoder: Decoder, out: ReplyEncoder) -> None:
    """Moves an entry from the saved directory to the current one."""
    old, new = decoder.opaque(), decoder.opaque()
    if ctx.saved is None:
        raise NfsError(Status.NOFILEHANDLE)
    ctx.server.delegations.make_way_for_name(ctx, ctx.saved, old)
    ctx.server.delegations.make_way_for_name(ctx, ctx.node, new)
    source, target = ctx.server.store.rename(ctx.saved, old, ctx.node, new)
    encode_change(out, source)
    encode_change(out, target)
