"""What a transport of calls and the client that uses it know of each other.

A transport is one connection. Modules that have one offer `async def connect(address, port, ...)`.
It carries any number of calls at once and brings each its own reply, in whatever order they come.
It repeats nothing: what to do about a connection that was lost is for the client to know.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, Protocol

from livedma.errors import LivedmaError

__all__ = [
    "REPLY_ROOM",
    "Answer",
    "Buffer",
    "CallRefused",
    "ConnectionLost",
    "RpcError",
    "Transport",
]

Buffer = bytes | bytearray | memoryview

REPLY_ROOM = 4096


class RpcError(LivedmaError):
    """A call came to nothing; its subclasses say what that means for the connection."""


class ConnectionLost(RpcError):
    """The connection is gone, or never was. Whether the call was executed is not known, unless
    it was made when `is_open` was false already: then it was not.
    """


class CallRefused(RpcError):
    """This call, or its reply, could not be carried or was refused; the connection goes on."""


@dataclass(frozen=True, slots=True)
class Answer:
    """A reply.

    message: from the XID on. placed: how many bytes are in `receive_into`; the message then lacks
    them and their padding, while the word with their length is still there. None: all of the data
    is within the message.
    """

    message: bytes
    placed: int | None = None


class Transport(Protocol):
    """One connection to a server, for one event loop."""

    @property
    def kind(self) -> Literal["tcp", "rdma"]: ...

    @property
    def is_open(self) -> bool:
        """False as soon as the connection is known to be gone."""

    async def call(
        self,
        message: bytes,
        *,
        send_data: Buffer | None = None,
        position: int = 0,
        receive_into: bytearray | memoryview | None = None,
        reply_room: int = REPLY_ROOM,
    ) -> Answer:
        """The reply to a call.

        message: a whole call. Its XID is the transport's: what stands there is overwritten, with
        a value that no other call in flight has.
        send_data: opaque data that the message lacks, together with its padding; it belongs to
        `position`, a multiple of four, behind its length word, which the message has.
        receive_into: where the one item of the reply that may be placed directly should go. A
        transport that cannot place leaves it alone.
        reply_room: bytes that the reply has at most, without what may be placed.

        Raises `ConnectionLost` or `CallRefused`. Once this has ended, also when it was cancelled,
        neither buffer is used any more. The reply to a call that was cancelled is thrown away.
        """

    def close(self) -> None:
        """Ends the connection at once; calls in flight raise `ConnectionLost`. Idempotent."""
