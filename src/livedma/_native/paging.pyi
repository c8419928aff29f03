# SPDX-License-Identifier: BSD-2-Clause
from collections.abc import Iterable
from typing import Any

from livedma._native.rdma import Engine, ProtectionDomain

class Paged:
    """Holds what all regions with a page table have in common. Offsets and lengths are in bytes,
    and count whole pages.
    """

    @property
    def key(self) -> int:
        """Is the key by which queue pairs and peers use it."""
    @property
    def va(self) -> int:
        """Is the DMA address of its first byte."""
    @property
    def length(self) -> int:
        """Counts its bytes."""
    @property
    def closed(self) -> bool:
        """Tells whether `close` was called."""
    def close(self) -> None:
        """Takes the right away: a use of the key gets an error from now on. It does not wait."""

class PagedRegion(Paged):
    """Pages a region of an engine without a wire: its user makes pages present and takes
    them away.
    """

    def __init__(
        self,
        engine: Engine,
        buffer: Any,
        access: Iterable[str] = (),
        *,
        va: int | None = None,
        pd: ProtectionDomain | None = None,
    ) -> None: ...
    @property
    def counters(self) -> dict[str, int]:
        """Counts its faults, fills and invalidations (native/memory/paging.h)."""
    @property
    def present(self) -> int:
        """Counts the pages that the device may read."""
    def resolve(self, filled: int | None = None) -> tuple[int, int, bool] | None:
        """Answers the oldest fault: makes all its pages present, or `filled` of them (0: it fails).

        Returns (page, pages, for writing), or None if there was no fault.
        """
    def invalidate_range(self, offset: int, length: int) -> None:
        """Says that the content is gone, or that the rights have changed: the device has to ask
        again.
        """
    def unmap_range(self, offset: int, length: int) -> None:
        """Says that the mapping is gone: the device does not touch the range until it is
        offered.
        """
    def offer_range(self, offset: int, length: int) -> None:
        """Lets the device ask for the range again after `unmap_range`."""
    def update_range(self, offset: int, length: int, writable: bool = True) -> None:
        """Says that the memory is there: the device may use it at once."""

class WatchedRegion(Paged):
    """Pages a region over memory of this process; the pager keeps it in step with that memory.

    Contracts are in memory/pager.h; its errors are OSError. Any thread may make calls.
    """

    def __init__(
        self,
        engine: Engine,
        buffer: Any,
        access: Iterable[str] = (),
        *,
        va: int | None = None,
        pd: ProtectionDomain | None = None,
    ) -> None: ...
    @property
    def address(self) -> int:
        """Is the address of its memory in this process."""
    @property
    def counters(self) -> dict[str, int]:
        """Counts its faults, fills and invalidations (native/memory/paging.h)."""
    @property
    def present(self) -> int:
        """Counts the pages that the device may read."""
    def prefetch(self, offset: int, length: int, write: bool = True) -> None:
        """Fills the range before it is needed. OSError: a page cannot be filled; those before it
        are.
        """
    def sync_range(self, offset: int, length: int) -> list[tuple[int, int]]:
        """Returns [(offset, length)] of what was written since the last call."""
    def invalidate_range(self, offset: int, length: int) -> None:
        """Takes the range from the device, which asks again when it needs a page."""
    def change_protection(self, offset: int, length: int) -> None:
        """Invalidates the range, so that the device asks again for what is allowed now."""
    def update_range(self, offset: int, length: int) -> None:
        """Lets the range be used again after the program has mapped something new there."""
