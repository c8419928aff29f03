"""Protection domains and memory regions of a device."""

from __future__ import annotations

from collections.abc import Hashable
from typing import TYPE_CHECKING, Any, Literal, Self, get_args, overload

from livedma._native import rdma as native
from livedma._native.pinning import place_of
from livedma.memory import Backing, OnDemand, Window, pin
from livedma.memory.numa import node_of
from livedma.rdma.queues import CompletionQueue, QueuePair

if TYPE_CHECKING:
    from livedma.rdma.device import Device


Mode = Literal["pinned", "on demand"]


class _Pieces:
    """What regions have in common: region[a:b] is a piece of one, for posting."""

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
        """What a peer needs, besides an address, to use the memory."""
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
    """Pinned memory that the device may use, and peers as far as they were given rights."""

    def __init__(
        self,
        pd: ProtectionDomain,
        buffer: Any,
        *access: str,
        va: int | None = None,
        tenant: Hashable = None,
    ) -> None:
        self.pd = pd
        with memoryview(buffer) as held:  # until the region holds it
            self.pin = pin(*place_of(held), tenant)
            try:
                super().__init__(pd.device, buffer, ("local_write", *access), va=va, pd=pd)
            except BaseException:
                self.pin.release()
                raise

    def close(self) -> None:
        """Takes the right away, then lets the memory go; may be called again."""
        super().close()
        self.pin.release()

    def __del__(self) -> None:
        # What nobody closed: not with close(), since finalizers may not wait. The pin has its own.
        super().close()


class OnDemandRegion(_Pieces, OnDemand):
    """Memory of the program whose pages come when the device needs them; see OnDemand."""

    def __init__(
        self, pd: ProtectionDomain, buffer: Any, *access: str, va: int | None = None
    ) -> None:
        super().__init__(pd.device, buffer, ("local_write", *access), va=va, pd=pd)
        self.pd = pd


class ProtectionDomain(native.ProtectionDomain):
    """Queue pairs and the memory that they may use; closed after all of them."""

    def __init__(self, device: Device) -> None:
        self.device = device

    @overload
    def register(
        self,
        buffer: Any,
        *access: str,
        va: int | None = None,
        mode: Literal["pinned"] = "pinned",
        tenant: Hashable = None,
    ) -> MemoryRegion: ...
    @overload
    def register(
        self, buffer: Any, *access: str, va: int | None = None, mode: Literal["on demand"]
    ) -> OnDemandRegion: ...
    def register(
        self,
        buffer: Any,
        *access: str,
        va: int | None = None,
        mode: Mode = "pinned",
        tenant: Hashable = None,
    ) -> MemoryRegion | OnDemandRegion:
        """A region over any writable buffer (bytearray, mmap, numpy), which it keeps.

        access: what peers may do, of remote_read, remote_write, remote_atomic, remote_invalidate.
        mode: pinned memory stays in its place; children of fork do not have its whole pages. Of
        memory on demand nothing stays: its pages come when they are needed (docs/memory.md).
        tenant: who is charged for what is pinned, besides the process. Raises BudgetError and
        LimitError.
        """
        if mode not in get_args(Mode):
            raise ValueError(f"no region is {mode!r}: give one of {', '.join(get_args(Mode))}")
        if mode == "pinned":
            return MemoryRegion(self, buffer, *access, va=va, tenant=tenant)
        if tenant is not None:
            raise ValueError("a region on demand is charged to nobody: it has no tenant")
        return OnDemandRegion(self, buffer, *access, va=va)

    def window(
        self,
        size: int,
        *access: str,
        granule: int = 4096,
        mapped: int = 0,
        part: int | None = None,
        backing: Backing | None = None,
    ) -> Window:
        """Addresses for size bytes, and memory for the first `mapped` of them; see Window.

        Memory comes from the interface's node. NoRoomError: refused; register buffers instead.
        """
        return Window(
            self.device,
            size,
            granule,
            *access,
            pd=self,
            mapped=mapped,
            part=part,
            backing=backing,
            node=node_of(self.device.interface.name),
        )

    def queue_pair(
        self,
        type: str,  # noqa: A002 - the specification's word
        send_cq: CompletionQueue,
        recv_cq: CompletionQueue | None = None,
        **init: Any,
    ) -> QueuePair:
        """RC, UC or UD; both queues may be one.

        init: max_send, max_recv, max_send_sge, max_recv_sge, max_inline, signals_all, srq.
        """
        return QueuePair(self, type, send_cq, recv_cq or send_cq, **init)

    def shared_receives(self, depth: int = 128, max_sge: int = 4) -> native.SharedReceives:
        return native.SharedReceives(self, depth, max_sge, engine=self.device)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
