"""Regions on demand: memory of the program that the device uses and nobody pins."""

from __future__ import annotations

import errno
import weakref
from collections.abc import Iterable
from typing import Any, Final, Protocol

from livedma._native.paging import WatchedRegion
from livedma._native.rdma import Engine, ProtectionDomain
from livedma.errors import LivedmaError
from livedma.memory import ledger

PAGE: Final = 4096


class MemoryEvents(Protocol):
    """What a device with a page table of its own has to hear about the program's memory.

    The kernel tells of what it sees: memory that is emptied (MADV_DONTNEED, MADV_FREE), unmapped or
    moved. The rest is said by a call. Offsets and lengths are in bytes and count whole pages.
    """

    def release(self) -> None:
        """The region goes."""

    def sync_range(self, offset: int, length: int) -> list[tuple[int, int]]:
        """The device's writes that have begun are done. What was written since the last call?

        By the device and by the program, as (offset, length) of whole pages within the range.
        From then on the range is clean until somebody writes.
        """

    def invalidate_range(self, offset: int, length: int) -> None:
        """The device forgets the range, and asks again before it uses it."""

    def update_range(self, offset: int, length: int) -> None:
        """The program has mapped memory there, again, for the device to use."""

    def change_protection(self, offset: int, length: int) -> None:
        """What may be done there has changed: the device finds out at its next access."""

    def sync_page(self, offset: int) -> bool:
        """sync_range for the page at the offset: whether it was written."""

    def invalidate_page(self, offset: int) -> None: ...
    def update_page(self, offset: int) -> None: ...


_REFUSALS: Final = {
    errno.ENOSYS: "regions on demand need Linux 6.7 with userfaultfd",
    errno.EPERM: "userfaultfd is not permitted here, by a container's seccomp profile perhaps",
    errno.EINVAL: "the kernel cannot watch this memory: it must be mapped, and in whole huge pages "
    "if it has those",
    errno.EACCES: "the kernel may not watch this memory: its file is not open for writing",
    errno.EBUSY: "another userfaultfd of this process watches this memory",
}


def _explained(error: OSError) -> Exception:
    text = _REFUSALS.get(error.errno or 0)
    return error if text is None else LivedmaError(f"{text}; register it pinned")


class OnDemand(WatchedRegion):
    """Memory whose pages are brought in when the device needs them. Implements MemoryEvents.

    The program may unmap, move, empty and protect any part of it while peers use it. A peer that
    meets an absent page is asked to come back (RNR NAK), the device's own requests wait; what
    cannot be filled, or was unmapped, is refused. prefetch() avoids both.
    """

    def __init__(
        self,
        engine: Engine,
        buffer: Any,
        access: Iterable[str] = (),
        *,
        va: int | None = None,
        pd: ProtectionDomain | None = None,
    ) -> None:
        try:
            super().__init__(engine, buffer, tuple(access), va=va, pd=pd)
        except OSError as error:
            raise _explained(error) from None
        record = ledger.record("on demand", granule=PAGE, reserved=self.length)
        pages = -(-(self.address % PAGE + self.length) // PAGE)
        record.update(mapped=self.length, descriptors=pages, links=1)
        self._forget = weakref.finalize(self, record.remove)

    def close(self) -> None:
        """Takes the right away and waits for nobody: peers get an error. May be called again."""
        super().close()
        self._forget()

    def release(self) -> None:
        self.close()

    def prefetch(self, offset: int = 0, length: int | None = None, write: bool = True) -> None:
        """Brings pages in before they are needed; for writing, unless only reads will come."""
        try:
            super().prefetch(offset, self.length - offset if length is None else length, write)
        except OSError as error:
            raise LivedmaError(
                f"a page of {length} bytes at {offset} cannot be brought in: {error.strerror}"
            ) from None

    def sync_range(self, offset: int, length: int) -> list[tuple[int, int]]:
        try:
            return super().sync_range(offset, length)
        except OSError as error:
            raise LivedmaError(
                f"what was written is in /proc/self/pagemap, which cannot be read: {error.strerror}"
            ) from None

    def update_range(self, offset: int, length: int) -> None:
        try:
            super().update_range(offset, length)
        except OSError as error:
            raise _explained(error) from None

    def sync_page(self, offset: int) -> bool:
        return bool(self.sync_range(offset, 1))

    def invalidate_page(self, offset: int) -> None:
        self.invalidate_range(offset, 1)

    def update_page(self, offset: int) -> None:
        self.update_range(offset, 1)
