# SPDX-License-Identifier: BSD-2-Clause
"""Sees the sessions of the kernel's NFS server from inside it, through BPF on its functions and
tracepoints: over RDMA, also where a NIC's traffic passes no hook, and over TCP.
"""

from __future__ import annotations

import ipaddress
import os
import time
from collections.abc import Sequence
from pathlib import Path

from livedma._native.nfsd import ConnectionRow, NfsdSession, SessionRow
from livedma.errors import PrivilegeError
from livedma.monitor.monitor import MonitorError
from livedma.monitor.nfsd_threads import Threads
from livedma.monitor.snapshot import (
    Connection,
    Host,
    InsideKernel,
    Losses,
    Session,
    Snapshot,
    Times,
)

__all__ = ["NfsdSource"]

_MODULES = Path("/sys/module")
#: What is lost without each part of the programs (bpf/nfsd_programs.c).
_PARTS = {
    "sessions": "sessions are not told apart",
    "reads": "bytes read and the time of reads in storage are not seen",
    "writes": "bytes written and the time of writes in storage are not seen",
    "commits": "the time of commits in storage is not seen",
    "arrivals over TCP": "over TCP, a call's time begins when a thread has it",
    "arrivals over RDMA": "over RDMA, a call's time begins when a thread has it, and calls in "
    "flight are not counted",
    "send queues": "waits for room in send queues are not seen",
    "contexts": "contexts that had to be made for READs and WRITEs are not counted",
    "Receives": "Receives that could not be posted are not counted",
    "fetches": "the time of RDMA READs counts as waiting for a thread",
    "credits asked": "the credits that clients ask for are not known",
}


class NfsdSource:
    """Watches the NFS server of the kernel that this runs on, as a source of snapshots.

    A place is taken for each connection that a call of nfsd comes by, and for each session whose
    SEQUENCE nfsd accepts. Sessions that were idle for `idle_s` are forgotten until they are used.
    """

    name = "nfsd"

    def __init__(
        self,
        *,
        connections: int = 128,
        sessions: int = 4096,
        idle_s: float = 180.0,
        verbose: bool = False,
    ) -> None:
        self._room = connections, sessions
        self._idle_s, self._verbose = idle_s, verbose
        self._session: NfsdSession | None = None
        self._threads = Threads()
        self._looked_s = self._since_s = 0.0
        self._has_tcp = False

    def attach(self) -> None:
        if self._session is not None:
            return
        connections, sessions = self._room
        try:
            self._session = NfsdSession(
                connections=connections,
                sessions=sessions,
                idle_ns=round(self._idle_s * 1e9),
                verbose=self._verbose,
            )
        except PermissionError as error:
            if os.geteuid():
                raise PrivilegeError(error.strerror) from None
            raise MonitorError(error.strerror) from error
        except OSError as error:
            raise MonitorError(error.strerror) from error
        self._looked_s, self._since_s = time.monotonic(), time.time()
        self._threads.look(0)

    @property
    def _opened(self) -> NfsdSession:
        if self._session is None:
            raise ValueError("the source is not attached")
        return self._session

    @property
    def is_attached(self) -> bool:
        """Returns whether it is attached. Only this process can detach its programs."""
        return self._session is not None

    @property
    def where(self) -> str:
        return "the kernel's nfsd"

    def snapshot(self) -> Snapshot:
        connections, sessions, threads, losses = self._opened.look()
        now_s, wall_s = time.monotonic(), time.time()
        interval_s, self._looked_s = now_s - self._looked_s, now_s
        self._has_tcp = any(not one.is_rdma for one in connections)
        serving_ns = sum(one.serving_ns for one in connections)
        kernel = self._threads.look(threads, serving_ns, interval_s)
        return Snapshot(
            at_s=now_s,
            wall_s=wall_s,
            interval_s=interval_s,
            source="nfsd",
            connections=tuple(self._connection(one) for one in connections),
            sessions=tuple(map(_session, sessions)),
            host=Host(None, None, None, kernel=kernel),
            losses=Losses(
                connections=losses[0], sessions=losses[1], calls=losses[2], early=losses[3]
            ),
        )

    def _connection(self, row: ConnectionRow) -> Connection:
        return Connection(
            number=row.number,
            server=_address(row.server),
            server_qpn=row.server_qpn,
            client=_address(row.client),
            client_qpn=0,
            sessions=row.sessions,
            operations=row.calls[0],
            read_bytes=row.read_bytes,
            written_bytes=row.written_bytes,
            latency=Times(*row.calls),
            in_flight=row.in_flight,
            credits_asked=row.credits_asked,
            credits_granted=row.credits_granted,
            rnr_naks=0,
            naks=0,
            retransmissions=0,
            unanswered=0,
            transport="rdma" if row.is_rdma else "tcp",
            client_port=row.client_port or None,
            learnt_s=self._since_s,
            kernel=InsideKernel(
                executing=row.executing,
                serving_ns=row.serving_ns,
                thread_waits=Times(*row.thread_waits),
                storage=Times(*row.storage),
                fetches=Times(*row.fetches),
                send_waits=Times(*row.send_waits),
                last_credits=row.last_credits,
                contexts_made=row.contexts_made,
                receives_failed=row.receives_failed,
            ),
        )

    def unseen(self) -> Sequence[str]:
        missing = self._opened.missing()
        found = [
            f"{_PARTS[part]}: this kernel has no {target} in {module}"
            for part, target, module in missing
            if module != "rpcrdma" or (_MODULES / module).exists()
        ]
        if not (_MODULES / "rpcrdma").exists():
            found.append("NFS over RDMA: the module rpcrdma is not loaded; watch again once it is")
        if self._has_tcp:
            found.append("calls over TCP that no thread has read yet are not counted as in flight")
        return [*found, "what calls wait for at the client, and on their way"]

    def close(self) -> None:
        if self._session is not None:
            self._session.close()
            self._session = None


def _address(packed: bytes) -> str:
    return str(ipaddress.ip_address(packed))


def _session(row: SessionRow) -> Session:
    return Session(
        id=row.id,
        connections=row.connections,
        operations=row.times[0],
        read_bytes=row.read_bytes,
        written_bytes=row.written_bytes,
        latency=Times(*row.times),
        in_flight=row.in_flight,
    )
