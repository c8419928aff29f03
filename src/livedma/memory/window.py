# SPDX-License-Identifier: BSD-2-Clause
"""Reserves DMA addresses for the worst case, and maps memory for what is needed now."""

from __future__ import annotations

import errno
import os
import threading
import time
import weakref
from dataclasses import replace
from typing import Any, Self

from livedma._native import window as native
from livedma._native.rdma import Engine, ProtectionDomain
from livedma.errors import NoRoomError
from livedma.memory import leaving, ledger
from livedma.memory.backing import HUGE_PAGE, PAGE, Anonymous, Backing, Huge
from livedma.memory.holes import Holes
from livedma.memory.lease import Lease
from livedma.memory.mapper import Mapper
from livedma.memory.parts import Part, Statistics
from livedma.memory.rounding import up
from livedma.memory.window_pins import WindowPins

PATIENCE_S = 5.0  #: time for users of memory to give it back


class Window(native.Window):
    """Reserves a range of a device's addresses, and maps parts of it: more later, or less.

    Reserving costs no memory. Linked memory can be used once it is synced; extend() does both with
    memory of the window's backing, and shrink() takes parts away again when nothing uses them.
    Peers use the rest meanwhile; where nothing is mapped they get the access error. Any thread may
    make any call.
    """

    def __init__(
        self,
        engine: Engine,
        size: int,
        granule: int = PAGE,
        *access: str,
        pd: ProtectionDomain | None = None,
        mapped: int = 0,
        part: int | None = None,
        backing: Backing | None = None,
        node: int | None = None,
        pad: int = 0,
        pins: WindowPins | None = None,
        tenant: str = "",
    ) -> None:
        """Reserves the range. size: rounded up to granules, unless there is a pad: where in its
        granule link 0 begins.

        access: what peers may do, of remote_read, remote_write, remote_atomic, remote_invalidate.
        mapped: bytes at the start. part: bytes of a step, a quarter of the window if not given.
        node: where memory should come from. pins: keeps that memory in its place, at the tenant's
        charge. Raises NoRoomError if no such range is free; a
        Registrar works buffer by buffer instead.
        """
        if granule < PAGE:
            raise ValueError("a granule is a page or more")
        self.backing = backing or (Huge() if granule >= HUGE_PAGE else Anonymous())
        if self.backing.is_guarded and "remote_atomic" in access:
            raise ValueError("memory that may vanish has no atomics")
        whole = up(pad + size, granule)
        self._device, self._node = engine, node
        self._pins, self._tenant = pins, tenant
        self.pinned = 0  #: bytes of its own parts that stay in their place
        self.part = up(part or -(-whole // 4), granule)
        # Guards this object's own records; never held while memory is made or in use.
        self._changed = threading.Condition()
        self._room = Holes(whole)  # neither linked nor about to be; from the first granule on
        self._parts: list[Part] = []
        self._extends = self._shrinks = self._cut = 0
        self._last_extend_s = 0.0
        rights, guarded = dict.fromkeys(("local_write", *access)), self.backing.is_guarded
        self._record = ledger.record("window", granule, reserved=whole, tenant=tenant)
        weakref.finalize(self, self._record.remove)
        try:
            super().__init__(
                engine, size if pad else whole, granule, rights, pd=pd, pad=pad, guarded=guarded
            )
        except BaseException as error:
            self._end()
            raise _refusal(error, size, granule) from None
        if mapped:
            try:
                self.extend(mapped)
            except BaseException:
                self.close()
                raise

    # The second step, by hand

    def link(self, offset: int, memory: Any, length: int | None = None) -> None:
        """Links memory (a writable buffer, held until it is unlinked; or an address) at the offset.

        It cannot be used before sync().
        """
        size = length if length is not None else memoryview(memory).nbytes
        start, end = self._granules(offset, size)
        is_inside = 0 < size <= self.size and 0 <= offset <= self.size - size
        with self._changed:
            if is_inside and not self._room.claim(start, end - start):
                raise OSError(errno.EEXIST, os.strerror(errno.EEXIST))
        try:
            super().link(offset, memory, length)
        except BaseException:
            if is_inside:
                with self._changed:
                    self._room.give(start, end - start)
            raise
        self._tell()

    def unlink(self, offset: int, length: int) -> None:
        """Takes away at once what was linked by hand, even if it is in use: call drain() first."""
        start, end = self._granules(offset, length)
        with self._changed:
            if any(part.offset < offset + length and offset < part.end for part in self._parts):
                raise ValueError("a part of the window's own memory goes by shrink()")
        super().unlink(offset, length)
        with self._changed:
            self._room.give(start, end - start)
        self._tell()

    def free(self) -> None:
        """Gives the addresses back; EBUSY while anything is mapped."""
        super().free()
        self._end()

    def destroy(self, length: int) -> None:
        """Unlinks the length bytes at the start, which have to be all that is linked, and frees."""
        super().destroy(length)
        self._end()

    def close(self) -> None:
        """Takes everything away at once, even if it is in use."""
        super().close()
        self._end()

    def _end(self) -> None:
        with self._changed:
            parts, self._parts = self._parts, []
            self._changed.notify_all()
        for part in parts:
            part.block.close()
        self.backing.close()
        self._record.remove()

    def _check_open(self) -> None:
        if self.closed:
            raise ValueError("the window is freed")

    def _granules(self, offset: int, length: int) -> tuple[int, int]:
        """Returns the start and the end of the granules that a range takes."""
        start = self.pad + offset
        return start // self.granule * self.granule, up(start + length, self.granule)

    # Growing and shrinking by parts

    @property
    def parts(self) -> tuple[Part, ...]:
        with self._changed:
            return tuple(self._parts)

    def extend(self, length: int | None = None) -> Part:
        """Maps more: a part, or length bytes in whole granules.

        Packets pass meanwhile: the device waits for the tables alone, never for memory. Raises
        NoRoomError if the window is full or there is no memory; then nothing has changed.
        """
        return self._extend(length)

    def _extend(self, length: int | None, *, is_lent_whole: bool = False) -> Part:
        """Maps more, for all that need it: extend(), and leases and pools that have parts of their
        own, as a server's connections do.
        """
        began_s = time.monotonic()
        part = self._map(length, is_lent_whole)
        with self._changed:
            self._extends += 1
            self._last_extend_s = time.monotonic() - began_s
        return part

    def _map(self, length: int | None, is_lent_whole: bool) -> Part:
        if self.pad:
            raise ValueError("a window that begins within a granule is linked by hand")
        self._check_open()
        with self._changed:
            wanted = min(self.part, self._room.largest) if length is None else length
            wanted = up(wanted, self.granule)
            offset = self._room.take(wanted) if wanted > 0 else None
        if offset is None:
            raise NoRoomError(
                f"the window has no {(length or self.part) >> 10} KiB of addresses left in a "
                f"piece: {self.linked >> 10} of {self.size >> 10} KiB are mapped"
            )
        try:
            part = self._backed(offset, wanted, is_lent_whole)
        except BaseException:
            with self._changed:
                self._room.give(offset, wanted)
            raise
        self._tell()
        return part

    def _backed(self, offset: int, length: int, is_lent_whole: bool) -> Part:
        block = self.backing.allocate(offset, length, self.granule, self._node)
        try:
            if self._pins is not None:
                block = replace(block, held=self._pins.hold(block.mapping, self._tenant))
            super().link(offset, block.mapping)
            part = Part(offset, block, is_lent_whole=is_lent_whole)
            leaving.in_steps(self.sync, part, self.granule)
        except BaseException:
            block.close()
            raise
        with self._changed:
            if not self.closed:
                self._parts.append(part)
                self._parts.sort(key=lambda part: part.offset)
        if self.closed:
            block.close()
        self._check_open()
        return part

    def shrink(self, length: int | None = None, timeout: float = PATIENCE_S) -> int:
        """Gives back whole parts, as many as length bytes take (None: one). Returns their bytes.

        The emptiest part goes first; of several, the last. Nothing new is lent of it. When all
        leases are back and what is posted is done, no new message may begin there; when those that
        have begun are done, its memory goes. Raises InUseError if leases, views or posted work are
        still there after timeout seconds; that part stays. A peer that has not ended its message by
        then gets the access error, now or when it goes on: no peer holds memory for ever.
        """
        end_s = time.monotonic() + timeout
        given = 0
        while given < (length or 1):
            with self._changed:
                part = self._emptiest()
                if part is None:
                    break
                part.is_leaving = True
            self._unmap(part, end_s)
            given += part.length
        return given

    def _emptiest(self) -> Part | None:
        leavable = [p for p in self._parts if not p.is_leaving and not p.is_lent_whole]
        return min(leavable, key=lambda p: (p.leased, -p.offset), default=None)

    def _unmap(self, part: Part, end_s: float) -> None:
        """Unmaps a part that is marked as leaving, or lent as a whole."""
        try:
            leaving.await_leases(self, part, self._changed, end_s)
            is_cut = leaving.await_messages(self, part, end_s)
        except BaseException:
            with self._changed:
                part.is_leaving = False
            raise
        leaving.in_steps(super().unlink, part, self.granule)
        with self._changed:
            self._cut += is_cut
            if part in self._parts:  # else it was closed meanwhile
                self._parts.remove(part)
                self._room.give(part.offset, part.length)
            self._shrinks += 1
        part.block.close()
        self._tell()

    # Lending

    def take(self, size: int) -> Lease:
        """Lends size bytes of what is mapped, on a page if they are a page or more.

        Raises NoRoomError if nothing that large is free in a part: extend() the window.
        """
        if size <= 0:
            raise ValueError("a lease has at least one byte")
        with self._changed:
            for part in self._parts:
                offset = part.take(size)
                if offset is not None:
                    return self._lease(part, offset, size)
        raise NoRoomError(f"no part has {size} bytes free in a piece: extend() the window")

    def _lease(self, part: Part, offset: int, size: int) -> Lease:
        def give_back() -> None:
            with self._changed:
                part.give(offset, size)
                self._changed.notify_all()

        start = offset - part.offset
        return Lease(self.key, self.va + offset, size, part.block.mapping, start, give_back)

    def mapper(self, timeout: float = PATIENCE_S) -> Mapper:
        """Returns a source that gives each lease a mapping of its own."""
        return Mapper(self, timeout)

    def _room_for(self, size: int) -> int:
        with self._changed:
            return self._room.pieces(size)

    def _lend_whole(self, size: int, timeout: float) -> Lease:
        part = self._extend(size, is_lent_whole=True)

        def give_back() -> None:
            if not self.closed:
                self._unmap(part, time.monotonic() + timeout)

        va, mapping = self.va + part.offset, part.block.mapping
        return Lease(self.key, va, part.length, mapping, 0, give_back)

    def view(self, offset: int, length: int) -> memoryview:
        """Returns a view of a range within one part; while the view exists, the part stays."""
        with self._changed:
            for part in self._parts:
                if part.offset <= offset <= part.end - length and length >= 0:
                    if part.is_leaving:
                        break
                    start = offset - part.offset
                    return memoryview(part.block.mapping)[start : start + length]
        raise ValueError("a view lies within one part that is mapped and stays")

    def flush(self, offset: int = 0, length: int | None = None) -> None:
        """Flushes a window on a file: what was written to the range is on disk when this returns.

        Without a length, the range is all that is mapped from the offset on.
        """
        end = self.size if length is None else offset + length
        done = 0
        for part in self.parts:
            first, last = max(offset, part.offset), min(end, part.end)
            if first < last:
                self.backing.flush(part.block, first - part.offset, last - first)
                done += last - first
        if length is not None and done < length:
            raise ValueError("not all of the range is mapped")

    def statistics(self) -> Statistics:
        hits, misses = self._device.translations
        with self._changed:
            other = PAGE if self.granule >= HUGE_PAGE else HUGE_PAGE
            return Statistics(
                reserved=self.size,
                mapped=self.linked,
                leased=sum(part.leased for part in self._parts),
                leases=sum(part.leases + part.is_lent_whole for part in self._parts),
                parts=len(self._parts),
                pieces=self.pieces,
                descriptors=self._descriptors(),
                descriptors_otherwise=-(-self.linked // other),
                hits=hits,
                misses=misses,
                extends=self._extends,
                shrinks=self._shrinks,
                cut=self._cut,
                last_extend_s=self._last_extend_s,
            )

    def _descriptors(self) -> int:
        own = sum(part.length for part in self._parts)
        by_hand = max(self.linked - own, 0) // self.granule  # none while a part comes or goes
        return by_hand + sum(part.block.descriptors for part in self._parts)

    def _tell(self) -> None:
        with self._changed:
            self.pinned = sum(part.block.pinned for part in self._parts)
            self._record.update(
                mapped=self.linked,
                descriptors=self._descriptors(),
                links=self.pieces,
                pinned=self.pinned,
            )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _refusal(error: BaseException, size: int, granule: int) -> BaseException:
    if not isinstance(error, OSError):
        return error
    if error.errno == errno.ENOSPC:
        return NoRoomError(
            f"the device has no {size} bytes of DMA addresses in a piece: "
            "close windows, or register buffer by buffer instead (livedma.memory.Registrar)"
        )
    if error.errno == errno.EINVAL:
        return ValueError(f"there is no window of {size} bytes with granules of {granule}")
    return error
