# SPDX-License-Identifier: BSD-2-Clause
"""Tells in which physical frames this process's memory is, and takes memory in a chosen order."""

from __future__ import annotations

import ctypes
import itertools
import mmap
import os
from array import array
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from livedma.lab.experiment.design import LeftOut

__all__ = ["PAGE", "Memory", "frames", "interleaved", "pieces", "scattered"]

PAGE = mmap.PAGESIZE

_HUGE = 2 << 20
_PRESENT, _FRAME = 1 << 63, (1 << 55) - 1
_MADV_NOHUGEPAGE = 15
_libc = ctypes.CDLL(None, use_errno=True)


class Memory:
    """Holds private memory from a multiple of 2 MiB on, in pages of 4 KiB that come when they are
    touched.
    """

    def __init__(self, pages: int) -> None:
        self.pages, self.length = pages, pages * PAGE
        self._mapping = mmap.mmap(
            -1, self.length + _HUGE, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS
        )
        start = ctypes.addressof(ctypes.c_char.from_buffer(self._mapping))
        self.address = -(-start // _HUGE) * _HUGE
        self.advise(_MADV_NOHUGEPAGE)

    def touch(self, page: int, byte: int = 1) -> None:
        """Fills a page, so that it has a frame."""
        ctypes.memset(self.address + page * PAGE, byte, PAGE)

    def is_as_touched(self, page: int) -> bool:
        """Returns whether a page of interleaved() still has its content."""
        return ctypes.string_at(self.address + page * PAGE, PAGE) == bytes([_byte(page)]) * PAGE

    def advise(self, advice: int, first: int = 0, pages: int | None = None) -> None:
        """Calls madvise. Raises OSError."""
        length = (self.pages - first if pages is None else pages) * PAGE
        self._call(_libc.madvise, self.address + first * PAGE, length, advice)

    def lock(self) -> None:
        """Calls mlock. Raises OSError."""
        self._call(_libc.mlock, self.address, self.length)

    def frames(self) -> array[int]:
        return frames(self.address, self.pages)

    def _call(self, function: object, address: int, length: int, *rest: int) -> None:
        if function(ctypes.c_void_p(address), ctypes.c_size_t(length), *rest):  # type: ignore[operator]
            number = ctypes.get_errno()
            raise OSError(number, os.strerror(number))


def frames(address: int, pages: int) -> array[int]:
    """Returns the number of each page's frame; 0: the page is not there. Raises LeftOut without the
    privilege to see them.
    """
    found = array("Q")
    with open("/proc/self/pagemap", "rb", buffering=0) as pagemap:
        found.frombytes(os.pread(pagemap.fileno(), 8 * pages, address // PAGE * 8))
    numbers = array("Q", (entry & _FRAME if entry & _PRESENT else 0 for entry in found))
    if any(entry & _PRESENT for entry in found) and not any(numbers):
        raise LeftOut("physical frames are shown to root alone")
    return numbers


def pieces(numbers: Sequence[int]) -> int:
    """Returns how many runs of neighbouring frames there are, in either direction."""
    return 1 + sum(abs(one - two) != 1 for one, two in itertools.pairwise(numbers))


def interleaved(memories: Sequence[Memory], order: Sequence[int]) -> None:
    """Touches a page of each in turn: `order` has each one's place as often as it takes part in a
    round. So all lie among each other in physical memory.
    """
    rounds = memories[0].pages
    reached = [0] * len(memories)
    for _ in range(rounds):
        for place in order:
            if reached[place] < memories[place].pages:
                memories[place].touch(reached[place], _byte(reached[place]))
                reached[place] += 1


def _byte(page: int) -> int:
    return page % 251 + 1


@contextmanager
def scattered(length_bytes: int) -> Iterator[None]:
    """Leaves as much free memory in single pages: takes twice as much and gives every second page
    back. The kernel takes such pages first when it needs single ones.
    """
    memory = Memory(2 * length_bytes // PAGE)
    for page in range(memory.pages):
        memory.touch(page)
    for page in range(0, memory.pages, 2):
        memory.advise(mmap.MADV_DONTNEED, page, 1)
    yield
    del memory
