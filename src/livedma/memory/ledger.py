# SPDX-License-Identifier: BSD-2-Clause
"""The ledger says what this process has mapped for its devices, in memory that others can read.

Each process that maps memory keeps one memfd, `livedma-ledger`. `livedma mem` finds it through
/proc/PID/fd, so nothing stays behind however the process ends.

An entry carries a checksum instead of a sequence lock. A checksum needs no memory barriers, which
Python does not have, and a reader that finds an entry half written reads it again.
"""

from __future__ import annotations

import fcntl
import mmap
import os
import stat
import struct
import threading
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

__all__ = ["CAPACITY", "KINDS", "Entry", "Reading", "Record", "examine", "read", "record"]

KINDS: Final = ("window", "pinned", "on demand", "flat")
CAPACITY: Final = 1023 - len(KINDS)  #: separate entries; all further ones are summed by kind

_NAME = "livedma-ledger"
_LINK = f"/memfd:{_NAME} (deleted)"
_MAGIC, _VERSION = b"LDMALEDG", 2
_HEADER = struct.Struct("<8sIIII40x")  # magic, version, pid, bytes of an entry, slots
_TENANT_BYTES = 64
_ENTRY = struct.Struct(f"<II7Q{_TENANT_BYTES}s")  # checksum, kind, then as in Entry
_SLOTS = CAPACITY + len(KINDS)  # the first ones hold the sums
_BYTES = _HEADER.size + _SLOTS * _ENTRY.size
_EMPTY = bytes(_ENTRY.size)
_NOTHING = (0,) * 7
_SEALS = fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_SEAL
_LOOKS = 16  # at an entry that may be half written
_SIZE_END = 1 << 57  # beyond all addresses of any processor
_GRANULES = range(12, 31)  # as powers of two


@dataclass(frozen=True)
class Entry:
    """Describes one window or region; or the sum of `count` of them that found no free entry."""

    kind: str
    count: int
    granule: int  #: in bytes; 0 in a sum
    reserved: int  #: bytes of DMA addresses; 0 where none were reserved ahead
    mapped: int  #: bytes that the device can reach
    descriptors: int  #: how many the device needs for them
    links: int  #: pieces of memory that are linked in
    pinned: int = 0  #: of the mapped bytes: those that stay in their place
    tenant: str = ""  #: to whom it is charged; empty: to the process alone, or to several in a sum


@dataclass(frozen=True)
class Reading:
    entries: list[Entry]
    trouble: str = ""  #: what could not be read, in words


class Record:
    """Writes the entry of one window or region. Any thread may update it."""

    def __init__(
        self, ledger: _Ledger, kind: int, granule: int, reserved: int, tenant: str
    ) -> None:
        self._ledger, self._kind = ledger, kind
        self._tenant = tenant.encode(errors="replace")[:_TENANT_BYTES]
        self._values: tuple[int, ...] = (1, granule, reserved, 0, 0, 0, 0)
        self._is_removed = False
        with ledger.lock:
            self._slot = ledger.take_slot()
            ledger.put(kind, self._slot, self._values, _NOTHING, self._tenant)

    def update(
        self,
        *,
        mapped: int | None = None,
        descriptors: int | None = None,
        links: int | None = None,
        reserved: int | None = None,
        pinned: int | None = None,
    ) -> None:
        """Changes the given values. In a child of fork, the parent's ledger stays as it is."""
        with self._ledger.lock:
            if self._is_removed:
                return
            old = self._values
            given = (None, None, reserved, mapped, descriptors, links, pinned)
            new = tuple(o if g is None else g for o, g in zip(old, given, strict=True))
            _check_sizes(new)
            self._values = new
            self._ledger.put(self._kind, self._slot, new, old, self._tenant)

    def remove(self) -> None:
        """Removes the entry. Calling it a second time has no effect."""
        with self._ledger.lock:
            if not self._is_removed:
                self._is_removed = True
                self._ledger.give_back(self._kind, self._slot, self._values)


class _Ledger:
    """Owns the memfd of this process. A forked child closes its parent's and never writes to it."""

    def __init__(self) -> None:
        self.lock = threading.RLock()  # a finalizer may remove a record within any call
        self._map = _new_map()
        self._free = list(range(_SLOTS - 1, len(KINDS) - 1, -1))
        self._sums: list[tuple[int, ...]] = [_NOTHING for _ in KINDS]

    @property
    def is_told(self) -> bool:
        return self._map is not None

    def leave(self) -> None:
        """Closes the map in a child, since it is the parent's, and makes a new lock, since a thread
        that does not exist in the child may hold the old one.
        """
        self.lock = threading.RLock()
        if self._map is not None:
            self._map.close()
            self._map = None

    def take_slot(self) -> int | None:
        """Returns a free slot. None: all are taken, and the entry goes into the sums."""
        return self._free.pop() if self._free else None

    def put(
        self,
        kind: int,
        slot: int | None,
        new: tuple[int, ...],
        old: tuple[int, ...],
        tenant: bytes,
    ) -> None:
        if slot is None:
            self._add_to_sum(kind, new, old)
        else:
            self._write(slot, _packed(kind, new, tenant))

    def give_back(self, kind: int, slot: int | None, values: tuple[int, ...]) -> None:
        if slot is None:
            self._add_to_sum(kind, _NOTHING, values)
        else:
            self._write(slot, _EMPTY)
            self._free.append(slot)

    def _add_to_sum(self, kind: int, new: tuple[int, ...], old: tuple[int, ...]) -> None:
        changed = [s + n - o for s, n, o in zip(self._sums[kind], new, old, strict=True)]
        changed[1] = 0  # granules do not add up
        self._sums[kind] = tuple(changed)
        shown = tuple(min(value, _SIZE_END - 1) for value in changed)
        self._write(kind, _packed(kind, shown) if changed[0] else _EMPTY)

    def _write(self, slot: int, packed: bytes) -> None:
        if self._map is not None:
            begin = _HEADER.size + slot * _ENTRY.size
            self._map[begin : begin + _ENTRY.size] = packed


def _new_map() -> mmap.mmap | None:
    """Makes the memfd and maps it. None: the system refuses; a device works without a ledger."""
    try:
        fd = os.memfd_create(_NAME, os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    except OSError:
        return None
    try:
        os.posix_fallocate(fd, 0, _BYTES)  # fails here: a write without memory would crash
        fcntl.fcntl(fd, fcntl.F_ADD_SEALS, _SEALS)
        made = mmap.mmap(fd, _BYTES)  # keeps a descriptor of its own
    except OSError:
        return None
    finally:
        os.close(fd)
    made[: _HEADER.size] = _HEADER.pack(_MAGIC, _VERSION, os.getpid(), _ENTRY.size, _SLOTS)
    return made


def _packed(kind: int, values: tuple[int, ...], tenant: bytes = b"") -> bytes:
    body = _ENTRY.pack(0, kind + 1, *values, tenant)[4:]
    return zlib.crc32(body).to_bytes(4, "little") + body


def _check_sizes(values: tuple[int, ...]) -> None:
    if not all(0 <= value < _SIZE_END for value in values):
        raise ValueError("a size or count in a ledger is negative or beyond all addresses")


_current: _Ledger | None = None
_current_lock = threading.Lock()


def record(kind: str, granule: int = 4096, reserved: int = 0, tenant: str = "") -> Record:
    """Adds an entry for a window or region. `kind` is one of KINDS, `granule` a power of two."""
    if kind not in KINDS:
        raise ValueError(f"{kind!r} is none of {', '.join(KINDS)}")
    if not _is_granule(granule):
        raise ValueError(f"{granule} is no size of a page")
    _check_sizes((reserved,))
    global _current
    with _current_lock:
        if _current is None or not _current.is_told:
            _current = _Ledger()
        return Record(_current, KINDS.index(kind), granule, reserved, tenant)


def _after_fork_in_child() -> None:
    global _current, _current_lock
    _current_lock = threading.Lock()
    if _current is not None:
        _current.leave()
        _current = None


os.register_at_fork(after_in_child=_after_fork_in_child)


def read(pid: int) -> list[Entry] | None:
    """Returns the entries of a process; None: it has no ledger. See examine()."""
    reading = examine(pid)
    return None if reading is None else reading.entries


def examine(pid: int, proc: Path = Path("/proc")) -> Reading | None:
    """Reads the ledger of a process. The process may be another user's and lie: what makes no sense
    is left out and reported. None: the process has no ledger. Raises PermissionError if this
    process may not look into it, and ProcessLookupError if it has ended.
    """
    try:
        own_pid = _pid_as_it_sees_itself(proc / str(pid) / "status")
        for fd in _ledgers(proc / str(pid) / "fd"):
            try:
                reading = _read(fd, own_pid)
            finally:
                os.close(fd)
            if reading is not None:
                return reading
    except FileNotFoundError:
        raise ProcessLookupError(f"there is no process {pid}") from None
    return None


def _pid_as_it_sees_itself(status: Path) -> int:
    """Returns the process's own number for itself, which differs in a container."""
    text = status.read_text(errors="replace")
    numbers = text.partition("\nNSpid:")[2].partition("\n")[0].split()
    return int(numbers[-1]) if numbers else int(status.parent.name)


def _ledgers(directory: Path) -> Iterator[int]:
    """Opens the process's memfds of that name, and yields their descriptors. Each is verified to be
    a memfd: reading anything else that the process puts in its place might block forever.
    """
    with os.scandir(directory) as entries:
        for entry in entries:
            try:
                if os.readlink(entry) != _LINK:
                    continue
                path_fd = os.open(entry, os.O_PATH | os.O_CLOEXEC)
            except FileNotFoundError:  # the process has closed it
                continue
            try:
                info = os.fstat(path_fd)
                if stat.S_ISREG(info.st_mode) and info.st_dev == _memfd_device():
                    yield os.open(f"/proc/self/fd/{path_fd}", os.O_RDONLY | os.O_CLOEXEC)
            finally:
                os.close(path_fd)


def _memfd_device() -> int:
    """Returns the device of the file system that has all memfds; no process can mount it."""
    fd = os.memfd_create("livedma-probe", os.MFD_CLOEXEC)
    try:
        return os.fstat(fd).st_dev
    finally:
        os.close(fd)


def _read(fd: int, pid: int) -> Reading | None:
    """Reads a ledger. None: it is not the ledger of the process `pid`; a child inherits its
    parent's.
    """
    content = os.pread(fd, _BYTES, 0)
    if len(content) < _HEADER.size:
        return None
    magic, version, owner, entry_bytes, slots = _HEADER.unpack_from(content)
    if magic != _MAGIC or owner != pid:
        return None
    if (version, entry_bytes, slots) != (_VERSION, _ENTRY.size, _SLOTS) or len(content) < _BYTES:
        return Reading([], f"its ledger is of version {version}; this is version {_VERSION}")
    found = [_settled(fd, at, content) for at in range(_HEADER.size, _BYTES, _ENTRY.size)]
    entries = [entry for entry in found if isinstance(entry, Entry)]
    bad = sum(entry is False for entry in found)
    return Reading(entries, f"{bad} entries of its ledger make no sense" if bad else "")


def _settled(fd: int, at: int, content: bytes) -> Entry | bool | None:
    """Returns an entry; None: the slot is empty; False: it makes no sense, even when it is read
    again.
    """
    packed = content[at : at + _ENTRY.size]
    for _ in range(_LOOKS):
        if packed == _EMPTY:
            return None
        if zlib.crc32(packed[4:]) == int.from_bytes(packed[:4], "little"):
            return _unpacked(packed) or False
        packed = os.pread(fd, _ENTRY.size, at)
    return False


def _unpacked(packed: bytes) -> Entry | None:
    _, kind, count, granule, reserved, mapped, descriptors, links, pinned, tenant = _ENTRY.unpack(
        packed
    )
    sizes = reserved, mapped, descriptors, links, pinned
    makes_sense = (
        1 <= kind <= len(KINDS)
        and ((count == 1 and _is_granule(granule)) or (1 <= count < _SIZE_END and granule == 0))
        and all(size < _SIZE_END for size in sizes)
    )
    name = tenant.rstrip(b"\0").decode(errors="replace")
    return Entry(KINDS[kind - 1], count, granule, *sizes, name) if makes_sense else None


def _is_granule(size: int) -> bool:
    return size.bit_count() == 1 and size.bit_length() - 1 in _GRANULES
