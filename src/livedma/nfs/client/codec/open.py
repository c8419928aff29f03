# SPDX-License-Identifier: BSD-2-Clause
"""Codes OPEN, OPEN_DOWNGRADE, CLOSE, DELEGRETURN and FREE_STATEID."""

from __future__ import annotations

from dataclasses import dataclass

from livedma.nfs.bitmap import decode_bitmap
from livedma.nfs.client.codec.attribute import Values, encode_attributes
from livedma.nfs.client.codec.handle import encode_name
from livedma.nfs.client.operation import Operation, ReplyDecoder, nothing
from livedma.nfs.numbers import (
    OPAQUE_MOST,
    VERIFIER_BYTES,
    Claim,
    CreateMode,
    DelegationType,
    Op,
    Want,
    WhyNot,
)
from livedma.nfs.stateid import Stateid
from livedma.rpc.xdr import Encoder, XdrError

__all__ = [
    "Opened",
    "Share",
    "close",
    "delegreturn",
    "free_stateid",
    "open_again",
    "open_downgrade",
    "open_name",
    "open_reclaim",
]


@dataclass(frozen=True, slots=True)
class Share:
    """Says what an open may do, what other opens must not (bits SHARE_*), and its owner."""

    access: int
    deny: int
    client_id: int
    owner: bytes

    def encode(self, out: Encoder) -> None:
        out.u32(0, self.access | Want.NONE, self.deny)
        out.u64(self.client_id)
        out.opaque(self.owner, OPAQUE_MOST)


@dataclass(frozen=True, slots=True)
class Opened:
    """Holds the state of an open, and a delegation if the server gave one unasked."""

    stateid: Stateid
    delegation: Stateid | None


def open_name(
    share: Share, name: str, mode: CreateMode | None, values: Values, verifier: bytes
) -> Operation[Opened]:
    """Opens a name in the current directory. mode: None does not create it; it decides whether
    `values` and `verifier` count.
    """
    out = Encoder()
    share.encode(out)
    out.boolean(mode is not None)
    if mode is not None:
        out.enum(mode)
        if mode in (CreateMode.EXCLUSIVE, CreateMode.EXCLUSIVE_1):
            out.fixed(verifier, VERIFIER_BYTES)
        if mode != CreateMode.EXCLUSIVE:
            encode_attributes(out, values)
    out.u32(Claim.NULL)
    out.raw(encode_name(name))
    # A client can prove by the verifier that it made the file, but not with GUARDED.
    return _open(out, is_repeatable=mode != CreateMode.GUARDED)


def open_again(share: Share) -> Operation[Opened]:
    """Opens the current file by its handle."""
    out = Encoder()
    share.encode(out)
    out.boolean(False)
    out.u32(Claim.FH)
    return _open(out)


def open_reclaim(share: Share) -> Operation[Opened]:
    """Reclaims an open of the current file from before the server's restart."""
    out = Encoder()
    share.encode(out)
    out.boolean(False)
    out.u32(Claim.PREVIOUS, DelegationType.NONE)
    return _open(out)


def _open(out: Encoder, *, is_repeatable: bool = True) -> Operation[Opened]:
    return Operation(
        Op.OPEN, bytes(out), _opened, room=1024, is_repeatable=is_repeatable, keeps_reply=True
    )


def _opened(decoder: ReplyDecoder) -> Opened:
    stateid = Stateid.decode(decoder)
    decoder.boolean()
    decoder.u64()
    decoder.u64()
    decoder.u32()  # flags
    decode_bitmap(decoder)
    return Opened(stateid, _delegation(decoder))


def _delegation(decoder: ReplyDecoder) -> Stateid | None:
    at = decoder.pos
    kind = decoder.u32()
    if kind == DelegationType.NONE:
        return None
    if kind == DelegationType.NONE_EXT:
        if decoder.u32() in (WhyNot.CONTENTION, WhyNot.RESOURCE):
            decoder.boolean()
        return None
    if kind not in (DelegationType.READ, DelegationType.WRITE):
        raise XdrError(f"delegation of type {kind}", at)
    stateid = Stateid.decode(decoder)
    decoder.boolean()
    if kind == DelegationType.WRITE:
        decoder.fixed(12)  # a limit of space: its kind, then a size, or blocks and their size
    decoder.fixed(12)  # type, flags and mask of an ACE
    decoder.opaque(OPAQUE_MOST)
    return stateid


def open_downgrade(stateid: Stateid, access: int, deny: int) -> Operation[Stateid]:
    out = Encoder()
    stateid.encode(out)
    out.u32(0, access, deny)
    return Operation(Op.OPEN_DOWNGRADE, bytes(out), Stateid.decode, keeps_reply=True)


def close(stateid: Stateid) -> Operation[Stateid]:
    out = Encoder()
    out.u32(0)
    stateid.encode(out)
    return Operation(Op.CLOSE, bytes(out), Stateid.decode, keeps_reply=True)


def delegreturn(stateid: Stateid) -> Operation[None]:
    out = Encoder()
    stateid.encode(out)
    return Operation(Op.DELEGRETURN, bytes(out), nothing)


def free_stateid(stateid: Stateid) -> Operation[None]:
    out = Encoder()
    stateid.encode(out)
    return Operation(Op.FREE_STATEID, bytes(out), nothing)
