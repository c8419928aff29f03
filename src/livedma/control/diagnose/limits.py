"""What may limit a connection, and a diagnosis that says which of it does."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum

__all__ = ["Diagnosis", "Limit", "Objectives"]


class Limit(Enum):
    """What more of would make a connection faster; the values are words for people."""

    NOTHING = "nothing"  # it does all that is asked of it
    MEMORY = "DMA memory"
    CREDITS = "credits"
    SLOTS = "slots"
    SEND_QUEUE = "send queue"
    STORAGE = "storage"
    CPU = "CPU"
    NETWORK = "network loss"
    PEER = "the client or the wire"  # data waits to be taken by the client


@dataclass(frozen=True, slots=True)
class Objectives:
    """What users want. p99_ns: of latency; None: only that it is not made worse by waiting."""

    p99_ns: int | None = None


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """What is the matter with a connection, as of one snapshot.

    is_degraded: its limit makes requests slower than they have to be. evidence: the figures behind
    it, by names that end in their unit. sentence: the same for people.
    """

    connection: int
    at_s: float
    is_degraded: bool
    limit: Limit
    sentence: str
    evidence: Mapping[str, float] = field(default_factory=dict)

    @property
    def verdict(self) -> str:
        """In a few words: "fine", "slow, limited by DMA memory"."""
        if self.limit is Limit.NOTHING:
            return "slow" if self.is_degraded else "fine"
        return f"{'slow' if self.is_degraded else 'fast enough'}, limited by {self.limit.value}"
