# SPDX-License-Identifier: BSD-2-Clause
"""Writes values with their units, for people."""

from __future__ import annotations

__all__ = ["UNITS", "Value", "quantity", "times"]

Value = int | float | str | bool | None

#: Units of a column; its name ends in its unit, unless it is a plain number or a word ("").
UNITS = ("", "count", "ns", "us", "s", "bytes", "bytes_per_s", "per_s", "ratio", "share", "lines")

_SCALES = {
    "ns": ((1e9, "s"), (1e6, "ms"), (1e3, "us"), (1, "ns")),
    "us": ((1e6, "s"), (1e3, "ms"), (1, "us")),
    "s": ((1, "s"),),
    "bytes": ((1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB"), (1, "B")),
    "bytes_per_s": ((1e9, "GB/s"), (1e6, "MB/s"), (1e3, "kB/s"), (1, "B/s")),
    "per_s": ((1, "/s"),),
}


def quantity(value: Value, unit: str) -> str:
    """Returns `1.5 ms`, `64 KiB`, `1,024`; a dash if not measured; for lines, their number."""
    if value is None:
        return "-"
    if unit == "lines":
        return str(len(str(value).splitlines()))
    if isinstance(value, str | bool):
        return str(value)
    if unit == "ratio":
        return times(value)
    if unit == "share":
        return f"{_digits(value * 100)} %"
    if unit not in _SCALES:
        return _digits(value)
    size = abs(value)
    scale, name = next(
        # 999.6 KiB would be written as 1,000 KiB
        (pair for pair in _SCALES[unit] if size >= pair[0] * 0.9995),
        _SCALES[unit][-1],
    )
    return f"{_digits(value / scale)} {name}"


def times(ratio: float) -> str:
    """Returns a ratio: `1.04x`, `23x`."""
    return f"{_digits(ratio)}x"


def _digits(value: float) -> str:
    """Returns three significant digits; whole numbers in full."""
    if value == int(value) and abs(value) < 1e15:
        return f"{int(value):,}"
    if abs(value) >= 100:
        return f"{value:,.0f}"
    return f"{value:.3g}"
