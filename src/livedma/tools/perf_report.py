# SPDX-License-Identifier: BSD-2-Clause
"""Reports results of a measurement, with perftest's columns for people and plain units for
machines."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from livedma.tools.perf_plan import Plan

__all__ = ["Bandwidth", "Latency", "header"]

_MIB = 1 << 20  # perftest's MB
_GBIT = 125_000_000


@dataclass(frozen=True)
class Bandwidth:
    size: int
    iterations: int
    elapsed_ns: int
    best_ns: float  #: for one message, at the fastest; 0: unknown

    @property
    def messages_per_s(self) -> float:
        return self.iterations * 1e9 / self.elapsed_ns

    @property
    def bytes_per_s(self) -> float:
        return self.messages_per_s * self.size

    @property
    def peak_bytes_per_s(self) -> float:
        return self.size * 1e9 / self.best_ns if self.best_ns else 0.0

    def row(self, in_gbits: bool) -> str:
        unit = _GBIT if in_gbits else _MIB
        return (
            f" {self.size:<10} {self.iterations:<14} {self.peak_bytes_per_s / unit:<18.2f} "
            f"{self.bytes_per_s / unit:<20.2f} {self.messages_per_s / 1e6:.6f}"
        )

    def as_json(self) -> dict[str, Any]:
        return {
            "size": self.size,
            "iterations": self.iterations,
            "bytes_per_s": round(self.bytes_per_s),
            "messages_per_s": round(self.messages_per_s, 1),
            "peak_bytes_per_s": round(self.peak_bytes_per_s) or None,
        }


class Latency:
    """Computes statistics of the nanoseconds of each iteration; each has `trips` (SEND, WRITE:
    two)."""

    def __init__(self, size: int, times_ns: Sequence[int], trips: int) -> None:
        self.size, self.iterations = size, len(times_ns)
        self._us = sorted(ns / 1000 / trips for ns in times_ns)
        self._elapsed_s = sum(times_ns) / 1e9
        self._trips = trips

    def _percentile(self, percent: float) -> float:
        rank = math.ceil(len(self._us) * percent / 100)
        return self._us[max(rank, 1) - 1]

    @property
    def average_us(self) -> float:
        return statistics.fmean(self._us)

    def row(self, in_gbits: bool) -> str:
        us, deviation = self._us, statistics.pstdev(self._us)
        return (
            f" {self.size:<10} {self.iterations:<14} {us[0]:<14.2f} {us[-1]:<14.2f} "
            f"{statistics.median(us):<16.2f} {self.average_us:<14.2f} {deviation:<14.2f} "
            f"{self._percentile(99):<21.2f} {self._percentile(99.9):.2f}"
        )

    def as_json(self) -> dict[str, Any]:
        messages_per_s = self.iterations * self._trips / self._elapsed_s
        return {
            "size": self.size,
            "iterations": self.iterations,
            "bytes_per_s": round(messages_per_s * self.size),
            "messages_per_s": round(messages_per_s, 1),
            "min_us": round(self._us[0], 3),
            "typical_us": round(statistics.median(self._us), 3),
            "avg_us": round(self.average_us, 3),
            "stdev_us": round(statistics.pstdev(self._us), 3),
            "p99_us": round(self._percentile(99), 3),
            "p999_us": round(self._percentile(99.9), 3),
            "max_us": round(self._us[-1], 3),
        }


def header(plan: Plan, in_gbits: bool) -> str:
    if plan.kind == "bw":
        unit = "Gb" if in_gbits else "MB"
        return (
            f" {'#bytes':10} {'#iterations':14} {f'BW peak[{unit}/sec]':18} "
            f"{f'BW average[{unit}/sec]':20} MsgRate[Mpps]"
        )
    return (
        f" {'#bytes':10} {'#iterations':14} {'t_min[usec]':14} {'t_max[usec]':14} "
        f"{'t_typical[usec]':16} {'t_avg[usec]':14} {'t_stdev[usec]':14} "
        f"{'99% percentile[usec]':21} 99.9% percentile[usec]"
    )
