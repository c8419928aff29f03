"""The device: RoCEv2 at one address of this host."""

from __future__ import annotations

import asyncio
import errno
import ipaddress
from typing import Self

from livedma._native.port import Port
from livedma.errors import LivedmaError
from livedma.rdma.interface import interface_of, source_for
from livedma.rdma.memory import ProtectionDomain
from livedma.rdma.queues import CompletionQueue


class Device(Port):
    """A RoCEv2 device at an address. Its own thread serves it; so do threads that wait.

    spin: seconds for which threads look for packets before they sleep.
    """

    def __init__(self, address: str, *, spin: float = 50e-6, max_qp: int = 16384) -> None:
        where = ipaddress.ip_address(address)
        try:
            self.interface = interface_of(address)
            scope = self.interface.index if where.is_link_local else 0
            super().__init__(
                address, scope=scope, max_qp=max_qp, spin_us=min(round(spin * 1e6), 1_000_000)
            )
        except LookupError as error:
            raise LivedmaError(f"{error}; see `ip address`") from None
        except OSError as error:
            if error.errno != errno.EADDRINUSE:
                raise
            raise LivedmaError(
                f"UDP port 4791 at {address} is in use by another device (see `ss -ulpn`);"
                " use another address"
            ) from None
        self.spin = spin
        self._loop: asyncio.AbstractEventLoop | None = None

    @classmethod
    def towards(cls, peer: str, **options: float) -> Self:
        """A device at the address from which packets to the peer go."""
        return cls(source_for(peer), **options)  # type: ignore[arg-type]

    @property
    def address(self) -> str:
        return self.source

    @property
    def path_mtu(self) -> int:
        """The largest RDMA MTU of the interface, in bytes."""
        return self.interface.path_mtu

    def protection_domain(self) -> ProtectionDomain:
        return ProtectionDomain(self)

    def completion_queue(self, capacity: int = 1024) -> CompletionQueue:
        return CompletionQueue(capacity, self)

    def listen(self) -> None:
        """Lets the running asyncio loop hear of completion events, unless another one does."""
        loop = asyncio.get_running_loop()
        if self._loop is None or self._loop.is_closed():
            self._loop = loop
            loop.add_reader(self.fileno(), self._dispatch)

    def _dispatch(self) -> None:
        while (queue := self.next_event()) is not None:
            if isinstance(queue, CompletionQueue):
                queue.wake()

    def close(self) -> None:
        """Closes what was made on it, then the device itself. Who waits gets an error."""
        if self._loop is not None and not self._loop.is_closed() and not self.closed:
            self._loop.remove_reader(self.fileno())
            self._loop = None
        queues = [q for q in self.open_queues() if isinstance(q, CompletionQueue)]
        super().close()
        for queue in queues:
            queue.wake()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
