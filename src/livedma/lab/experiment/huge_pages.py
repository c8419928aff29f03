# SPDX-License-Identifier: BSD-2-Clause
"""Sets huge pages aside for a while."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

__all__ = ["HUGE_BYTES", "reserved"]

HUGE_BYTES = 2 << 20
_DIRECTORY = Path("/sys/kernel/mm/hugepages/hugepages-2048kB")


@contextmanager
def reserved(length_bytes: int) -> Iterator[int]:
    """Tries to make so much free, and yields how much is; at the end it restores the number."""
    total = _DIRECTORY / "nr_hugepages"
    try:
        before, free = int(total.read_text()), _free()
        wanted = max(length_bytes // HUGE_BYTES - free, 0)
        total.write_text(str(before + wanted))
    except OSError:  # no privilege, or no such pages
        yield 0
        return
    try:
        yield _free() * HUGE_BYTES
    finally:
        total.write_text(str(before))


def _free() -> int:
    return int((_DIRECTORY / "free_hugepages").read_text())
