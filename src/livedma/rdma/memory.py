# SPDX-License-Identifier: BSD-2-Clause
"""Offers protection domains and memory regions of a device."""

from __future__ import annotations

from collections.abc import Hashable
from typing import TYPE_CHECKING, Any, Literal, Self, overload

from livedma._native import rdma as native
from livedma._native.pinning import place_of
from livedma.memory import Backing, OnDemand, Window, pin
from livedma.memory.numa import node_of
from livedma.memory.window_pins import WindowPins
from livedma.rdma.names import MemoryMode
from livedma.rdma.queues import CompletionQueue, QueuePair

if TYPE_CHECKING:
    from livedma.rdma.device import Device


class _Pieces:
    """Gives all regions their pieces: region[a:b] is a piece of one, to be posted."""

    if TYPE_CHECKING:

        @property
        def key(self) -> int: ...
        @property
        def va(self) -> int: ...
        @property
        def length(self) -> int: ...
        def close(self) -> None: ...

    @property
    def lkey(self) -> int:
        return self.key

    @property
    def rkey(self) -> int:
        """Is the key that a peer needs, besides an address, to use the memory."""
        return self.key

    def __len__(self) -> int:
        return self.length

    def __getitem__(self, part: slice) -> tuple[int, int, int]:
        start, stop, step = part.indices(self.length)
        if step != 1:
            raise ValueError("a piece of memory has no gaps")
        return (self.key, self.va + start, max(stop - start, 0))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class MemoryRegion(_Pieces, native.Region):
    """Pins memory that the device may use, and peers as far as they have rights."""

    def __init__(
        self,
        pd: ProtectionDomain,
        buffer: Any,
        *access: str,
        va: int | None = None,
        tenant: Hashable = None,
    ) -> None:
        self.pd = pd
        with memoryview(buffer) as held:  # holds the buffer until the region does
            self.pin = pin(*place_of(held), tenant)
            try:
                super().__init__(pd.device.engine, buffer, ("local_write", *access), va=va, pd=pd)
            except BaseException:
                self.pin.release()
                raise

    def close(self) -> None:
        """Takes the right away, then unpins the memory. Calling it again has no effect."""
        super().close()
        self.pin.release()

    def __del__(self) -> None:
        # Not close(), as a finalizer may not wait. The pin has a finalizer of its own.
        super().close()


class OnDemandRegion(_Pieces, OnDemand):
    """Registers memory of the program whose pages are mapped when the device needs them; see
    OnDemand."""

    def __init__(
        self, pd: ProtectionDomain, buffer: Any, *access: str, va: int | None = None
    ) -> None:
        super().__init__(pd.device.engine, buffer, ("local_write", *access), va=va, pd=pd)
        self.pd = pd


class ProtectionDomain(native.ProtectionDomain):
    """Joins queue pairs with the memory that they may use. It is closed after all of them."""

    def __init__(self, device: Device) -> None:
        self.device = device

    @overload
    def register(
        self,
        buffer: Any,
        *access: str,
        va: int | None = None,
        mode: Literal["pinned", MemoryMode.PINNED] = MemoryMode.PINNED,
        tenant: Hashable = None,
    ) -> MemoryRegion: ...
    @overload
    def register(
        self,
        buffer: Any,
        *access: str,
        va: int | None = None,
        mode: Literal["on demand", MemoryMode.ON_DEMAND],
    ) -> OnDemandRegion: ...
    def register(
        self,
        buffer: Any,
        *access: str,
        va: int | None = None,
        mode: MemoryMode | Literal["pinned", "on demand"] = MemoryMode.PINNED,
        tenant: Hashable = None,
    ) -> MemoryRegion | OnDemandRegion:
        """Makes a region over any writable buffer (bytearray, mmap, numpy), which it keeps alive.

        access: what peers may do, of `Access`. mode: pinned memory stays in its place, and children
        of fork do not get its whole pages; pages of memory on demand are mapped when they are
        needed (docs/memory.md).
        tenant: is charged for the pinned memory, besides the process. Raises BudgetError and
        LimitError.
        """
        if mode not in list(MemoryMode):
            raise ValueError(f"no region is {mode!r}: give one of {', '.join(MemoryMode)}")
        if mode == MemoryMode.PINNED:
            return MemoryRegion(self, buffer, *access, va=va, tenant=tenant)
        if tenant is not None:
            raise ValueError("a region on demand is not charged, so it has no tenant")
        return OnDemandRegion(self, buffer, *access, va=va)

    def window(
        self,
        size: int,
        *access: str,
        granule: int = 4096,
        mapped: int = 0,
        part: int | None = None,
        backing: Backing | None = None,
        node: int | None = None,
        pins: WindowPins | None = None,
        tenant: str = "",
    ) -> Window:
        """Reserves addresses for size bytes, and maps memory for the first `mapped`; see Window.

        Memory comes from the interface's node, unless another one is given. Raises NoRoomError if
        no range is free: register buffers instead.
        """
        return Window(
            self.device.engine,
            size,
            granule,
            *access,
            pd=self,
            mapped=mapped,
            part=part,
            backing=backing,
            node=node_of(self.device.interface.name) if node is None else node,
            pins=pins,
            tenant=tenant,
        )

    def queue_pair(
        self,
        type: str,  # noqa: A002 - the specification's word
        send_cq: CompletionQueue,
        recv_cq: CompletionQueue | None = None,
        **init: Any,
    ) -> QueuePair:
        """Makes a queue pair of type RC, UC or UD. The two completion queues may be the same.

        init: max_send, max_recv, max_send_sge, max_recv_sge, max_inline, signals_all, srq.
        """
        return QueuePair(self, type, send_cq, recv_cq or send_cq, **init)

    def shared_receives(self, depth: int = 128, max_sge: int = 4) -> native.SharedReceives:
        return native.SharedReceives(self, depth, max_sge, engine=self.device.engine)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
