# SPDX-License-Identifier: BSD-2-Clause
"""Serves LINK and READLINK."""

from __future__ import annotations

from livedma.nfs.numbers import NfsError, Op, Status
from livedma.nfs.server.context import Context
from livedma.nfs.server.ops.change_info import encode_change
from livedma.nfs.server.ops.registry import operation
from livedma.nfs.server.reply import ReplyEncoder
from livedma.rpc.xdr import Decoder


@operation(Op.LINK, needs_handle=True, changes=True)
def link(ctx: Context, decoder: Decoder, out: ReplyEncoder) -> None:
    """Adds a name in the current directory for the saved file."""
    name = decoder.opaque()
    if ctx.saved is None:
        raise NfsError(Status.NOFILEHANDLE)
    ctx.server.delegations.make_way(ctx, ctx.saved)
    encode_change(out, ctx.server.store.link(ctx.saved, ctx.node, name))


@operation(Op.READLINK, needs_handle=True)
def readlink(ctx: Context, decoder: Decoder, out: ReplyEncoder) -> None:
    """Returns the target of a symbolic link; following it is up to the client."""
    out.data(ctx.server.store.readlink(ctx.node))
