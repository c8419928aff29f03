# SPDX-License-Identifier: BSD-2-Clause
from collections.abc import Iterable
from typing import NamedTuple

from livedma._native.rdma import Completion, QueuePair

_Piece = tuple[int, int, int]

class Ended(NamedTuple):
    """Says how a call ended. error: 0 or an errno; message: None if it is in the reply chunk."""

    user: int
    error: int
    message: bytes | None
    placed: int
    reply_length: int
    xid: int

def receives(calls: int) -> int:
    """Returns how many Receives the queue pair of a caller has to hold."""

def memory_bytes(calls: int, send_bytes: int, receive_bytes: int) -> int:
    """Returns how many bytes of memory a caller needs."""

class Caller:
    """Sends calls and takes their replies. One thread at a time uses it. A piece of memory is (key,
    va, length).
    """

    def __init__(
        self,
        qp: QueuePair,
        memory: tuple[int, int, bytearray | memoryview],
        *,
        calls: int,
        send_bytes: int,
        receive_bytes: int,
    ) -> None: ...
    def prepare(self) -> None:
        """Posts the Receives. It is called once, before the peer may send."""
    def limit(self, send_bytes: int) -> None:
        """Limits SENDs to the bytes that the peer takes."""
    def inline_room(self, *, read: bool = False, write: bool = False, reply: bool = False) -> int:
        """Returns the most bytes of a message that can be sent inline, if the call has such
        chunks.
        """
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
    ) -> bool:
        """Sends a call, whose XID it overwrites. False: there is no room for it now. long_message:
        the memory that message_chunk describes, with a message that is too long to be sent inline.
        """
    def complete(self, completions: Iterable[Completion]) -> list[Ended]:
        """Returns the calls that these completions of the queue pair ended. All calls end if the
        connection broke; `error` tells that.
        """
    @property
    def error(self) -> int:
        """Is the errno of what broke the connection; 0: it works."""
    @property
    def status(self) -> str:
        """Names the status of the completion that reported a lost connection."""
    @property
    def granted(self) -> int:
        """Counts the calls that the peer allows at once."""
    @property
    def open(self) -> int:
        """Counts the calls that wait for their replies."""
    @property
    def counters(self) -> dict[str, int]:
        """Counts what the caller did. peak: the most calls that were open at once."""
