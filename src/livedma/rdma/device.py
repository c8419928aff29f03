# SPDX-License-Identifier: BSD-2-Clause
"""Opens a RoCEv2 device at one address of this host."""

from __future__ import annotations

import asyncio
import errno
import ipaddress
import weakref
from collections.abc import Callable
from contextlib import ExitStack, suppress
from typing import TYPE_CHECKING, Any, Self

from livedma._native.port import KINDS, Port
from livedma.errors import LivedmaError, PortInUseError, PrivilegeError
from livedma.privilege import as_root
from livedma.rdma.interface import Interface, interface_of, sources
from livedma.rdma.memory import ProtectionDomain
from livedma.rdma.names import PortKind
from livedma.rdma.ports import in_use, reason, refusal
from livedma.rdma.queues import CompletionQueue

if TYPE_CHECKING:
    from livedma.rdma.sharing import Place


def _interface_of(address: str) -> Interface:
    try:
        return interface_of(address)
    except LookupError as error:
        raise LivedmaError(f"{error}; see `ip address`") from None


class Device:
    """Speaks RoCEv2 at an address. Its own thread serves it, and so does a thread that waits.

    spin: the most seconds for which a thread looks for packets before it sleeps.
    port: how packets come in. "packet" verifies every ICRC in full and needs CAP_NET_RAW; "udp"
    needs no privilege and, for IPv4, cannot see all that the ICRC covers; "auto" is "packet" where
    that is possible. `port_kind` and `port_reason` say which it is.
    share: several processes may have devices at the address, each in its `slot`. None shares if
    that is permitted; if not, `share_reason` says why.
    `engine` is the native device behind its socket, on which windows and regions are made.
    """

    def __init__(
        self,
        address: str,
        *,
        spin: float = 200e-6,
        max_qp: int = 16384,
        port: PortKind | str = PortKind.AUTO,
        share: bool | None = None,
    ) -> None:
        if port not in KINDS:
            raise ValueError(f"no port is called {port!r}: give one of {', '.join(KINDS)}")
        self.interface = _interface_of(address)
        self.share_reason = "" if share is not False else "it was not asked for"
        self._place: Place | None = None
        scope = self.interface.index if ipaddress.ip_address(address).is_link_local else 0
        with ExitStack() as stack:
            try:
                if share is not False:
                    self._place = self._join(stack, address, scope, must=bool(share))
                self.engine = Port(
                    address,
                    scope=scope,
                    interface=self.interface.index,
                    kind=PortKind(port).value,
                    max_qp=max_qp,
                    spin_us=min(round(spin * 1e6), 1_000_000),
                    share=None if self._place is None else self._place.session.capsule(),
                )
            except OSError as error:
                raise self._explained(error, address, port) from None
        if self._place is not None:
            self._leave = weakref.finalize(self, self._place.leave)
        self.spin = spin
        self._loop: asyncio.AbstractEventLoop | None = None
        self.before_close: list[Callable[[], None]] = []  # for services that use the device

    def _join(self, stack: ExitStack, address: str, scope: int, *, must: bool) -> Place | None:
        try:
            # The extensions that it imports need libbpf; all else works without it.
            from livedma.rdma.sharing import joining

            return stack.enter_context(joining(address, self.interface.index, scope))
        except ImportError as error:
            problem = LivedmaError(f"libbpf is missing ({error}): {as_root('apt install libbpf1')}")
        except PermissionError as error:
            problem = PrivilegeError(f"what processes share is in the BPF file system: {error}")
        except LivedmaError as error:
            problem = error
        if must:
            raise problem
        self.share_reason = str(problem)
        return None

    def _explained(self, error: OSError, address: str, port: str) -> Exception:
        if error.errno == errno.EADDRINUSE:
            return in_use(address, self.share_reason)
        if error.errno == errno.EUSERS:
            return LivedmaError(f"{address} has as many processes as can share it: use another")
        if port == PortKind.PACKET:
            return refusal(error, address, ipaddress.ip_address(address).version)
        return error

    @classmethod
    def towards(cls, peer: str, **options: Any) -> Self:
        """Makes a device at the address that packets to the peer come from.

        For a peer on this host it may be another address, of the loopback interface.
        """
        *others, last = sources(peer)
        for source in others:
            with suppress(LivedmaError):  # this one may be taken
                return cls(source, **options)
        return cls(last, **options)

    @property
    def address(self) -> str:
        return self.engine.source

    @property
    def slot(self) -> int:
        """Is its number among the devices that share the address; 0 if it shares with none."""
        return self.engine.slot

    @property
    def is_shared(self) -> bool:
        return self.engine.is_shared

    @property
    def port_kind(self) -> PortKind:
        """Tells how packets come in: PortKind.UDP or PACKET."""
        return PortKind(self.engine.port_kind)

    @property
    def port_reason(self) -> str:
        """Says in a sentence why port_kind is what it is, and what that means."""
        version = ipaddress.ip_address(self.address).version
        return reason(self.port_kind, version, self.engine.packet_errno)

    @property
    def path_mtu(self) -> int:
        """Is the largest RDMA MTU of the interface, in bytes."""
        return self.interface.path_mtu

    @property
    def counters(self) -> dict[str, int]:
        """Has the device's counters, of all queue pairs together (native/device/counters.def)."""
        return self.engine.counters

    @property
    def port_counters(self) -> dict[str, int]:
        """Counters of its socket and its thread: trains, sleeps, the time it was busy, ..."""
        return self.engine.port_counters

    @property
    def closed(self) -> bool:
        """Tells whether it is closed, or about to be."""
        return self.engine.closed

    def protection_domain(self) -> ProtectionDomain:
        return ProtectionDomain(self)

    def completion_queue(self, capacity: int = 1024) -> CompletionQueue:
        return CompletionQueue(capacity, self)

    def claim_port(self, port: int, space: str = "TCP") -> None:
        """Gives this process, of all at the address, the requests to the port.

        space: TCP for connections, UDP for datagram services. Raises PortInUseError.
        """
        if self._place is None:
            return
        try:
            self._place.claim(port, space)
        except OSError as error:
            if error.errno != errno.EADDRINUSE:
                raise
            kind = "RDMA port" if space == "TCP" else "RDMA port for datagrams"
            raise PortInUseError(
                f"another process at {self.address} listens on {kind} {port}"
            ) from None

    def release_port(self, port: int, space: str = "TCP") -> None:
        """Gives a claim back. A device that closes gives back all its claims."""
        if self._place is not None and not self.closed:
            self._place.release(port, space)

    def listen(self) -> None:
        """Lets the running asyncio loop take completion events, unless another open loop does."""
        loop = asyncio.get_running_loop()
        if self._loop is None or self._loop.is_closed():
            self._loop = loop
            loop.add_reader(self.engine.fileno(), self._dispatch)

    def _dispatch(self) -> None:
        while (queue := self.engine.next_event()) is not None:
            if isinstance(queue, CompletionQueue):
                queue.wake()

    def close(self) -> None:
        """Closes what was made on it, then the device itself. Calls that wait get an error."""
        while self.before_close and not self.closed:
            self.before_close.pop()()
        if self._loop is not None and not self._loop.is_closed() and not self.closed:
            self._loop.remove_reader(self.engine.fileno())
            self._loop = None
        queues = [q for q in self.engine.open_queues() if isinstance(q, CompletionQueue)]
        self.engine.close()
        if self._place is not None:
            self._leave()
        for queue in queues:
            queue.wake()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
