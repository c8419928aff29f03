# SPDX-License-Identifier: BSD-2-Clause
from collections.abc import Sequence
from typing import NamedTuple

from livedma._native.latency import Latency
from livedma._native.port import Port
from livedma._native.rdma import CompletionQueue, QueuePair

_Memory = tuple[int, int, bytearray | memoryview]

class Counters(NamedTuple):
    """Counts what sessions did.

    fills: WRITEs before a session began. errors: operations that failed. wrong: those of them with
    wrong data. repeats: calls that were sent again by another connection. delays: times that the
    server asked to try again later. waited: operations that waited for credits or for a full
    stream.
    """

    reads: int
    writes: int
    read_bytes: int
    written_bytes: int
    fills: int
    filled_bytes: int
    errors: int
    wrong: int
    repeats: int
    delays: int
    waited: int
    waited_ns: int

class Figures(NamedTuple):
    """Holds the figures of all sessions together. latency: since the figures were last taken. lost:
    sessions whose connection broke, until they are resumed or renewed.
    """

    now_ns: int
    began_ns: int
    cpu_ns: int
    counters: Counters
    sessions: int
    filled: int
    running: int
    failed: int
    lost: int
    open: int
    granted: int
    latency: Latency
    statuses: dict[tuple[int, int], int]

class SessionFigures(NamedTuple):
    """Holds the figures of one session. slots: those that are used now. words: the first error, or
    "". gap_ns: its longest time without a reply; pause_ns: that around its moves.
    """

    counters: Counters
    latency: Latency
    began_ns: int
    gap_ns: int
    pause_ns: int
    moves: int
    slots: int
    words: str

FAILED: int
LOST: int

def session_bytes(depth: int, blocks: int) -> int:
    """Returns the bytes of memory that one session takes."""

def buffer_bytes(size: int) -> int:
    """Returns the bytes of data memory that a connection over RDMA needs for each call."""

class Load:
    """Runs sessions that read and write. One thread calls run(); any thread may make all other
    calls.
    """

    def __init__(
        self,
        port: Port | None = None,
        cq: CompletionQueue | None = None,
        *,
        size: int,
        depth: int,
        rw: str,
        sequential: bool = False,
        verify: bool = True,
        interval_ns: int = 0,
        spin: float = 0.0,
    ) -> None: ...
    def add_rdma(
        self,
        qp: QueuePair,
        inline_memory: _Memory,
        data_memory: _Memory,
        *,
        calls: int,
        send_bytes: int,
        receive_bytes: int,
    ) -> int:
        """Adds a connection, posts its Receives at once, and returns its number. Memory: key,
        address for the device, buffer.
        """
    def add_tcp(self, fd: int) -> int:
        """Adds a connection and returns its number. The socket must stay open until close_link or
        close.
        """
    def pair(self, link: int, other: int) -> None:
        """Pairs two connections: if one breaks, its sessions go on by the other."""
    def move_session(self, session: int, link: int) -> None:
        """Lets a session send its calls by that connection, to which it is bound as well, from now
        on.
        """
    def close_link(self, link: int) -> bool:
        """Ends the use of a connection; False: a session or a call still uses it. The caller closes
        its queue pair before its memory.
        """
    def set_active(self, sessions: int) -> None:
        """Makes the first `sessions` sessions active; the others begin no operations until they are
        active again.
        """
    def limit(self, link: int, send_bytes: int) -> None:
        """Limits the SENDs of a connection to the bytes that its peer takes."""
    def add_session(
        self,
        link: int,
        *,
        session_id: bytes,
        sequences: Sequence[int],
        handle: bytes,
        stateid: bytes,
        credential: bytes,
        seed: int,
        file_bytes: int,
    ) -> int:
        """Adds a session and returns its number. sequences: the last used one of each slot.
        credential: the XDR of the credential and the verifier.
        """
    def resume_session(self, session: int, link: int) -> None:
        """Lets a session whose connection broke go on by another one, to which it is bound
        as well.
        """
    def renew_session(
        self,
        session: int,
        link: int,
        *,
        session_id: bytes,
        sequences: Sequence[int],
        handle: bytes,
        stateid: bytes,
        credential: bytes,
    ) -> None:
        """Lets a session whose connection broke go on as a new session, which writes its file anew.
        The arguments are those of add_session.
        """
    def heard_ns(self) -> int:
        """Returns when the last reply to an operation came, by the monotonic clock; 0: none did."""
    def begin(self) -> None:
        """Lets sessions begin as soon as their files are ready."""
    def run(self) -> None:
        """Does the work until end() is called."""
    def stop(self) -> None:
        """Lets no further operation begin."""
    def end(self) -> None:
        """Makes run() return."""
    def close(self) -> None:
        """Ends the load and frees its memory; idempotent. Queue pairs of its connections have to be
        closed before.
        """
    def figures(self) -> Figures:
        """Returns the figures of all sessions, and begins a new interval of latency."""
    def session(self, number: int) -> SessionFigures:
        """Returns the figures of a session."""
    def places(self) -> list[int]:
        """Returns the connection of each session, by the session's number; FAILED; or LOST: its
        connection broke.
        """
    def call(self, link: int, user: int, message: bytes | bytearray | memoryview) -> None:
        """Sends a call of the user's own, which is not the load's, on a connection."""
    def replies(self) -> list[tuple[int, int, bytes]]:
        """Returns the replies that came to such calls: (user, errno or 0, message)."""
    def fileno(self) -> int:
        """Returns a descriptor that is readable when a reply came, a connection broke or the run
        ended.
        """
    def link_error(self, link: int) -> int:
        """Returns the errno of what ended the connection; 0: it works."""
