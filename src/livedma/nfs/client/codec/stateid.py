"""stateid4 as a client has it."""

from __future__ import annotations

from typing import NamedTuple

from livedma.rpc.xdr import Decoder, Encoder

__all__ = ["ANONYMOUS", "Stateid"]

_OTHER_BYTES = 12


class Stateid(NamedTuple):
    """What stands for opens and locks; a seqid of 0 means the newest (RFC 8881 section 8.2.2)."""

    seqid: int
    other: bytes

    @property
    def newest(self) -> Stateid:
        return Stateid(0, self.other)

    def encode(self, out: Encoder) -> None:
        out.u32(self.seqid)
        out.fixed(self.other, _OTHER_BYTES)

    @classmethod
    def decode(cls, decoder: Decoder) -> Stateid:
        return cls(decoder.u32(), decoder.fixed(_OTHER_BYTES))


ANONYMOUS = Stateid(0, bytes(_OTHER_BYTES))
