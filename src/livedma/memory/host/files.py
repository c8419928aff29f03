# SPDX-License-Identifier: BSD-2-Clause
"""Reads the small files of /proc and /sys."""

from __future__ import annotations

import os
from pathlib import Path

__all__ = ["Files"]

_LARGEST_BYTES = 1 << 20


class Files:
    """Reads the files of one machine: this one, or a copy of another's below a directory."""

    def __init__(self, root: Path = Path("/")) -> None:
        self.root = root

    def must(self, path: str) -> str:
        """Reads a file. Raises OSError, which says why it cannot be read."""
        with open(self.root / path, "rb") as file:
            return file.read(_LARGEST_BYTES).decode(errors="replace")

    def text(self, path: str) -> str:
        """Reads a file. Empty: there is none, or this process may not read it."""
        try:
            return self.must(path)
        except (OSError, ValueError):  # ValueError: for what cannot be a path
            return ""

    def number(self, path: str) -> int | None:
        text = self.text(path).strip()
        return int(text) if text.isascii() and text.isdecimal() and len(text) <= 20 else None

    def names(self, path: str) -> list[str]:
        try:
            return sorted(os.listdir(self.root / path))
        except OSError:
            return []
