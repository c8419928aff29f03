# SPDX-License-Identifier: BSD-2-Clause
"""Serves ACCESS, GETATTR, SETATTR, VERIFY and NVERIFY."""

from __future__ import annotations

from contextlib import ExitStack

from livedma.nfs.bitmap import bits, decode_bitmap, encode_bitmap
from livedma.nfs.numbers import Attribute, NfsError, Op, Status
from livedma.nfs.server.attributes import SETTABLE, encode_attributes
from livedma.nfs.server.attributes_set import bits_of, decode_settings, is_same
from livedma.nfs.server.context import Context
from livedma.nfs.server.ops.registry import operation
from livedma.nfs.server.reply import ReplyEncoder
from livedma.nfs.server.store import Access, Settings
from livedma.nfs.stateid import Stateid
from livedma.rpc.xdr import Decoder, XdrError

_ACCESS = {1: 0x3F, 2: 0x1FF}  # by minor version; RFC 8276 added three bits
# RFC 8275 §5: the umask is of use for a new file alone.
_SETTABLE = SETTABLE & ~bits(Attribute.MODE_UMASK)
# A client with a delegation to write may have changed these without telling the server.
_OF_THE_DATA = bits(Attribute.CHANGE, Attribute.SIZE, Attribute.TIME_MODIFY, Attribute.SPACE_USED)


@operation(Op.ACCESS, needs_handle=True)
def access(ctx: Context, decoder: Decoder, out: ReplyEncoder) -> None:
    """Returns which of the accesses that the client asks about it has."""
    wanted = decoder.u32()
    if wanted & ~_ACCESS[ctx.minor]:
        raise NfsError(Status.INVAL)
    known, allowed = ctx.server.store.access(ctx.node, Access(wanted))
    out.u32(known, allowed)


@operation(Op.GETATTR, needs_handle=True)
def getattr_(ctx: Context, decoder: Decoder, out: ReplyEncoder) -> None:
    """Returns attributes of the current file."""
    wanted = decode_bitmap(decoder)
    if wanted & _OF_THE_DATA:
        ctx.server.delegations.make_way_to_read(ctx, ctx.node)
    out.raw(encode_attributes(ctx.server, ctx.node, wanted, ctx.minor))


@operation(Op.SETATTR, needs_handle=True, changes=True, error_body=encode_bitmap(0))
def setattr_(ctx: Context, decoder: Decoder, out: ReplyEncoder) -> None:
    """Sets attributes; the reply says which were set even if others failed (RFC 8881 §18.30)."""
    done = 0
    try:
        stateid = Stateid.decode(decoder)
        settings = decode_settings(decoder, ctx.server, ctx.minor, _SETTABLE)
        with ExitStack() as stack:
            fd = None
            ctx.server.delegations.make_way(ctx, ctx.node)
            if settings.size is not None:
                ctx.node.want_file()
                fd = stack.enter_context(ctx.server.opens.for_io(ctx, stateid, write=True))
            for part in settings.in_order():
                _set(ctx, part, fd)
                done |= bits_of(part)
    except NfsError as failure:
        raise NfsError(failure.status, encode_bitmap(done)) from failure
    except XdrError as wrong:
        raise NfsError(Status.BADXDR, encode_bitmap(done)) from wrong
    out.raw(encode_bitmap(done))


def _set(ctx: Context, settings: Settings, fd: int | None) -> None:
    ctx.server.store.setattr(ctx.node, settings, fd)


@operation(Op.VERIFY, needs_handle=True)
def verify(ctx: Context, decoder: Decoder, out: ReplyEncoder) -> None:
    """Lets the COMPOUND go on if attributes are what the client says."""
    if not is_same(decoder, ctx.server, ctx.node, ctx.minor):
        raise NfsError(Status.NOT_SAME)


@operation(Op.NVERIFY, needs_handle=True)
def nverify(ctx: Context, decoder: Decoder, out: ReplyEncoder) -> None:
    """Lets the COMPOUND go on if some attribute is not what the client says."""
    if is_same(decoder, ctx.server, ctx.node, ctx.minor):
        raise NfsError(Status.SAME)
