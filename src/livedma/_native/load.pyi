# SPDX-License-Identifier: BSD-2-Clause
from collections.abc import Sequence
from typing import NamedTuple

from livedma._native.latency import Latency
from livedma._native.port import Port
from livedma._native.rdma import CompletionQueue, QueuePair

_Memory = tuple[int, int, bytearray | memoryview]

class Counters(NamedTuple):
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

def session_bytes(depth: int, blocks: int) -> int: ...
def buffer_bytes(size: int) -> int: ...

class Load:
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
    ) -> int: ...
    def add_tcp(self, fd: int) -> int: ...
    def pair(self, link: int, other: int) -> None: ...
    def move_session(self, session: int, link: int) -> None: ...
    def close_link(self, link: int) -> bool: ...
    def set_active(self, sessions: int) -> None: ...
    def limit(self, link: int, send_bytes: int) -> None: ...
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
    ) -> int: ...
    def resume_session(self, session: int, link: int) -> None: ...
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
    ) -> None: ...
    def heard_ns(self) -> int: ...
    def begin(self) -> None: ...
    def run(self) -> None: ...
    def stop(self) -> None: ...
    def end(self) -> None: ...
    def close(self) -> None: ...
    def figures(self) -> Figures: ...
    def session(self, number: int) -> SessionFigures: ...
    def places(self) -> list[int]: ...
    def call(self, link: int, user: int, message: bytes | bytearray | memoryview) -> None: ...
    def replies(self) -> list[tuple[int, int, bytes]]: ...
    def fileno(self) -> int: ...
    def link_error(self, link: int) -> int: ...
