# SPDX-License-Identifier: BSD-2-Clause
"""Measures the memory of the machine that this process uses."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Self

__all__ = ["Footprint", "available_bytes"]


@dataclass(frozen=True)
class Footprint:
    resident_bytes: int
    pinned_bytes: int  #: cannot be moved (VmPin)
    locked_bytes: int  #: cannot be swapped out (VmLck)
    mappings: int  #: of the kernel

    @classmethod
    def now(cls) -> Self:
        status = dict(re.findall(r"^(\w+):\s+(\d+) kB$", _read("status"), re.MULTILINE))
        resident, pinned, locked = (
            int(status.get(name, 0)) << 10 for name in ("VmRSS", "VmPin", "VmLck")
        )
        return cls(resident, pinned, locked, _read("maps").count("\n"))

    def __sub__(self, before: Footprint) -> Footprint:
        return Footprint(
            self.resident_bytes - before.resident_bytes,
            self.pinned_bytes - before.pinned_bytes,
            self.locked_bytes - before.locked_bytes,
            self.mappings - before.mappings,
        )


def available_bytes() -> int:
    """Returns the machine's memory that is free without taking any from other processes."""
    found = re.search(
        r"^MemAvailable:\s+(\d+) kB$", Path("/proc/meminfo").read_text(), re.MULTILINE
    )
    return int(found[1]) << 10 if found else 0


def _read(name: str) -> str:
    return Path(f"/proc/self/{name}").read_text()
