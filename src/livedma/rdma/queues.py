# SPDX-License-Identifier: BSD-2-Clause
"""Offers completion queues and queue pairs of a device."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, Self

from livedma._native import rdma as native

if TYPE_CHECKING:
    from livedma.rdma.device import Device
    from livedma.rdma.memory import ProtectionDomain


class CompletionQueue(native.CompletionQueue):
    """Holds what queue pairs completed. Its capacity must cover all that may be open at once."""

    def __init__(self, capacity: int, device: Device) -> None:
        super().__init__(capacity, device.engine)
        self.device = device
        self._waiters: list[asyncio.Future[None]] = []

    def wait(
        self, timeout: float | None = None, count: int = 64, spin: float | None = None
    ) -> list[native.Completion]:
        """Returns up to count completions as soon as there is one; none after timeout seconds.

        Serves the device itself for spin seconds (the device's, unless given), then sleeps.
        """
        if self.device.engine.wait(self, timeout, self.device.spin if spin is None else spin):
            return self.poll(count)
        return []

    async def wait_async(self, count: int = 64) -> list[native.Completion]:
        """Returns up to count completions, for asyncio. It waits without a limit."""
        while not (found := self.poll(count)):
            self.device.listen()
            future = asyncio.get_running_loop().create_future()
            self._waiters.append(future)
            try:
                self.arm()
                if found := self.poll(count):
                    break
                await future
            finally:
                if future in self._waiters:
                    self._waiters.remove(future)
        return found

    def wake(self) -> None:
        """Lets each task that waits poll again; the event's arrival calls it."""
        waiters, self._waiters = self._waiters, []
        for future in waiters:
            loop = future.get_loop()
            if not loop.is_closed():
                loop.call_soon_threadsafe(_finish, future)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _finish(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)


class QueuePair(native.QueuePair):
    """Represents one end of a connection, or a sender and receiver of datagrams.

    A piece of memory is (lkey, va, length), for example region[a:b].
    """

    def __init__(
        self,
        pd: ProtectionDomain,
        type: str,  # noqa: A002 - the specification's word
        send_cq: CompletionQueue,
        recv_cq: CompletionQueue,
        **init: Any,
    ) -> None:
        super().__init__(pd.device.engine, type, send_cq, recv_cq, pd=pd, **init)
        self.pd = pd

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
