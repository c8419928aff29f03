"""Sessions and connections as the wire shows them, through BPF: for any server, from outside."""

from __future__ import annotations

import errno
import ipaddress
import socket
import time
from collections.abc import Sequence
from typing import Self

from livedma._native.monitor import MonitorSession
from livedma.errors import LivedmaError
from livedma.monitor.snapshot import Connection, Host, Losses, Session, Snapshot, Times

__all__ = ["Monitor", "MonitorError"]

_NO_HOST = Host(None, None, None)


class MonitorError(LivedmaError):
    """The monitor cannot be loaded or attached, or has no room."""


class Monitor:
    """Follows RPC-over-RDMA on interfaces of this thread's network namespace, from now on.

    interfaces: names, or indexes. One on the way of each connection is enough: with two, packets
    that pass both count as retransmissions. ports: those that servers listen on.

    Connections are found when they are made; `learn` tells of those that were there before. Calls
    without a reply for `patience_s` are given up. Sessions that were idle for `idle_s` are
    forgotten, until they are used again.

    A process that ends leaves nothing behind, however it ends (before Linux 6.6: unless it is
    killed). One thread uses a monitor at a time.
    """

    def __init__(
        self,
        interfaces: Sequence[str | int],
        ports: Sequence[int] = (20049,),
        *,
        connections: int = 128,
        sessions: int = 8192,
        patience_s: float = 30.0,
        idle_s: float = 180.0,
        without_links: bool = False,
        verbose: bool = False,
    ) -> None:
        self._interfaces = tuple(interfaces)
        try:
            self._session = MonitorSession(
                session_type=Session,
                times_type=Times,
                ports=ports,
                connections=connections,
                sessions=sessions,
                patience_ns=round(patience_s * 1e9),
                idle_ns=round(idle_s * 1e9),
                without_links=without_links,
                verbose=verbose,
            )
        except OSError as error:
            raise MonitorError(error.strerror) from error
        self._looked_s = time.monotonic()
        try:
            if self._interfaces:
                self.attach()
        except BaseException:
            self.close()
            raise

    def attach(self) -> None:
        """Attaches again, where somebody detached it or an interface of that name is back."""
        indexes = [self._index(each) for each in self._interfaces]
        try:
            self._session.attach(indexes)
        except OSError as error:
            raise MonitorError(f"{self._names}: {error.strerror}") from error

    def _index(self, interface: str | int) -> int:
        if isinstance(interface, int):
            return interface
        try:
            return socket.if_nametoindex(interface)
        except OSError:
            raise MonitorError(
                f"there is no interface {interface}: 'ip link' lists those that are there"
            ) from None

    def detach(self) -> None:
        """Sees nothing until it is attached again; what it knows it keeps."""
        self._session.detach()

    @property
    def _names(self) -> str:
        return ", ".join(str(each) for each in self._interfaces)

    @property
    def is_attached(self) -> bool:
        """Whether all of it is still where it was attached."""
        return self._session.is_attached

    @property
    def mode(self) -> str | None:
        """How: "tcx", or "clsact", which outlives a process that is killed. None: it is not."""
        return self._session.mode

    def learn(self, server: str, server_qpn: int, client: str, client_qpn: int) -> bool:
        """Follows a connection that is there already; False if it does so anyway."""
        ends = [ipaddress.ip_address(each).packed for each in (server, client)]
        try:
            self._session.learn(ends[0], server_qpn, ends[1], client_qpn)
        except FileExistsError:
            return False
        except OSError as error:
            if error.errno == errno.ENOSPC:
                raise MonitorError("the monitor has no room for another connection") from None
            raise MonitorError(f"a connection cannot be told: {error.strerror}") from error
        return True

    def feed(self, frame: bytes, segment_bytes: int = 0) -> None:
        """Shows a frame to the monitor, as if it passed: of a capture, say."""
        self._session.feed(frame, segment_bytes)

    def snapshot(self) -> Snapshot:
        """What happened since the one before (or since the start)."""
        connections, sessions, losses = self._session.look()
        now_s = time.monotonic()
        interval_s, self._looked_s = now_s - self._looked_s, now_s
        return Snapshot(
            at_s=now_s,
            wall_s=time.time(),
            interval_s=interval_s,
            source="bpf",
            connections=tuple(
                Connection(
                    number=number,
                    server=str(ipaddress.ip_address(server)),
                    server_qpn=server_qpn,
                    client=str(ipaddress.ip_address(client)),
                    client_qpn=client_qpn,
                    sessions=used,
                    operations=times[0],
                    read_bytes=read,
                    written_bytes=written,
                    latency=Times(*times),
                    in_flight=in_flight,
                    credits_asked=asked,
                    credits_granted=granted,
                    rnr_naks=rnr_naks,
                    naks=naks,
                    retransmissions=retransmissions,
                    unanswered=unanswered,
                )
                for (
                    number,
                    server,
                    server_qpn,
                    client,
                    client_qpn,
                    used,
                    read,
                    written,
                    times,
                    in_flight,
                    asked,
                    granted,
                    rnr_naks,
                    naks,
                    retransmissions,
                    unanswered,
                ) in connections
            ),
            sessions=tuple(sessions),
            host=_NO_HOST,
            losses=Losses(*losses),
        )

    def close(self) -> None:
        """Detaches, and frees everything; may be called again."""
        self._session.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
