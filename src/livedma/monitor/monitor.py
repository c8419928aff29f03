# SPDX-License-Identifier: BSD-2-Clause
"""Sees sessions and connections on the wire, through BPF: for any server, from outside."""

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
    """Reports that the monitor cannot be loaded or attached, or has no room."""


class Monitor:
    """Follows RPC-over-RDMA on interfaces of this thread's network namespace, from now on.

    `interfaces` are names or indexes. One on the way of each connection is enough: with two,
    packets that pass both count as retransmissions. `ports` are those that servers listen on.

    The monitor finds connections to these ports when they are made. With `learns`, it finds those
    that were made before in their traffic, to whatever port; `learn` tells it of one. It gives up
    calls without a reply for `patience_s`. It forgets sessions that were idle for `idle_s`, until
    they are used again.

    A process that ends leaves nothing behind, however it ends (before Linux 6.6: unless it is
    killed). Only one thread may use a monitor at a time.
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
        learns: bool = True,
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
                learns=learns,
                without_links=without_links,
                verbose=verbose,
            )
        except OSError as error:
            raise MonitorError(error.strerror) from error
        self._looked_s = time.monotonic()
        self._wall_s = time.time() - self._looked_s  # of the monotonic clock's zero
        try:
            if self._interfaces:
                self.attach()
        except BaseException:
            self.close()
            raise

    def attach(self) -> None:
        """Attaches again, where its programs were detached or an interface of that name is back."""
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
        """Stops seeing packets until it is attached again. The monitor keeps what it knows."""
        self._session.detach()

    @property
    def _names(self) -> str:
        return ", ".join(str(each) for each in self._interfaces)

    @property
    def is_attached(self) -> bool:
        """Returns whether all programs are still where they were attached."""
        return self._session.is_attached

    @property
    def mode(self) -> str | None:
        """Returns how it is attached: "tcx", or "clsact", which outlives a process that is killed.
        None: it is not attached.
        """
        return self._session.mode

    def learn(self, server: str, server_qpn: int, client: str, client_qpn: int) -> bool:
        """Follows a connection that exists already. Returns False if the monitor knows it."""
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

    def strangers(self, recent_s: float = 60.0) -> int:
        """Returns how many connections seem to be there that the monitor does not know yet: this
        side has sent RPC-over-RDMA on them within `recent_s`, but no call with its reply has passed
        that would tell both queue pairs.
        """
        return self._session.strangers(round(recent_s * 1e9))

    def feed(self, frame: bytes, segment_bytes: int = 0) -> None:
        """Shows a frame, for example from a capture, to the monitor as if it passed."""
        self._session.feed(frame, segment_bytes)

    def snapshot(self) -> Snapshot:
        """Returns what happened since the snapshot before (or since the start)."""
        connections, sessions, losses = self._session.look()
        now_s, wall_s = time.monotonic(), time.time()
        interval_s, self._looked_s = now_s - self._looked_s, now_s
        return Snapshot(
            at_s=now_s,
            wall_s=wall_s,
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
                    learnt_s=self._wall_s + learnt_ns / 1e9 if learnt_ns else None,
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
                    learnt_ns,
                ) in connections
            ),
            sessions=tuple(sessions),
            host=_NO_HOST,
            losses=Losses(*losses),
        )

    def close(self) -> None:
        """Detaches, and frees everything. Calling it a second time has no effect."""
        self._session.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
