# SPDX-License-Identifier: BSD-2-Clause
from typing import NamedTuple

_Times = tuple[int, int, int, int, int]

CONNECTIONS_MOST: int

class ConnectionRow(NamedTuple):
    """Holds a struct nfsd_connection_row. Times are (count, sum, p50, p99, longest), in ns."""

    number: int
    is_rdma: bool
    server: bytes
    client: bytes
    client_port: int
    server_qpn: int
    sessions: int
    in_flight: int
    executing: int
    credits_asked: int
    credits_granted: int
    read_bytes: int
    written_bytes: int
    serving_ns: int
    last_credits: int
    contexts_made: int
    receives_failed: int
    calls: _Times
    thread_waits: _Times
    fetches: _Times
    storage: _Times
    send_waits: _Times

class SessionRow(NamedTuple):
    """Holds a struct nfsd_session_row, with the numbers of its connections."""

    id: str
    connections: tuple[int, ...]
    in_flight: int
    read_bytes: int
    written_bytes: int
    times: _Times

class NfsdSession:
    """Runs the programs, loaded and attached from the moment it is made until it is closed.

    An OSError carries one sentence that says what is wrong and what to do.
    """

    def __init__(
        self, *, connections: int, sessions: int, idle_ns: int, verbose: bool = ...
    ) -> None: ...
    def close(self) -> None:
        """Detaches and frees everything. Calling it again has no effect."""
    def missing(self) -> list[tuple[str, str, str]]:
        """Returns (part, target, module) of what this kernel lacks: the part is not seen."""
    def look(
        self,
    ) -> tuple[list[ConnectionRow], list[SessionRow], int, tuple[int, int, int, int]]:
        """Returns (connections, sessions, threads, losses) with the counts since the last look."""
