# SPDX-License-Identifier: BSD-2-Clause
"""Calls a session's client over its back channel, in one slot (2.10.3.1).

The caller holds the server's lock.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from enum import IntEnum

from livedma.nfs.numbers import SESSION_ID_BYTES, CallbackOp, Status
from livedma.rpc.message import (
    AUTH_NONE,
    Accepted,
    AcceptStatus,
    AuthSys,
    Call,
    Flavor,
    OpaqueAuth,
    decode_reply,
    encode_call,
)
from livedma.rpc.service import CallingConnection
from livedma.rpc.xdr import Decoder, Encoder, XdrError
from livedma.wire.rpc import AUTH_MOST, GIDS_MOST, MACHINE_MOST

__all__ = ["BackChannel", "CallbackSecurity", "Outcome", "Request"]

CALLBACK_VERSION = 1
CB_COMPOUND = 1
SLOT = 0  # the only one in use
_RPCSEC_GSS = 6
_SEQUENCES = 1 << 32


@dataclass(frozen=True, slots=True)
class CallbackSecurity:
    """Holds csa_cb_program and csa_sec_parms, or those of BACKCHANNEL_CTL.

    credential: the first that can be used here; None if there is none, since all take RPCSEC_GSS.
    """

    program: int
    credential: OpaqueAuth | AuthSys | None

    @staticmethod
    def decode(args: Decoder) -> CallbackSecurity:
        """Decodes it from the wire."""
        program = args.u32()
        offered = args.array(_decode_credential)
        return CallbackSecurity(program, next((one for one in offered if one is not None), None))


def _decode_credential(args: Decoder) -> OpaqueAuth | AuthSys | None:
    flavor = args.u32()
    if flavor == Flavor.AUTH_NONE:
        return AUTH_NONE
    if flavor == Flavor.AUTH_SYS:
        stamp, machine = args.u32(), args.opaque(MACHINE_MOST)
        uid, gid = args.u32(), args.u32()
        return AuthSys(stamp, machine, uid, gid, tuple(args.array(Decoder.u32, GIDS_MOST)))
    if flavor != _RPCSEC_GSS:
        raise XdrError(f"callbacks with flavor {flavor}", args.pos - 4)
    args.u32()
    args.opaque(AUTH_MOST)
    args.opaque(AUTH_MOST)
    return None


class Outcome(IntEnum):
    """Says what a reply means for the slot."""

    USED = 0  # The client has executed the request, now or before; the slot is free again.
    AGAIN = 1  # The client has not executed it; the same request is to be sent later.
    BROKEN = 2  # The client cannot be called this way.


@dataclass(slots=True)
class Request:
    """Describes one operation behind CB_SEQUENCE. done: is called once, with its status, or with
    None if the client could not be asked."""

    op: CallbackOp
    arguments: bytes
    done: Callable[[Status | None], None]


class BackChannel:
    """Calls a session's client. connections: those that may be used, the latest last. is_granted:
    it has had a connection. is_faulty: the last call through it got no usable answer."""

    def __init__(self, session_id: bytes, minor: int, security: CallbackSecurity) -> None:
        self.session_id = session_id
        self.minor = minor
        self.security = security
        self.connections: dict[int, CallingConnection] = {}
        self.is_granted = False
        self.is_faulty = False
        self.waiting: deque[Request] = deque()
        self.current: Request | None = None  # has the slot
        self.xid: int | None = None  # of the call that it was sent by
        self._sequence = 1

    @property
    def is_up(self) -> bool:
        """Returns whether the client can be called, as far as the server knows."""
        return bool(self.connections) and not self.is_faulty

    def bind(self, connection: CallingConnection) -> None:
        """Adds a connection to call by. A client that binds one says that it listens."""
        self.connections.pop(connection.number, None)
        self.connections[connection.number] = connection
        self.is_granted = True
        self.is_faulty = False

    def message(self, xid: int) -> bytes:
        """Returns the call for the request that has the slot."""
        request, credential = self.current, self.security.credential
        assert request is not None and credential is not None
        out = Encoder()
        out.opaque(b"")
        out.u32(self.minor, 0, 2)
        out.u32(CallbackOp.SEQUENCE)
        out.fixed(self.session_id, SESSION_ID_BYTES)
        # The client caches no reply: executing a recall twice does no harm.
        out.u32(self._sequence, SLOT, SLOT, 0, 0)
        out.u32(request.op)
        out.raw(request.arguments)
        call = Call(xid, self.security.program, CALLBACK_VERSION, CB_COMPOUND, credential)
        return encode_call(call, bytes(out))

    def take(self, message: bytes) -> tuple[Outcome, Status | None]:
        """Returns what the reply means, and the operation's status if it was executed."""
        try:
            outcome, status = self._read(Decoder(message))
        except XdrError:
            outcome, status = Outcome.BROKEN, None
        if outcome is Outcome.USED:
            self._sequence = (self._sequence + 1) % _SEQUENCES
        return outcome, status

    def _read(self, reply: Decoder) -> tuple[Outcome, Status | None]:
        assert self.current is not None
        header = decode_reply(reply)
        if not isinstance(header, Accepted) or header.status != AcceptStatus.SUCCESS:
            return Outcome.BROKEN, None
        reply.u32()
        reply.opaque()
        count = reply.u32()
        if count < 1 or reply.u32() != CallbackOp.SEQUENCE:
            return Outcome.BROKEN, None
        status = reply.u32()
        if status != Status.OK:
            return Outcome.AGAIN if status == Status.DELAY else Outcome.BROKEN, None
        about = reply.fixed(SESSION_ID_BYTES), reply.u32(), reply.u32()
        if about != (self.session_id, self._sequence, SLOT):
            return Outcome.BROKEN, None
        reply.u32(), reply.u32()  # highest slots: one is enough
        if count != 2 or reply.u32() != self.current.op:
            return Outcome.USED, None
        number = reply.u32()
        return Outcome.USED, Status(number) if number in set(Status) else Status.SERVERFAULT
