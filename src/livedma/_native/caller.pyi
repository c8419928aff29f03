# SPDX-License-Identifier: BSD-2-Clause
from collections.abc import Iterable
from typing import NamedTuple

from livedma._native.rdma import Completion, QueuePair

_Piece = tuple[int, int, int]

class Ended(NamedTuple):
    user: int
    error: int
    message: bytes | None
    placed: int
    reply_length: int
    xid: int

def receives(calls: int) -> int: ...
def memory_bytes(calls: int, send_bytes: int, receive_bytes: int) -> int: ...

class Caller:
    def __init__(
        self,
        qp: QueuePair,
        memory: tuple[int, int, bytearray | memoryview],
        *,
        calls: int,
        send_bytes: int,
        receive_bytes: int,
    ) -> None: ...
    def prepare(self) -> None: ...
    def limit(self, send_bytes: int) -> None: ...
    def inline_room(
        self, *, read: bool = False, write: bool = False, reply: bool = False
    ) -> int: ...
    def call(
        self,
        user: int,
        message: bytes | bytearray | memoryview,
        *,
        long_message: bytearray | memoryview | None = None,
        message_chunk: _Piece | None = None,
        read: _Piece | None = None,
        position: int = 0,
        write: _Piece | None = None,
        reply: _Piece | None = None,
    ) -> bool: ...
    def complete(self, completions: Iterable[Completion]) -> list[Ended]: ...
    @property
    def error(self) -> int: ...
    @property
    def status(self) -> str: ...
    @property
    def granted(self) -> int: ...
    @property
    def open(self) -> int: ...
    @property
    def counters(self) -> dict[str, int]: ...
