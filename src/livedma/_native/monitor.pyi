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
    """Holds the loaded programs of a monitor, attached to some interfaces at a time.

    An OSError carries one sentence that says what is wrong and what to do.
    """

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
    def close(self) -> None:
        """Detaches and frees everything. Calling it again has no effect."""
    def attach(self, ifindexes: Sequence[int]) -> None:
        """Attaches to these interfaces, and detaches from all others."""
    def detach(self) -> None:
        """Detaches from all interfaces; the programs stay loaded."""
    @property
    def is_attached(self) -> bool:
        """Tells whether it is attached to an interface."""
    @property
    def mode(self) -> str | None:
        """Names how packets are seen, one of `MODES`; None: not at all."""
    def learn(self, server: bytes, server_qpn: int, client: bytes, client_qpn: int) -> None:
        """Adds a connection, by packed addresses. Raises FileExistsError if it is known."""
    def look(self) -> tuple[list[_Connection], list[_S], _Losses]:
        """Returns (connections, sessions, losses) with the counts since the last look: sessions are
        of `session_type`, the others are tuples as in the stub.
        """
    def strangers(self, recent_ns: int) -> int:
        """Returns how many connections seem to be there that are not known yet."""
    def feed(self, frame: bytes, segment_bytes: int = 0) -> None:
        """Shows a frame to the programs as if it passed lo; segment_bytes: as a train of packets of
        this size.
        """
