"""The device: RoCEv2 at one address of this host."""

from __future__ import annotations

import asyncio
import errno
import ipaddress
from collections.abc import Callable
from typing import Any, Self

from livedma._native.port import KINDS, Port
from livedma.errors import LivedmaError
from livedma.rdma.interface import Interface, interface_of, source_for
from livedma.rdma.memory import ProtectionDomain
from livedma.rdma.ports import PortKind, reason, refusal
from livedma.rdma.queues import CompletionQueue


def _interface_of(address: str) -> Interface:
    try:
        return interface_of(address)
    except LookupError as error:
        raise LivedmaError(f"{error}; see `ip address`") from None


class Device(Port):
    """A RoCEv2 device at an address. Its own thread serves it; so do threads that wait.

    spin: seconds for which threads look for packets before they sleep.
    port: how packets come in. "packet" verifies every ICRC in full and needs CAP_NET_RAW; "udp"
    needs nothing and, for IPv4, cannot see all that the ICRC covers; "auto" takes the former if it
    can. `port_kind` and `port_reason` say what it has become.
    """

    def __init__(
        self,
        address: str,
        *,
        spin: float = 50e-6,
        max_qp: int = 16384,
        port: PortKind = "auto",
    ) -> None:
        where = ipaddress.ip_address(address)
        if port not in KINDS:
            raise ValueError(f"no port is called {port!r}: give one of {', '.join(KINDS)}")
        self.interface = _interface_of(address)
        try:
            super().__init__(
                address,
                scope=self.interface.index if where.is_link_local else 0,
                interface=self.interface.index,
                kind=port,
                max_qp=max_qp,
                spin_us=min(round(spin * 1e6), 1_000_000),
            )
        except OSError as error:
            if error.errno == errno.EADDRINUSE:
                raise LivedmaError(
                    f"UDP port 4791 at {address} is in use by another device (see `ss -ulpn`);"
                    " use another address"
                ) from None
            if port == "packet":
                raise refusal(error, address, where.version) from None
            raise
        self.spin = spin
        self._loop: asyncio.AbstractEventLoop | None = None
        self.before_close: list[Callable[[], None]] = []  # for services that use the device

    @classmethod
    def towards(cls, peer: str, **options: Any) -> Self:
        """A device at the address from which packets to the peer go."""
        return cls(source_for(peer), **options)

    @property
    def address(self) -> str:
        return self.source

    @property
    def port_reason(self) -> str:
        """Why port_kind is what it is, and what that means."""
        version = ipaddress.ip_address(self.address).version
        return reason(self.port_kind, version, self.packet_errno)

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
        while self.before_close and not self.closed:
            self.before_close.pop()()
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
