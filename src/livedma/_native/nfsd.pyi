# SPDX-License-Identifier: BSD-2-Clause
from typing import NamedTuple

_Times = tuple[int, int, int, int, int]

CONNECTIONS_MOST: int

class ConnectionRow(NamedTuple):
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
    id: str
    connections: tuple[int, ...]
    in_flight: int
    read_bytes: int
    written_bytes: int
    times: _Times

class NfsdSession:
    def __init__(
        self, *, connections: int, sessions: int, idle_ns: int, verbose: bool = ...
    ) -> None: ...
    def close(self) -> None: ...
    def missing(self) -> list[tuple[str, str, str]]: ...
    def look(
        self,
    ) -> tuple[list[ConnectionRow], list[SessionRow], int, tuple[int, int, int, int]]: ...
