"""DELEGRETURN and DELEGPURGE (RFC 8881, 18.6 and 18.5), and what OPEN says of delegations."""

from __future__ import annotations

from typing import TYPE_CHECKING

from livedma.nfs.delegations import WhyNot
from livedma.nfs.numbers import NfsError, Op, Status
from livedma.nfs.ops.open_arguments import Want
from livedma.nfs.ops.registry import operation
from livedma.nfs.stateid import Stateid, resolve
from livedma.rpc.xdr import Decoder

if TYPE_CHECKING:
    from livedma.nfs.context import Context
    from livedma.nfs.opened import Delegation
    from livedma.nfs.reply import ReplyEncoder

__all__ = ["DELEGATE_NONE", "DELEGATE_READ", "DELEGATE_WRITE", "encode_delegation"]

# open_delegation_type4
DELEGATE_NONE, DELEGATE_READ, DELEGATE_WRITE, DELEGATE_NONE_EXT = range(4)
_ACE_ALLOWED = 0
_LIMIT_SIZE = 1


@operation(Op.DELEGRETURN, needs_handle=True)
def delegreturn(ctx: Context, args: Decoder, _: ReplyEncoder) -> None:
    """The client does without it from now on."""
    stateid = Stateid.decode(args)
    ctx.server.delegations.give_back(ctx, resolve(ctx, stateid))


@operation(Op.DELEGPURGE)
def delegpurge(_: Context, args: Decoder, __: ReplyEncoder) -> None:
    """For servers that let delegations be claimed after a client's restart (18.5.3)."""
    args.u64()
    raise NfsError(Status.NOTSUPP)


def encode_delegation(out: ReplyEncoder, want: Want, given: Delegation | WhyNot) -> None:
    """open_delegation4. Whoever said what it would like to have is told why it has not (10.4)."""
    if not isinstance(given, WhyNot):
        out.enum(DELEGATE_WRITE if given.is_write else DELEGATE_READ)
        given.stateid.encode(out)
        out.boolean(False)  # It is not being recalled.
        if given.is_write:
            out.enum(_LIMIT_SIZE)
            out.u64(0)  # All that it writes goes to the server at once: there may be no room later.
        # Nobody is named whom the client might let in by itself: it asks (ACCESS).
        out.u32(_ACE_ALLOWED, 0, 0)
        out.opaque(b"")
    elif want == Want.NO_PREFERENCE:
        out.enum(DELEGATE_NONE)
    else:
        out.enum(DELEGATE_NONE_EXT)
        out.enum(given)
        if given in (WhyNot.CONTENTION, WhyNot.RESOURCE):
            out.boolean(False)  # and nobody will tell when that changes
