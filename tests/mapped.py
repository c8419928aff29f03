# SPDX-License-Identifier: BSD-2-Clause
"""Memory by address, as a C program has it: words for tests that unmap, move and protect it."""

from __future__ import annotations

import ctypes
import mmap
import os
from contextlib import suppress

PAGE = 4096
NONE, READ, WRITE = 0, mmap.PROT_READ, mmap.PROT_WRITE
DONTNEED = mmap.MADV_DONTNEED
_PRIVATE, _FIXED_NOREPLACE = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS, 0x100000
_MAYMOVE = 1

_libc = ctypes.CDLL(None, use_errno=True)
_libc.mmap.restype = _libc.mremap.restype = ctypes.c_void_p


def _checked(result: int | None) -> int:
    if result is None or result in (-1, 2**64 - 1):
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code))
    return result


def map_at(address: int, pages: int) -> int:
    """New memory, at the address or (0) anywhere."""
    flags = _PRIVATE | (_FIXED_NOREPLACE if address else 0)
    return _checked(
        _libc.mmap(
            ctypes.c_void_p(address), ctypes.c_size_t(pages * PAGE), READ | WRITE, flags, -1,
            ctypes.c_long(0),
        )
    )  # fmt: skip


def map_apart(pages: int) -> int:
    """Where the system puts nothing by itself: nobody else gets what is unmapped there."""
    for place in range(1 << 45, 1 << 46, 1 << 40):
        with suppress(FileExistsError):
            return map_at(place, pages)
    raise AssertionError("no place")


def unmap(address: int, pages: int) -> None:
    _checked(_libc.munmap(ctypes.c_void_p(address), ctypes.c_size_t(pages * PAGE)))


def move(address: int, pages: int) -> int:
    """To another place, which it returns."""
    elsewhere = map_at(0, pages)
    size = ctypes.c_size_t(pages * PAGE)
    flags = _MAYMOVE | 2  # over what is mapped there
    return _checked(
        _libc.mremap(ctypes.c_void_p(address), size, size, flags, ctypes.c_void_p(elsewhere))
    )


def protect(address: int, pages: int, protection: int) -> None:
    _checked(_libc.mprotect(ctypes.c_void_p(address), ctypes.c_size_t(pages * PAGE), protection))


def advise(address: int, pages: int, advice: int = DONTNEED) -> None:
    _checked(_libc.madvise(ctypes.c_void_p(address), ctypes.c_size_t(pages * PAGE), advice))


def view(address: int, length: int) -> ctypes.Array[ctypes.c_char]:
    """A buffer that holds nothing: the memory may go under it."""
    return (ctypes.c_char * length).from_address(address)


def get(address: int, length: int) -> bytes:
    return ctypes.string_at(address, length)


def put(address: int, data: bytes) -> None:
    ctypes.memmove(address, data, len(data))
