# SPDX-License-Identifier: BSD-2-Clause
"""Captures whose packets outlive a batch."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import Any

from livedma.lab.hosts import Host


@dataclass(frozen=True)
class Seen:
    """What a test asks about a captured packet; outlives the batch."""

    psn: int
    opcode: int
    dest_qp: int
    icrc_ok: bool | None
    frame: bytes
    length: int
    direction: str
    time_ns: int


@dataclass
class Tap:
    """A capture session on a host's interface, and what it saw so far."""

    session: Any
    host: Host
    seen: list[Seen] = field(default_factory=list)

    def read(self, expected: int, timeout_s: float = 30.0) -> list[Seen]:
        """Reads until so many packets came in all, or none came for a while."""
        from livedma._native.wire import Batch

        batch = Batch(4096, 4096 * 4096)
        end_s = time.monotonic() + timeout_s
        while len(self.seen) < expected and time.monotonic() < end_s:
            if self.session.poll(batch, 50):
                end_s = time.monotonic() + timeout_s
            for packet in batch:
                self.seen.append(
                    Seen(
                        packet.psn,
                        packet.opcode,
                        packet.dest_qp,
                        packet.icrc_ok,
                        packet.frame,
                        packet.length,
                        packet.to_dict()["direction"],
                        packet.time_ns,
                    )
                )
        return self.seen

    def counters(self) -> dict[str, int]:
        counters: dict[str, int] = self.session.counters()
        assert counters["matched"] == (
            counters["sampled_out"]
            + counters["recorded"]
            + counters["ring_dropped"]
            + counters["unreadable"]
        )
        return counters
