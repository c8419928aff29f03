"""Stateids: how they look on the wire, and what the special ones mean (RFC 8881, 8.2)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from livedma.nfs.numbers import NfsError, Status
from livedma.rpc.xdr import Decoder, Encoder

if TYPE_CHECKING:
    from livedma.nfs.context import Context

__all__ = ["ANONYMOUS", "BYPASS", "CURRENT", "INVALID", "Stateid", "resolve"]

OTHER_BYTES = 12
SEQID_MOST = 0xFFFFFFFF
_ZEROS = bytes(OTHER_BYTES)
_ONES = b"\xff" * OTHER_BYTES


@dataclass(frozen=True, slots=True)
class Stateid:
    """`other` names a state for as long as it lives, `seqid` its version; 0 is the latest one."""

    seqid: int
    other: bytes

    @staticmethod
    def decode(decoder: Decoder) -> Stateid:
        """The next 16 bytes."""
        return Stateid(decoder.u32(), decoder.fixed(OTHER_BYTES))

    def encode(self, out: Encoder) -> None:
        """16 bytes."""
        out.u32(self.seqid)
        out.fixed(self.other, OTHER_BYTES)

    @property
    def is_special(self) -> bool:
        """No state has such a name: it means something else, or nothing."""
        return self.other in (_ZEROS, _ONES)


ANONYMOUS = Stateid(0, _ZEROS)
BYPASS = Stateid(SEQID_MOST, _ONES)
CURRENT = Stateid(1, _ZEROS)
INVALID = Stateid(SEQID_MOST, _ZEROS)


def resolve(ctx: Context, stateid: Stateid, *, keep_seqid: bool = False) -> Stateid:
    """What an operation works with: the current stateid where `stateid` stands for it.

    keep_seqid: CLOSE and OPEN_DOWNGRADE mean the very version that was current; all others, the
    latest (8.2.3).
    """
    if stateid != CURRENT:
        return stateid
    current = ctx.current_stateid
    if current is None:
        raise NfsError(Status.BAD_STATEID)
    return current if keep_seqid or current.is_special else Stateid(0, current.other)
