# SPDX-License-Identifier: BSD-2-Clause
"""Which BPF links a process holds."""

from __future__ import annotations

import re
from contextlib import suppress
from pathlib import Path

__all__ = ["links_of"]


def links_of(pid: int | str = "self") -> set[int]:
    """Their ids."""
    found = set()
    for file in Path(f"/proc/{pid}/fdinfo").iterdir():
        with suppress(OSError):  # closed meanwhile
            found |= {int(one) for one in re.findall(r"^link_id:\t(\d+)$", file.read_text(), re.M)}
    return found
