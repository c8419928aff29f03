# SPDX-License-Identifier: BSD-2-Clause
from collections.abc import Sequence
from typing import Generic, TypeVar

_S = TypeVar("_S")

PORTS_MOST: int
CONNECTIONS_MOST: int
SESSIONS_MOST: int
INTERFACES_MOST: int
MODES: tuple[str | None, ...]

#: count, sum_ns, p50_ns, p99_ns, max_ns
_Times = tuple[int, int, int, int, int]
#: number, server, its QPN, client, its QPN, sessions, bytes read, written, times, in flight,
#: credits asked, granted, RNR NAKs, NAKs, retransmissions, unanswered, since when it is known by
#: the monotonic clock (0: from its beginning)
_Connection = tuple[
    int, bytes, int, bytes, int, int, int, int, _Times, int, int, int, int, int, int, int, int
]
#: connections, sessions, calls, replies, unreadable, early
_Losses = tuple[int, int, int, int, int, int]

class MonitorSession(Generic[_S]):
    def __init__(
        self,
        *,
        session_type: type[_S],
        times_type: type[object],
        ports: Sequence[int],
        connections: int,
        sessions: int,
        patience_ns: int,
        idle_ns: int,
        learns: bool,
        without_links: bool = False,
        verbose: bool = False,
    ) -> None: ...
    def close(self) -> None: ...
    def attach(self, ifindexes: Sequence[int]) -> None: ...
    def detach(self) -> None: ...
    @property
    def is_attached(self) -> bool: ...
    @property
    def mode(self) -> str | None: ...
    def learn(self, server: bytes, server_qpn: int, client: bytes, client_qpn: int) -> None: ...
    def look(self) -> tuple[list[_Connection], list[_S], _Losses]: ...
    def strangers(self, recent_ns: int) -> int: ...
    def feed(self, frame: bytes, segment_bytes: int = 0) -> None: ...
