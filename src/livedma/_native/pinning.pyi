# SPDX-License-Identifier: BSD-2-Clause
from typing import Any

PINNED_MAX: int

class Pinned:
    """Pins whole pages until release(). Raises OSError as memory/pin.h says."""

    def __init__(self, address: int, length: int) -> None: ...
    def release(self) -> None:
        """Unpins the pages. Calling it again has no effect."""

def place_of(buffer: Any) -> tuple[int, int]:
    """Returns the address and length of a writable buffer, which the caller has to hold."""

def lock(address: int, length: int) -> None:
    """Locks memory (mlock): it stays in memory, but the kernel may move it. One unlock undoes many
    locks.
    """

def unlock(address: int, length: int) -> None:
    """Unlocks memory. Memory that is no longer mapped is no error."""

def keep_from_children(address: int, length: int) -> None:
    """Lets children of fork have nothing there. One give_to_children undoes many such calls."""

def give_to_children(address: int, length: int) -> None:
    """Undoes keep_from_children. Memory that is no longer mapped is no error."""
