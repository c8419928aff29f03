# SPDX-License-Identifier: BSD-2-Clause
"""Shows what the server itself knows of a connection over TCP, interval by interval."""

from __future__ import annotations

from livedma._native.calls import CallLook
from livedma.monitor.snapshot import Connection, InsideTcp, Times
from livedma.rpc.tcp_connection import TcpConnection

__all__ = ["TcpLook"]


class TcpLook:
    """Looks at one connection. The first interval begins with the connection."""

    def __init__(self) -> None:
        self._look = CallLook()

    def again(self, connection: TcpConnection, sessions: int, name: str) -> Connection:
        """Returns what has happened since the last call. `sessions` counts the sessions that are
        bound to the connection; `name` is the client's, or empty.
        """
        read_bytes, written_bytes, *times = self._look.again(connection.account)
        latency, thread_waits, storage = (Times(*one) for one in times)
        return Connection(
            number=connection.number,
            server=connection.server,
            server_qpn=0,
            client=connection.peer,
            client_qpn=0,
            sessions=sessions,
            operations=latency.count,
            read_bytes=read_bytes,
            written_bytes=written_bytes,
            latency=latency,
            in_flight=connection.in_flight,
            credits_asked=0,
            credits_granted=0,
            rnr_naks=0,
            naks=0,
            retransmissions=0,
            unanswered=0,
            transport="tcp",
            client_port=connection.port,
            client_name=name,
            tcp=InsideTcp(connection.unsent_bytes, thread_waits, storage),
        )
