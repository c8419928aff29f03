# SPDX-License-Identifier: BSD-2-Clause
"""Writes figures for people, with three digits and the unit that makes them readable."""

from __future__ import annotations

__all__ = ["change", "duration", "rate", "size"]

_SIZES = ((1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB"))
_RATES = ((1e9, "GB/s"), (1e6, "MB/s"), (1e3, "kB/s"))
_DURATIONS = ((1e9, "s"), (1e6, "ms"), (1e3, "us"))


def size(length: float) -> str:
    return _scaled(length, _SIZES, "bytes")


def rate(bytes_per_s: float) -> str:
    return _scaled(bytes_per_s, _RATES, "B/s")


def duration(ns: float) -> str:
    return _scaled(ns, _DURATIONS, "ns")


def change(before: float, after: float) -> str:
    """Writes a change as +37 %."""
    return f"{100 * (after / before - 1):+.0f} %" if before else "from nothing"


def _scaled(value: float, units: tuple[tuple[float, str], ...], smallest: str) -> str:
    factor, unit = next((one for one in units if abs(value) >= one[0]), (1, smallest))
    scaled = value / factor
    digits = 0 if scaled == round(scaled) or abs(scaled) >= 100 else 1
    return f"{scaled:.{digits}f} {unit}"
