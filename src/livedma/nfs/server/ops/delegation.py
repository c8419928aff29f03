# SPDX-License-Identifier: BSD-2-Clause
"""Serves DELEGRETURN and DELEGPURGE (RFC 8881, 18.6 and 18.5), and encodes what OPEN says of
delegations."""

from __future__ import annotations

from typing import TYPE_CHECKING

from livedma.nfs.numbers import DelegationType, NfsError, Op, Status, Want, WhyNot
from livedma.nfs.server.ops.registry import operation
from livedma.nfs.stateid import Stateid
from livedma.rpc.xdr import Decoder

if TYPE_CHECKING:
    from livedma.nfs.server.context import Context
    from livedma.nfs.server.reply import ReplyEncoder
    from livedma.nfs.server.state.opened import Delegation

__all__ = ["encode_delegation"]

_ACE_ALLOWED = 0
_LIMIT_SIZE = 1


@operation(Op.DELEGRETURN, needs_handle=True)
def delegreturn(ctx: Context, args: Decoder, _: ReplyEncoder) -> None:
    """Takes a delegation back."""
    stateid = Stateid.decode(args)
    ctx.server.delegations.give_back(ctx, ctx.resolve(stateid))


@operation(Op.DELEGPURGE)
def delegpurge(_: Context, args: Decoder, __: ReplyEncoder) -> None:
    """Refuses: it is for servers that let clients claim delegations after a restart (18.5.3)."""
    args.u64()
    raise NfsError(Status.NOTSUPP)


def encode_delegation(out: ReplyEncoder, want: Want, given: Delegation | WhyNot) -> None:
    """Encodes open_delegation4. A client that asked for one is told why it gets none (10.4)."""
    if not isinstance(given, WhyNot):
        out.enum(DelegationType.WRITE if given.is_write else DelegationType.READ)
        given.stateid.encode(out)
        out.boolean(False)  # It is not being recalled.
        if given.is_write:
            out.enum(_LIMIT_SIZE)
            out.u64(0)  # Nothing is promised: the client sends all data to the server at once.
        # The ACE names no user that the client could let in by itself: it has to ask (ACCESS).
        out.u32(_ACE_ALLOWED, 0, 0)
        out.opaque(b"")
    elif want == Want.NO_PREFERENCE:
        out.enum(DelegationType.NONE)
    else:
        out.enum(DelegationType.NONE_EXT)
        out.enum(given)
        if given in (WhyNot.CONTENTION, WhyNot.RESOURCE):
            out.boolean(False)  # the server will not tell when that changes
