# SPDX-License-Identifier: BSD-2-Clause
"""Codes stateids, and knows the meaning of the special ones (RFC 8881, 8.2)."""

from __future__ import annotations

from dataclasses import dataclass

from livedma.rpc.xdr import Decoder, Encoder

__all__ = ["ANONYMOUS", "BYPASS", "CURRENT", "INVALID", "Stateid"]

OTHER_BYTES = 12
SEQID_MOST = 0xFFFFFFFF
_ZEROS = bytes(OTHER_BYTES)
_ONES = b"\xff" * OTHER_BYTES


@dataclass(frozen=True, slots=True)
class Stateid:
    """Identifies a state: `other` names it for as long as it lives, `seqid` its version; 0 means
    the latest.
    """

    seqid: int
    other: bytes

    @staticmethod
    def decode(decoder: Decoder) -> Stateid:
        """Decodes the next 16 bytes."""
        return Stateid(decoder.u32(), decoder.fixed(OTHER_BYTES))

    def encode(self, out: Encoder) -> None:
        """Encodes 16 bytes."""
        out.u32(self.seqid)
        out.fixed(self.other, OTHER_BYTES)

    @property
    def is_special(self) -> bool:
        """Returns whether no state has this name: it has another meaning, or none."""
        return self.other in (_ZEROS, _ONES)


ANONYMOUS = Stateid(0, _ZEROS)
BYPASS = Stateid(SEQID_MOST, _ONES)
CURRENT = Stateid(1, _ZEROS)
INVALID = Stateid(SEQID_MOST, _ZEROS)
