# SPDX-License-Identifier: BSD-2-Clause
"""Serves TEST_STATEID and FREE_STATEID (RFC 8881, 18.48 and 18.38)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from livedma.nfs.numbers import NfsError, Op, Status
from livedma.nfs.server.ops.registry import operation
from livedma.nfs.server.state.opens import client_of
from livedma.nfs.stateid import OTHER_BYTES, Stateid
from livedma.rpc.xdr import WORD_BYTES, Decoder

if TYPE_CHECKING:
    from livedma.nfs.server.context import Context
    from livedma.nfs.server.reply import ReplyEncoder

__all__: list[str] = []


@operation(Op.TEST_STATEID)
def test_stateid(ctx: Context, args: Decoder, out: ReplyEncoder) -> None:
    """Returns the status of each stateid; special ones are BAD_STATEID (18.48.3)."""
    stateids = args.array(Stateid.decode, item_bytes=WORD_BYTES + OTHER_BYTES)
    out.array(stateids, lambda _, stateid: out.enum(_status(ctx, stateid)))


@operation(Op.FREE_STATEID)
def free_stateid(ctx: Context, args: Decoder, _: ReplyEncoder) -> None:
    """Forgets a lock-owner without locks, or a delegation that was revoked."""
    stateid = Stateid.decode(args)
    ctx.server.locks.free(ctx, stateid)


def _status(ctx: Context, stateid: Stateid) -> Status:
    with ctx.server.lock:
        try:
            ctx.server.opens.states.find(stateid, client_of(ctx).number)
        except NfsError as wrong:
            return wrong.status
    return Status.OK
