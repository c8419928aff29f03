# SPDX-License-Identifier: BSD-2-Clause
"""Codes EXCHANGE_ID, CREATE_SESSION, BIND_CONN_TO_SESSION, SEQUENCE, DESTROY_* and
RECLAIM_COMPLETE."""

from __future__ import annotations

from dataclasses import dataclass

from livedma.nfs.client.operation import Operation, ReplyDecoder, nothing
from livedma.nfs.numbers import (
    OPAQUE_MOST,
    SESSION_ID_BYTES,
    VERIFIER_BYTES,
    BindFrom,
    Bound,
    ExchangeFlag,
    Op,
    StateProtection,
    StatusFlag,
)
from livedma.rpc.xdr import Decoder, Encoder, XdrError

__all__ = [
    "ChannelLimits",
    "Created",
    "Exchanged",
    "Sequenced",
    "bind_conn_to_session",
    "create_session",
    "destroy_clientid",
    "destroy_session",
    "exchange_id",
    "reclaim_complete",
    "sequence",
]


@dataclass(frozen=True, slots=True)
class Exchanged:
    """Holds eir_*: the client id, the first sequence of CREATE_SESSION, the server's owner and
    scope.
    """

    client_id: int
    sequence: int
    is_confirmed: bool
    server_owner: bytes
    server_scope: bytes


def exchange_id(verifier: bytes, owner: bytes) -> Operation[Exchanged]:
    out = Encoder()
    out.fixed(verifier, VERIFIER_BYTES)
    out.opaque(owner, OPAQUE_MOST)
    out.u32(ExchangeFlag.USE_NON_PNFS, StateProtection.NONE, 0)  # no implementation id
    return Operation(Op.EXCHANGE_ID, bytes(out), _exchanged, room=4096)


def _exchanged(decoder: ReplyDecoder) -> Exchanged:
    client_id, sequence, flags = decoder.u64(), decoder.u32(), decoder.u32()
    at = decoder.pos
    if decoder.u32() != StateProtection.NONE:
        raise XdrError("state protection that was not asked for", at)
    decoder.u64()  # the minor part of the server's owner
    owner, scope = decoder.opaque(OPAQUE_MOST), decoder.opaque(OPAQUE_MOST)
    decoder.array(_implementation, most=1)
    return Exchanged(client_id, sequence, bool(flags & ExchangeFlag.CONFIRMED_R), owner, scope)


def _implementation(decoder: Decoder) -> None:
    decoder.opaque(OPAQUE_MOST)
    decoder.opaque(OPAQUE_MOST)
    decoder.u64()
    decoder.u32()


@dataclass(frozen=True, slots=True)
class ChannelLimits:
    """Holds channel_attrs4 without ca_rdma_ird, which is sent empty."""

    request_bytes: int
    response_bytes: int
    cached_bytes: int
    operations: int
    slots: int

    def encode(self, out: Encoder) -> None:
        out.u32(0, self.request_bytes, self.response_bytes, self.cached_bytes)
        out.u32(self.operations, self.slots, 0)


@dataclass(frozen=True, slots=True)
class Created:
    """Holds csr_*: the session's id, and the limits of its fore channel."""

    session_id: bytes
    fore: ChannelLimits


def create_session(client_id: int, sequence: int, fore: ChannelLimits) -> Operation[Created]:
    out = Encoder()
    out.u64(client_id)
    out.u32(sequence, 0)  # neither persistent nor with a back channel
    fore.encode(out)
    ChannelLimits(4096, 4096, 0, 2, 1).encode(out)
    out.u32(0, 0)  # no program for callbacks, and no csa_sec_parms
    return Operation(Op.CREATE_SESSION, bytes(out), _created, room=256)


def _created(decoder: ReplyDecoder) -> Created:
    session_id = decoder.fixed(SESSION_ID_BYTES)
    decoder.u32()
    decoder.u32()
    fore = _limits(decoder)
    _limits(decoder)
    return Created(session_id, fore)


def _limits(decoder: ReplyDecoder) -> ChannelLimits:
    at = decoder.pos
    decoder.u32()
    request, response, cached = decoder.u32(), decoder.u32(), decoder.u32()
    operations, slots = decoder.u32(), decoder.u32()
    decoder.array(Decoder.u32, most=1)
    if not slots:
        raise XdrError("a session without slots", at)
    return ChannelLimits(request, response, cached, operations, slots)


def bind_conn_to_session(session_id: bytes) -> Operation[None]:
    out = Encoder()
    out.fixed(session_id, SESSION_ID_BYTES)
    out.u32(BindFrom.FORE)
    out.boolean(False)

    def bound(decoder: ReplyDecoder) -> None:
        at = decoder.pos
        if decoder.fixed(SESSION_ID_BYTES) != session_id:
            raise XdrError("another session was bound", at)
        at = decoder.pos
        if not decoder.u32() & Bound.FORE:
            raise XdrError("the connection was not bound for calls", at)
        decoder.boolean()

    return Operation(Op.BIND_CONN_TO_SESSION, bytes(out), bound)


@dataclass(frozen=True, slots=True)
class Sequenced:
    """Holds sr_*: the number of the last slot there is, of the last there should be, and flags."""

    highest: int
    target: int
    flags: StatusFlag


def sequence(
    session_id: bytes, number: int, slot: int, highest: int, keep: bool
) -> Operation[Sequenced]:
    out = Encoder()
    out.fixed(session_id, SESSION_ID_BYTES)
    out.u32(number, slot, highest)
    out.boolean(keep)

    def sequenced(decoder: ReplyDecoder) -> Sequenced:
        at = decoder.pos
        same = decoder.fixed(SESSION_ID_BYTES) == session_id
        if not (decoder.u32() == number and decoder.u32() == slot and same):
            raise XdrError("the reply of another session, slot or sequence", at)
        return Sequenced(decoder.u32(), decoder.u32(), StatusFlag(decoder.u32()))

    return Operation(Op.SEQUENCE, bytes(out), sequenced)


def destroy_session(session_id: bytes) -> Operation[None]:
    return Operation(Op.DESTROY_SESSION, session_id, nothing)


def destroy_clientid(client_id: int) -> Operation[None]:
    return Operation(Op.DESTROY_CLIENTID, client_id.to_bytes(8, "big"), nothing)


def reclaim_complete() -> Operation[None]:
    out = Encoder()
    out.boolean(False)
    return Operation(Op.RECLAIM_COMPLETE, bytes(out), nothing)
