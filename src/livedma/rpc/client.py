# SPDX-License-Identifier: BSD-2-Clause
"""Defines the interface between a transport of calls and the client that uses it.

A transport is one connection. Modules that have one offer `async def connect(address, port, ...)`.
It carries any number of calls at once and brings each its own reply, in any order. It repeats no
call: the client decides what to do about a connection that was lost.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from livedma.errors import LivedmaError
from livedma.rpc.names import TransportKind

__all__ = [
    "REPLY_ROOM",
    "Answer",
    "Buffer",
    "CallRefused",
    "ConnectionLost",
    "ConnectionRefusedByServer",
    "RpcError",
    "Transport",
]

Buffer = bytes | bytearray | memoryview

REPLY_ROOM = 4096


class RpcError(LivedmaError):
    """Reports that a call has failed; the subclasses say what that means for the connection."""


class ConnectionLost(RpcError):
    """Reports that the connection is gone, or never was. Whether the call was executed is not
    known, unless it was made when `is_open` was false already: then it was not.
    """


class ConnectionRefusedByServer(RpcError):
    """Reports that a server is there, and refuses this connection; the text says why.

    is_lasting: it will refuse it later, too, as far as it can tell.
    """

    def __init__(self, why: str, *, is_lasting: bool) -> None:
        super().__init__(f"the server refused the connection: {why}")
        self.is_lasting = is_lasting


class CallRefused(RpcError):
    """Reports that the transport could not carry this call or its reply, or the server refused it;
    the connection goes on.
    """


@dataclass(frozen=True, slots=True)
class Answer:
    """Holds a reply.

    message: the reply from the XID on. placed: how many bytes are in `receive_into`; the message
    then lacks them and their padding, but has the word with their length. None: all of the data is
    within the message.
    """

    message: bytes
    placed: int | None = None


class Transport(Protocol):
    """Carries calls on one connection to a server, for one event loop."""

    @property
    def kind(self) -> TransportKind: ...

    @property
    def is_open(self) -> bool:
        """Turns false as soon as the connection is known to be gone."""

    async def call(
        self,
        message: bytes,
        *,
        send_data: Buffer | None = None,
        position: int = 0,
        receive_into: bytearray | memoryview | None = None,
        reply_room: int = REPLY_ROOM,
    ) -> Answer:
        """Makes a call and returns its reply.

        message: a whole call. The transport overwrites its XID with one that no other call in
        flight has.
        send_data: opaque data that the message lacks, together with its padding; it belongs to
        `position`, a multiple of four, behind its length word, which the message has.
        receive_into: where the one item of the reply that may be placed directly should go. A
        transport that cannot place leaves it alone.
        reply_room: the most bytes that the reply has, without what may be placed.

        Raises `ConnectionLost` or `CallRefused`. Once this has ended or was cancelled, the
        transport uses neither buffer any more. It drops the reply to a cancelled call.
        """

    def close(self) -> None:
        """Ends the connection at once; calls in flight raise `ConnectionLost`. Idempotent."""
