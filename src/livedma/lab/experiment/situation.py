# SPDX-License-Identifier: BSD-2-Clause
"""Describes a server and a load, by their options, so that their limit is known."""

from __future__ import annotations

from dataclasses import dataclass

from livedma.control.diagnose.limits import Limit
from livedma.lab.experiment.quantities import quantity

__all__ = ["Situation"]


@dataclass(frozen=True)
class Situation:
    """Describes a server and a load. limit: what more of would help most once all sessions have
    begun.

    store_width: accesses that the store does at a time; 0: any number. lost_share: of the packets
    on the wire, in both directions.
    """

    limit: Limit
    sessions: int = 64
    depth: int = 3
    size_bytes: int = 64 << 10
    rw: str = "read"
    window_bytes: int = 16 << 20
    mapped: str = "1/4"
    credits: int = 64
    slots: int = 64
    store_delay_s: float = 0.02
    store_width: int = 0
    is_on_disk: bool = False
    lost_share: float = 0.0
    rate: float | None = None  #: operations a second of all sessions; None: as many as possible
    is_verified: bool = True

    def serve_options(self) -> list[str]:
        found = [
            f"--window={self.window_bytes}",
            f"--mapped={self.mapped}",
            f"--credits={self.credits}",
            f"--slots={self.slots}",
        ]
        if self.store_delay_s:
            found.append(f"--store-delay={self.store_delay_s * 1000:g}ms")
        if self.store_width:
            found.append(f"--store-width={self.store_width}")
        return found

    def load_options(self, sessions: int) -> list[str]:
        found = [
            f"--sessions={sessions}",
            f"--depth={self.depth}",
            f"--size={self.size_bytes}",
            f"--rw={self.rw}",
        ]
        if self.rate is not None:
            found.append(f"--rate={self.rate:g}")
        if not self.is_verified:
            found.append("--no-verify")
        return found

    @property
    def load_text(self) -> str:
        rate = "" if self.rate is None else f", {self.rate:g} a second in all"
        return f"{self.depth} x {quantity(self.size_bytes, 'bytes')} {self.rw} a session{rate}"

    @property
    def server_text(self) -> str:
        width = f", {self.store_width} at a time" if self.store_width else ""
        delay = quantity(self.store_delay_s * 1e9, "ns") if self.store_delay_s else "no delay"
        loss = f"; {quantity(self.lost_share, 'share')} of packets lost" if self.lost_share else ""
        return (
            f"window {quantity(self.window_bytes, 'bytes')}, {self.mapped} mapped, {self.credits} "
            f"credits, {self.slots} slots; store: {delay}{width}{loss}"
        )
