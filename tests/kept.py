# SPDX-License-Identifier: BSD-2-Clause
"""What the kernel says about memory that is kept in its place; and memory to keep there."""

from __future__ import annotations

import ctypes
import functools
import mmap
import os
import resource
import struct
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from needs import needs

PAGE, MIB = mmap.PAGESIZE, 1 << 20
PATIENCE_S = 60.0


@functools.cache
def needs_pins() -> None:
    """Skips where the kernel pins nothing for programs; that it is broken is no reason."""
    libc = ctypes.CDLL(None, use_errno=True)
    ring = libc.syscall(425, 1, ctypes.create_string_buffer(120))  # io_uring_setup
    if ring >= 0:
        os.close(ring)
    needs(ring >= 0, f"io_uring is refused: {os.strerror(ctypes.get_errno())}")


def _number(path: str, name: str) -> int:
    return int(Path(path).read_text().partition(name)[2].split()[0])


def pinned(process: int | str = "self") -> int:
    """Bytes that the process has pinned (VmPin)."""
    return _number(f"/proc/{process}/status", "VmPin:") << 10


def locked(process: int | str = "self") -> int:
    """Bytes that the process has locked (VmLck)."""
    return _number(f"/proc/{process}/status", "VmLck:") << 10


def pins_of_the_host() -> int:
    """Pages that anybody has pinned at this moment."""
    acquired, released = (
        _number("/proc/vmstat", f"nr_foll_pin_{what}") for what in ("acquired", "released")
    )
    return acquired - released


def kept_from_children(start: int, end: int) -> set[int]:
    """The pages of a range that a child of fork would not have ("dc": do not copy)."""
    pages: set[int] = set()
    area = range(0)
    for line in Path("/proc/self/smaps").read_text().splitlines():
        head = line.split(maxsplit=1)[0]
        if "-" in head:
            first, last = (int(part, 16) for part in head.split("-"))
            area = range(max(first, start), min(last, end), PAGE)
        elif head == "VmFlags:" and "dc" in line.split():
            pages.update(area)
    return pages


@contextmanager
def memory(size: int) -> Iterator[int]:
    """The address of fresh memory, in pages of the usual size."""
    with mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS) as area:
        area.madvise(mmap.MADV_NOHUGEPAGE)
        held = ctypes.c_char.from_buffer(area)
        try:
            yield ctypes.addressof(held)
        finally:
            del held


@contextmanager
def long_memory(size: int) -> Iterator[int]:
    """The address of a range that costs 2 MiB, which it maps over and over."""
    libc = ctypes.CDLL(None, use_errno=True)
    libc.mmap.restype = ctypes.c_size_t
    libc.mmap.argtypes = [ctypes.c_size_t] * 6
    piece, everything, fixed = 2 << 20, mmap.PROT_READ | mmap.PROT_WRITE, 0x10
    backing = os.memfd_create("piece")
    os.truncate(backing, piece)
    anonymous = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS
    base = libc.mmap(0, size, 0, anonymous | 0x4000, ctypes.c_size_t(-1).value, 0)
    try:
        for at in range(base, base + size, piece):
            length = min(piece, base + size - at)
            assert libc.mmap(at, length, everything, mmap.MAP_SHARED | fixed, backing, 0) == at
        yield base
    finally:
        libc.munmap(ctypes.c_size_t(base), ctypes.c_size_t(size))
        os.close(backing)


def until(condition: Callable[[], object]) -> None:
    end_s = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < end_s, "it did not happen"
        time.sleep(0.01)


def become_a_user(memlock: int, hard: int | None = None) -> None:
    """Without privilege, under that RLIMIT_MEMLOCK, and alone: the kernel counts by user."""
    resource.setrlimit(resource.RLIMIT_MEMLOCK, (memlock, hard or memlock))
    user = 200_000 + os.getpid()
    os.setgroups([])
    os.setgid(user)
    os.setuid(user)


def forbid_io_uring() -> None:
    """For the rest of this process, by a seccomp filter, as containers do."""
    libc = ctypes.CDLL(None, use_errno=True)
    io_uring_setup, eperm = 425, 1
    program = b"".join(
        struct.pack("HBBI", *line)
        for line in (
            (0x20, 0, 0, 0),  # the number of the call
            (0x15, 0, 1, io_uring_setup),
            (0x06, 0, 0, 0x00050000 | eperm),
            (0x06, 0, 0, 0x7FFF0000),
        )
    )
    held = ctypes.create_string_buffer(program)
    filters = ctypes.create_string_buffer(struct.pack("HxxxxxxQ", 4, ctypes.addressof(held)))
    assert libc.prctl(38, 1, 0, 0, 0) == 0  # no new privileges
    assert libc.prctl(22, 2, filters, 0, 0) == 0, ctypes.get_errno()


def command_for(work: Callable[[], object]) -> list[str]:
    """Calls a function of a test's module in a process of its own."""
    module = Path(work.__code__.co_filename).stem
    code = f"import sys; sys.path[:0] = {sys.path!r}; import {module}; {module}.{work.__name__}()"
    return [sys.executable, "-c", code]


def in_a_process(work: Callable[[], object]) -> str:
    """What it prints; it has to succeed."""
    done = subprocess.run(command_for(work), capture_output=True, text=True, timeout=PATIENCE_S)
    assert done.returncode == 0, done.stderr
    return done.stdout
