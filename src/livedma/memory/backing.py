# SPDX-License-Identifier: BSD-2-Clause
"""Backings make blocks of memory for the parts of windows: anonymous, in huge pages, of a file."""

from __future__ import annotations

import fcntl
import os
from abc import ABC, abstractmethod
from dataclasses import dataclass
from pathlib import Path

from livedma._native.mapping import Mapping, can_guard
from livedma.errors import LivedmaError, NoRoomError
from livedma.memory.headroom import Gauge
from livedma.memory.window_pins import Held

PAGE = 4096
HUGE_PAGE = 2 << 20

_NAME = "livedma-window"
_SEALS = fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_SEAL
_FREE_HUGE = Path("/sys/kernel/mm/hugepages/hugepages-2048kB/free_hugepages")
_MFD_HUGE_2MB = 21 << 26  # Python has no name for it


@dataclass(frozen=True)
class Block:
    """Holds the memory of one part, all of it populated: no access waits for it."""

    mapping: Mapping
    offset: int  #: in the window that the block was made for
    kind: str  #: "memfd", "hugetlb", "THP", "4 KiB pages" or "file"
    reason: str  #: why it is no better, if it could be
    descriptors: int  #: how many a device needs for its pages
    held: Held | None = None  #: how it is kept in its place; None: nothing keeps it

    @property
    def pinned(self) -> int:
        """Returns how many bytes of it are pinned: all of them, or none."""
        return self.mapping.length if self.held is not None and self.held.how == "pinned" else 0

    def close(self) -> None:
        """Unpins the memory, and gives it back once the last view of it is gone."""
        if self.held is not None:
            self.held.release()
        self.mapping.close()


class Backing(ABC):
    """Supplies a window's memory. It belongs to one window and is closed with it.

    `kind` and `reason` are those of the latest block.
    """

    is_guarded = False  #: the memory may vanish, so the device copies in a way that survives it
    kind = ""
    reason = ""

    def allocate(self, offset: int, length: int, granule: int, node: int | None) -> Block:
        """Makes a block for the window's bytes from `offset` on. Raises NoRoomError if there is no
        memory; then nothing has changed.
        """
        block = self._allocate(offset, length, granule, node)
        self.kind, self.reason = block.kind, block.reason
        return block

    @abstractmethod
    def _allocate(self, offset: int, length: int, granule: int, node: int | None) -> Block: ...

    def flush(self, block: Block, start: int, length: int) -> None:
        """Makes durable what was written to a range of the block."""
        raise ValueError(f"memory ({block.kind}) is never durable: a window on a File is")

    def close(self) -> None:  # noqa: B027 - most have nothing to close
        pass


_gauge = Gauge()


def _check_headroom(length: int) -> None:
    room = _gauge.refusal(length)
    if room is not None:
        raise NoRoomError(
            f"{length >> 10} KiB of memory are wanted and {room.free >> 10} KiB can be had: "
            f"{room.limit} sets the limit; free or allow more"
        )


def _no_memory(length: int, error: OSError) -> NoRoomError:
    return NoRoomError(f"{length >> 10} KiB of memory cannot be had: {error.strerror}")


def _prefer(mapping: Mapping, node: int | None) -> str:
    """Asks for memory of a node. Returns why it may come from another one; empty: it may not."""
    if node is None:
        return ""
    try:
        mapping.prefer_node(node)
    except OSError as error:  # containers often forbid it
        return f"the interface's node {node} could not be asked for: {error.strerror}"
    return ""


def _memfd(length: int, align: int, flags: int = 0) -> Mapping:
    """Maps a new memfd. It is sealed, so no process can cut it short, and its descriptor is closed,
    so no child keeps it alive.
    """
    fd = os.memfd_create(_NAME, os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING | flags)
    try:
        os.truncate(fd, length)
        fcntl.fcntl(fd, fcntl.F_ADD_SEALS, _SEALS)
        return Mapping(length, align, fd=fd)
    finally:
        os.close(fd)


def _populated_memfd(length: int, align: int, node: int | None, flags: int) -> tuple[Mapping, str]:
    mapping = _memfd(length, align, flags)
    reason = _prefer(mapping, node)
    mapping.populate()
    return mapping, reason


class Anonymous(Backing):
    """Backs a window with pages of 4 KiB, in a memfd of its own for each part."""

    def _allocate(self, offset: int, length: int, granule: int, node: int | None) -> Block:
        _check_headroom(length)
        try:
            mapping, reason = _populated_memfd(length, granule, node, 0)
        except OSError as error:
            raise _no_memory(length, error) from None
        return Block(mapping, offset, "memfd", reason, length // PAGE)


class Auto(Backing):
    """Backs a window with transparent pages of 2 MiB where a part is made of such and the system
    has some, else with pages of 4 KiB. It takes none that are set aside.
    """

    def __init__(self) -> None:
        self._small = Anonymous()

    def _allocate(self, offset: int, length: int, granule: int, node: int | None) -> Block:
        if length % HUGE_PAGE:
            return self._small.allocate(offset, length, granule, node)
        _check_headroom(length)
        return _transparent(offset, length, max(granule, HUGE_PAGE), node, "")


class Huge(Backing):
    """Backs a window with pages of 2 MiB that are set aside (hugetlb), else with transparent ones,
    else with pages of 4 KiB.
    """

    def _allocate(self, offset: int, length: int, granule: int, node: int | None) -> Block:
        align = max(granule, HUGE_PAGE)
        try:
            mapping, reason = _populated_memfd(length, align, node, os.MFD_HUGETLB | _MFD_HUGE_2MB)
            return Block(mapping, offset, "hugetlb", reason, length // HUGE_PAGE)
        except OSError as error:
            why = _why_no_hugetlb(length, error)
        _check_headroom(length)
        return _transparent(offset, length, align, node, why)


def _transparent(offset: int, length: int, align: int, node: int | None, why: str) -> Block:
    try:
        mapping = Mapping(length, align)
        reason = _prefer(mapping, node)
        why_small = _want_huge(mapping)
        mapping.populate()
    except OSError as error:
        raise _no_memory(length, error) from None
    return _judged(mapping, offset, "; ".join(filter(None, (why, why_small, reason))))


def _why_no_hugetlb(length: int, error: OSError) -> str:
    try:
        free = int(_FREE_HUGE.read_text())
    except (OSError, ValueError):
        return f"no huge pages are set aside: {error.strerror}"
    if length % HUGE_PAGE:
        return "no huge pages that are set aside: the length is no multiple of 2 MiB"
    needed = length // HUGE_PAGE
    return f"{free} of {needed} huge pages are set aside (sysctl vm.nr_hugepages)"


def _want_huge(mapping: Mapping) -> str:
    try:
        mapping.want_huge()
    except OSError as error:
        return f"no transparent ones: {error.strerror}"
    return ""


def _judged(mapping: Mapping, offset: int, why: str) -> Block:
    """Makes a block that says what the kernel gave when it was asked for transparent huge pages."""
    length, huge = mapping.length, mapping.huge_bytes()
    if huge is None:
        why = f"{why}; Linux before 6.7 does not tell whether it came"
        return Block(mapping, offset, "THP", why, length // HUGE_PAGE)
    descriptors = huge // HUGE_PAGE + (length - huge) // PAGE
    if huge == length:
        return Block(mapping, offset, "THP", why, descriptors)
    less = f"{huge >> 10} of {length >> 10} KiB came in huge pages"
    hint = "transparent_hugepage/enabled, or memory is in small pieces"
    reason = "; ".join(filter(None, (why, f"{less} ({hint})")))
    return Block(mapping, offset, "4 KiB pages", reason, descriptors)


class File(Backing):
    """Backs a window with a file: what a peer writes at an offset of the window is at that offset
    of the file.

    The file is made if it does not exist, grows to what is mapped, and keeps its content when the
    window shrinks. Another process may cut it short: a peer that accesses what is gone gets the
    protocol's access error. (Views in this process are plain memory: touching what is gone ends
    the process, as with any mmap.)
    """

    is_guarded = True

    def __init__(self, path: str | os.PathLike[str], offset: int = 0) -> None:
        if offset % PAGE:
            raise ValueError("a window begins on a page of its file")
        if not can_guard():
            raise LivedmaError(
                "windows on files need process_vm_readv, which is forbidden here: "
                "allow it in the container's seccomp profile"
            )
        self.path, self.offset = Path(path), offset
        try:
            self._fd = _open(self.path)
        except OSError as error:
            raise LivedmaError(f"{path} cannot back a window: {error.strerror}") from None

    def _allocate(self, offset: int, length: int, granule: int, node: int | None) -> Block:
        start = self.offset + offset
        try:
            os.posix_fallocate(self._fd, start, length)  # fails here, not later, on a full disk
            mapping = Mapping(length, granule, fd=self._fd, offset=start)
            reason = _prefer(mapping, node)
            mapping.load()
        except OSError as error:
            raise NoRoomError(
                f"{self.path} cannot grow to {start + length} bytes: {error.strerror}"
            ) from None
        return Block(mapping, offset, "file", reason, length // PAGE)

    def flush(self, block: Block, start: int, length: int) -> None:
        block.mapping.flush(start, length)
        if os.fstat(self._fd).st_size < self.offset + block.offset + start + length:
            raise LivedmaError(f"{self.path} has been cut short: what was behind is lost")

    def close(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1


def _open(path: Path) -> int:
    try:
        return os.open(path, os.O_RDWR | os.O_CLOEXEC)
    except FileNotFoundError:
        fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    directory = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(directory)  # or a crash may lose the file's name after its data was flushed
    finally:
        os.close(directory)
    return fd
