# SPDX-License-Identifier: BSD-2-Clause
"""A region on demand is memory of the program that the device uses without pinning it."""

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
    """Tells a device with a page table of its own what happens to the program's memory.

    The kernel reports what it sees: memory that is emptied (MADV_DONTNEED, MADV_FREE), unmapped or
    moved. The program reports the rest by these calls. Offsets and lengths are in bytes and count
    whole pages.
    """

    def release(self) -> None:
        """Ends the region."""

    def sync_range(self, offset: int, length: int) -> list[tuple[int, int]]:
        """Waits for the device's writes that have begun, and returns what was written since the
        last call.

        The result lists what the device and the program have written, as (offset, length) of whole
        pages within the range. From then on the range is clean until the next write.
        """

    def invalidate_range(self, offset: int, length: int) -> None:
        """Makes the device forget the range. The device asks again before it uses it."""

    def update_range(self, offset: int, length: int) -> None:
        """Tells the device that the program has mapped memory in the range again."""

    def change_protection(self, offset: int, length: int) -> None:
        """Tells the device that the protection of the range has changed. The device finds out how
        at its next access.
        """

    def sync_page(self, offset: int) -> bool:
        """Does sync_range for the page at the offset, and returns whether it was written."""

    def invalidate_page(self, offset: int) -> None: ...
    def update_page(self, offset: int) -> None: ...


_REFUSALS: Final = {
    errno.ENOSYS: "this needs Linux 6.7 with userfaultfd",
    errno.EPERM: "userfaultfd is not permitted here, by a container's seccomp profile perhaps",
    errno.EINVAL: "the kernel cannot watch this memory: it must be mapped, and in whole huge pages "
    "if it has those",
    errno.EACCES: "the kernel may not watch this memory: its file is not open for writing",
    errno.EBUSY: "another userfaultfd of this process watches this memory",
}


def explained(error: OSError, otherwise: str = "; register it pinned") -> Exception:
    """Returns what to raise where the kernel refuses to watch memory."""
    text = _REFUSALS.get(error.errno or 0)
    return error if text is None else LivedmaError(text + otherwise)


class OnDemand(WatchedRegion):
    """Brings pages of memory in when the device needs them. Implements MemoryEvents.

    The program may unmap, move, empty and protect any part of it while peers use it. When a peer
    accesses an absent page, the device asks it to come back (RNR NAK); the device's own requests
    wait. prefetch() avoids both. The device refuses access to what cannot be filled or was
    unmapped.
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
            raise explained(error) from None
        record = ledger.record("on demand", granule=PAGE, reserved=self.length)
        pages = -(-(self.address % PAGE + self.length) // PAGE)
        record.update(mapped=self.length, descriptors=pages, links=1)
        self._forget = weakref.finalize(self, record.remove)

    def close(self) -> None:
        """Takes all rights away at once: peers get an error. Calling it a second time has no
        effect.
        """
        super().close()
        self._forget()

    def release(self) -> None:
        self.close()

    def prefetch(self, offset: int = 0, length: int | None = None, write: bool = True) -> None:
        """Brings pages in before they are needed. With `write`, they are ready for writing, too."""
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
            raise explained(error) from None

    def sync_page(self, offset: int) -> bool:
        return bool(self.sync_range(offset, 1))

    def invalidate_page(self, offset: int) -> None:
        self.invalidate_range(offset, 1)

    def update_page(self, offset: int) -> None:
        self.update_range(offset, 1)
