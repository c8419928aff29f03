# SPDX-License-Identifier: BSD-2-Clause
"""Serves the operations on the current and the saved filehandle, and SECINFO (RFC 8881 18.8, 18.19
to 18.29, 18.45)."""

from __future__ import annotations

from livedma.nfs.numbers import HANDLE_MOST, NfsError, Op, Status
from livedma.nfs.server.context import Context
from livedma.nfs.server.ops.registry import operation
from livedma.nfs.server.reply import ReplyEncoder
from livedma.rpc.message import Flavor
from livedma.rpc.xdr import Decoder, XdrError

__all__: list[str] = []

_STYLE_CURRENT, _STYLE_PARENT = 0, 1


@operation(Op.PUTFH)
def _putfh(ctx: Context, args: Decoder, out: ReplyEncoder) -> None:
    ctx.current = ctx.server.store.resolve(args.opaque(HANDLE_MOST))


@operation(Op.PUTROOTFH)
def _putrootfh(ctx: Context, args: Decoder, out: ReplyEncoder) -> None:
    ctx.current = ctx.server.store.root


@operation(Op.PUTPUBFH)
def _putpubfh(ctx: Context, args: Decoder, out: ReplyEncoder) -> None:
    ctx.current = ctx.server.store.root


@operation(Op.GETFH, needs_handle=True)
def _getfh(ctx: Context, args: Decoder, out: ReplyEncoder) -> None:
    out.opaque(ctx.node.handle, HANDLE_MOST)


@operation(Op.SAVEFH, needs_handle=True)
def _savefh(ctx: Context, args: Decoder, out: ReplyEncoder) -> None:
    ctx.saved, ctx.saved_stateid = ctx.current, ctx.current_stateid


@operation(Op.RESTOREFH)
def _restorefh(ctx: Context, args: Decoder, out: ReplyEncoder) -> None:
    if ctx.saved is None:
        raise NfsError(Status.NOFILEHANDLE)
    ctx.current, ctx.current_stateid = ctx.saved, ctx.saved_stateid


@operation(Op.SECINFO, needs_handle=True)
def _secinfo(ctx: Context, args: Decoder, out: ReplyEncoder) -> None:
    ctx.server.store.lookup(ctx.node, args.opaque())
    _encode_flavors(ctx, out)


@operation(Op.SECINFO_NO_NAME, needs_handle=True)
def _secinfo_no_name(ctx: Context, args: Decoder, out: ReplyEncoder) -> None:
    style = args.u32()
    if style == _STYLE_PARENT:
        ctx.server.store.parent(ctx.node)
    elif style != _STYLE_CURRENT:
        raise XdrError(f"style {style}", args.pos - 4)
    _encode_flavors(ctx, out)


def _encode_flavors(ctx: Context, out: ReplyEncoder) -> None:
    out.array((Flavor.AUTH_SYS, Flavor.AUTH_NONE), ReplyEncoder.u32)
    # 2.6.3.1.1.8: the operations that follow have to name a file again.
    ctx.current = ctx.current_stateid = None
