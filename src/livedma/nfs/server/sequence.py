# SPDX-License-Identifier: BSD-2-Clause
"""Codes SEQUENCE (RFC 8881 18.46)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from livedma.nfs.numbers import SESSION_ID_BYTES
from livedma.rpc.xdr import Decoder, Encoder

if TYPE_CHECKING:
    from livedma._native.nfs import SlotTable

__all__ = ["Sequence"]


@dataclass(frozen=True, slots=True)
class Sequence:
    """Holds SEQUENCE4args."""

    session_id: bytes
    sequence: int
    slot: int
    highest: int
    cache_this: bool

    @staticmethod
    def decode(decoder: Decoder) -> Sequence:
        """Decodes what follows the operation's number."""
        session_id = decoder.fixed(SESSION_ID_BYTES)
        return Sequence(session_id, decoder.u32(), decoder.u32(), decoder.u32(), decoder.boolean())

    def encode_result(self, out: Encoder, slots: SlotTable, flags: int) -> None:
        """Encodes SEQUENCE4resok."""
        out.fixed(self.session_id, SESSION_ID_BYTES)
        out.u32(self.sequence, self.slot, slots.highest, slots.target_highest, flags)
