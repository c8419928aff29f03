# SPDX-License-Identifier: BSD-2-Clause
"""Turns paths into the operations that lead there."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from livedma.nfs.client.codec.handle import lookup, putrootfh
from livedma.nfs.client.operation import Operation

__all__ = ["names_of", "parent_of", "walk"]


def names_of(path: str) -> list[str]:
    """Returns the names on the way from the root. `..` is refused: its meaning would be a guess."""
    names = [name for name in path.split("/") if name not in ("", ".")]
    if ".." in names:
        raise ValueError(f"{path}: a path with .. is not followed")
    return names


def parent_of(path: str) -> tuple[list[str], str]:
    """Returns the directory's names and the last name; `ValueError` if the path has none."""
    names = names_of(path)
    if not names:
        raise ValueError(f"{path!r} names no entry of a directory")
    return names[:-1], names[-1]


def walk(names: Sequence[str]) -> list[Operation[Any]]:
    """Returns the operations from the root to where the names lead."""
    return [putrootfh(), *(lookup(name) for name in names)]
