# SPDX-License-Identifier: BSD-2-Clause
"""Holds what all parts of the connection manager share: this side's address and what it sends."""

from __future__ import annotations

import random
from collections.abc import Container
from dataclasses import dataclass, field

from livedma.rdma.cm.connection import Counters
from livedma.rdma.cm.events import Event
from livedma.rdma.cm.messages import Timing

_ID_BITS = 24  # the 8 above them are the slot


@dataclass(frozen=True)
class Limits:
    """Bounds on what peers can make this side remember."""

    connections: int = 65536  # of any kind and in any state
    half_open: int = 1024  # accepted, but not confirmed
    rejections: int = 1024  # remembered to answer a repeated request in the same way
    sidr_requests: int = 1024


@dataclass
class Outbox:
    address: str
    guid: int
    slot: int
    timing: Timing
    limits: Limits
    random: random.Random
    counters: Counters = field(default_factory=Counters)
    events: list[Event] = field(default_factory=list)
    mads: list[tuple[bytes, str]] = field(default_factory=list)

    def send(self, mad: bytes, destination: str) -> None:
        self.counters.sent += 1
        self.mads.append((mad, destination))

    def emit(self, event: Event) -> None:
        self.events.append(event)

    def new_id(self, taken: Container[int]) -> int:
        """Returns an ID that cannot be guessed: a peer that knows it has seen a message of ours."""
        while True:
            number = self.slot << _ID_BITS | self.random.getrandbits(_ID_BITS)
            if number and number not in taken:
                return number
