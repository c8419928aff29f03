# SPDX-License-Identifier: BSD-2-Clause
"""Serves GETXATTR, SETXATTR, LISTXATTRS and REMOVEXATTR (RFC 8276)."""

from __future__ import annotations

import os

from livedma.nfs.numbers import NfsError, Op, Status, XattrOption
from livedma.nfs.server.context import Context
from livedma.nfs.server.ops.change_info import encode_change
from livedma.nfs.server.ops.registry import operation
from livedma.nfs.server.reply import ReplyEncoder
from livedma.rpc.xdr import Decoder, Encoder

_FLAGS = {
    XattrOption.EITHER: 0,
    XattrOption.CREATE: os.XATTR_CREATE,
    XattrOption.REPLACE: os.XATTR_REPLACE,
}
_ENDS_BYTES = 16  # of a listing: the cookie, how many names, whether it is the end


@operation(Op.GETXATTR, minor=2, needs_handle=True)
def getxattr(ctx: Context, decoder: Decoder, out: ReplyEncoder) -> None:
    """Returns the value of an attribute."""
    out.data(ctx.server.store.get_xattr(ctx.node, decoder.opaque()))


@operation(Op.SETXATTR, minor=2, needs_handle=True, changes=True)
def setxattr(ctx: Context, decoder: Decoder, out: ReplyEncoder) -> None:
    """Sets the value of an attribute."""
    option, name, value = decoder.enum(XattrOption), decoder.opaque(), decoder.opaque()
    ctx.server.delegations.make_way(ctx, ctx.node)
    encode_change(out, ctx.server.store.set_xattr(ctx.node, name, value, _FLAGS[option]))


@operation(Op.LISTXATTRS, minor=2, needs_handle=True)
def listxattrs(ctx: Context, decoder: Decoder, out: ReplyEncoder) -> None:
    """Lists names from a cookie on, which is the number of names before it."""
    cookie, bytes_most = decoder.u64(), decoder.u32()
    names = ctx.server.store.list_xattrs(ctx.node)
    if cookie > len(names):
        raise NfsError(Status.BAD_COOKIE)
    chosen = Encoder()
    after = cookie
    for name in names[cookie:]:
        size = 4 + len(name) + -len(name) % 4
        if _ENDS_BYTES + len(chosen) + size > bytes_most:
            break
        chosen.opaque(name)
        after += 1
    is_end = after == len(names)
    if bytes_most < _ENDS_BYTES or (after == cookie and not is_end):
        raise NfsError(Status.TOOSMALL)
    out.u64(after)
    out.u32(after - cookie)
    out.raw(bytes(chosen))
    out.boolean(is_end)


@operation(Op.REMOVEXATTR, minor=2, needs_handle=True, changes=True)
def removexattr(ctx: Context, decoder: Decoder, out: ReplyEncoder) -> None:
    """Removes an attribute."""
    name = decoder.opaque()
    ctx.server.delegations.make_way(ctx, ctx.node)
    encode_change(out, ctx.server.store.remove_xattr(ctx.node, name))
