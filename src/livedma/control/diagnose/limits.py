# SPDX-License-Identifier: BSD-2-Clause
"""Defines the limits that a connection may have, and the diagnosis that names one of them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum

from livedma.control.diagnose.room import SessionRoom

__all__ = ["NOT_MANAGED", "Diagnosis", "Limit", "Objectives"]

NOT_MANAGED = "memory of TCP connections is not managed"


class Limit(Enum):
    """Names what limits a connection. The values are words for people."""

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
    """Says what users want. `p99_ns` bounds the latency; None: waiting must not make it worse."""

    p99_ns: int | None = None


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """Says what limits a connection, as of one snapshot.

    With `is_degraded`, the limit makes requests slower than they have to be. `evidence` holds the
    figures behind it, by names that end in their unit; `sentence` says the same for people. `room`
    is that for more sessions; None: its memory is not managed.
    """

    connection: int
    at_s: float
    is_degraded: bool
    limit: Limit
    sentence: str
    evidence: Mapping[str, float] = field(default_factory=dict)
    room: SessionRoom | None = None

    @property
    def verdict(self) -> str:
        """Returns the diagnosis in a few words: "fine", "slow, limited by DMA memory"."""
        if self.limit is Limit.NOTHING:
            return "slow" if self.is_degraded else "fine"
        return f"{'slow' if self.is_degraded else 'fast enough'}, limited by {self.limit.value}"

    @property
    def room_words(self) -> str:
        """Returns the room for more sessions in words; empty: there is nothing to say of it. What
        is slow has none, whatever the buffers and credits say.
        """
        if self.room is None:
            return ""
        return self.room.slow_sentence if self.is_degraded else self.room.sentence
