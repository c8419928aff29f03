# SPDX-License-Identifier: BSD-2-Clause
"""Windows of an engine. Contracts: native/memory/window.h, native/device/in_use.h."""

from collections.abc import Iterable
from typing import Any

from livedma._native.rdma import Engine, ProtectionDomain

class Window:
    """Reserves DMA addresses in one step and backs them with memory in a second one, part by part,
    while peers use the rest through its key.

    The rules are those of Linux's dma_iova_* calls. Every link but the first begins, and every one
    but the last ends, on a granule. Offsets and lengths are in bytes.
    """

    def __init__(
        self,
        engine: Engine,
        size: int,
        granule: int = 4096,
        access: Iterable[str] = (),
        *,
        pd: ProtectionDomain | None = None,
        pad: int = 0,
        guarded: bool = False,
    ) -> None:
        """Reserves `size` bytes of addresses, at no cost of memory.

        access: as for `Region`. pad: where in its granule the first memory will begin. guarded: the
        memory may vanish, as that of a file may. OSError: ENOSPC, no such range is free; EINVAL.
        """
    @property
    def key(self) -> int:
        """Is the key by which queue pairs and peers use it."""
    @property
    def va(self) -> int:
        """Is the DMA address of offset 0."""
    @property
    def size(self) -> int:
        """Counts the bytes of addresses that are reserved."""
    @property
    def granule(self) -> int:
        """Counts the bytes of a granule, the unit in which memory is mapped."""
    @property
    def pad(self) -> int:
        """Counts the bytes of the first granule that lie before offset 0."""
    @property
    def closed(self) -> bool:
        """Tells whether its addresses were given back."""
    @property
    def linked(self) -> int:
        """Counts the bytes that have memory, in whole granules."""
    @property
    def pieces(self) -> int:
        """Counts the runs of memory: links that are neighbours in window and memory are one."""
    def close(self) -> None:
        """Unlinks everything at once, even what is in use, and gives the addresses back. Calling it
        again has no effect.
        """
    def link(self, offset: int, memory: Any, length: int | None = None) -> None:
        """Links memory at the offset: a writable buffer, which is held until it is unlinked, or the
        address of `length` bytes, which must stay until then. It cannot be used before `sync`.

        OSError, with nothing changed: EINVAL, outside of the window; EEXIST, linked already; EIO,
        not on a granule where it has to be. Packets pass between the steps of a long one.
        """
    def sync(self, offset: int, length: int) -> None:
        """Lets the device use what is linked in the range from now on. OSError: ENOENT, the range
        has a hole, and nothing changed; EINVAL.
        """
    def drain(self, offset: int, length: int) -> None:
        """Lets no new message use the range; those that have begun go on, and `users` tells when
        they are done. Errors are those of `sync`.
        """
    def reopen(self, offset: int, length: int) -> None:
        """Undoes `drain`. Errors are those of `sync`."""
    def unlink(self, offset: int, length: int) -> None:
        """Takes the memory out at once, even if it is in use: `drain` first. Errors are those of
        `sync`, and EIO if the range ends within a granule.
        """
    def users(self, offset: int, length: int) -> frozenset[str]:
        """Returns which sides use the range now: "peer" (a WRITE that has begun, a READ whose
        responses are not all out), "host" (a Receive that is posted, a request that has not
        completed).
        """
    def free(self) -> None:
        """Gives the addresses back. OSError (EBUSY) while anything is linked."""
    def destroy(self, length: int) -> None:
        """Unlinks the `length` bytes at the start and gives the addresses back. OSError (EINVAL),
        with nothing changed, unless they are one piece without holes and all that is linked.
        """
