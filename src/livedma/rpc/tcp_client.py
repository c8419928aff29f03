# SPDX-License-Identifier: BSD-2-Clause
"""Makes calls over TCP: calls are pipelined, replies come in any order.

A server can do no worse than fail: a record that answers no open call is counted and dropped, and a
stream that breaks the rules of record marking ends the connection.
"""

from __future__ import annotations

import asyncio
import random
import socket
from typing import cast

from livedma.errors import reason
from livedma.rpc.client import REPLY_ROOM, Answer, Buffer, CallRefused, ConnectionLost
from livedma.rpc.names import TransportKind
from livedma.rpc.record import FRAGMENT_MOST, RecordError, RecordSplitter
from livedma.rpc.xdr import WORD_BYTES
from livedma.wire.rpc import REPLY

__all__ = ["TcpTransport", "connect"]

RECORD_MOST = (4 << 20) + 4096  # a reply to a READ of 4 MiB

_LAST_FRAGMENT = 0x80000000
_SHORTEST_REPLY = 2 * WORD_BYTES  # the XID and the message type


async def connect(
    address: str,
    port: int,
    *,
    timeout_s: float = 10.0,
    record_bytes: int = RECORD_MOST,
) -> TcpTransport:
    """Connects to a server. Raises `ConnectionLost` if the connection cannot be made in time.

    record_bytes: the longest reply that is accepted.
    """
    loop = asyncio.get_running_loop()
    try:
        async with asyncio.timeout(timeout_s):
            _, made = await loop.create_connection(
                lambda: TcpTransport(record_bytes), address, port
            )
    except TimeoutError:
        raise ConnectionLost(f"{address} port {port} did not answer in {timeout_s:g} s") from None
    except OSError as error:
        raise ConnectionLost(f"{address} port {port}: {reason(error)}") from None
    return made


class TcpTransport(asyncio.Protocol):
    """Implements `Transport`; `connect` makes it."""

    def __init__(self, record_bytes: int) -> None:
        self._splitter = RecordSplitter(record_bytes)
        self._calls: dict[int, asyncio.Future[bytes]] = {}
        self._xid = random.getrandbits(32)
        self._stream: asyncio.Transport | None = None
        self._may_write = asyncio.Event()
        self._may_write.set()
        self._why = ""  # why the connection is gone
        self.strays = 0  #: records that answer no open call

    @property
    def kind(self) -> TransportKind:
        return TransportKind.TCP

    @property
    def is_open(self) -> bool:
        return self._stream is not None and not self._why

    @property
    def in_flight(self) -> int:
        """Calls without a reply so far."""
        return len(self._calls)

    async def call(
        self,
        message: bytes,
        *,
        send_data: Buffer | None = None,
        position: int = 0,
        receive_into: bytearray | memoryview | None = None,
        reply_room: int = REPLY_ROOM,
    ) -> Answer:
        """Makes a call as `Transport` describes it. A stream places nothing: data is always within
        the message."""
        parts = _joined(message, send_data, position)
        length = WORD_BYTES + sum(len(part) for part in parts)
        if length > FRAGMENT_MOST:
            raise CallRefused(f"a call of {length} bytes is too long for one record")
        while not self._may_write.is_set():
            await self._may_write.wait()
        if self._stream is None or self._why:
            raise ConnectionLost(self._why or "not connected")
        xid = self._next_xid()
        reply: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()
        self._calls[xid] = reply
        try:
            head = (_LAST_FRAGMENT | length).to_bytes(4, "big") + xid.to_bytes(4, "big")
            # One copy: the caller's buffer is free, however this ends.
            self._stream.write(b"".join([head, *parts]))
            return Answer(await reply)
        finally:
            self._calls.pop(xid, None)

    def close(self) -> None:
        self._end("closed")

    def _next_xid(self) -> int:
        self._xid = (self._xid + 1) & 0xFFFFFFFF
        while self._xid in self._calls:
            self._xid = (self._xid + 1) & 0xFFFFFFFF
        return self._xid

    def _end(self, why: str) -> None:
        if self._why:
            return
        self._why = why
        if self._stream is not None:
            self._stream.abort()
        self._may_write.set()
        for reply in self._calls.values():
            if not reply.done():
                reply.set_exception(ConnectionLost(why))
        self._calls.clear()

    # The event loop calls what follows.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._stream = cast(asyncio.Transport, transport)
        plug = self._stream.get_extra_info("socket")
        plug.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def connection_lost(self, error: Exception | None) -> None:
        self._end(f"connection lost: {error}" if error else "the server closed the connection")

    def eof_received(self) -> bool:
        return False  # No more replies can come: asyncio closes the stream.

    def pause_writing(self) -> None:
        self._may_write.clear()

    def resume_writing(self) -> None:
        self._may_write.set()

    def data_received(self, data: bytes) -> None:
        try:
            records, wrong = self._splitter.feed(data), ""
        except RecordError as error:
            records, wrong = error.records, str(error)
        for record in records:
            if len(record) < _SHORTEST_REPLY:
                wrong = f"a record of {len(record)} bytes is no RPC message"
                break
            self._deliver(record)
        if wrong:
            self._end(f"the server broke the rules: {wrong}")

    def _deliver(self, record: bytes) -> None:
        is_reply = int.from_bytes(record[4:8], "big") == REPLY
        waiting = self._calls.pop(int.from_bytes(record[:4], "big"), None) if is_reply else None
        if waiting is None or waiting.done():
            self.strays += 1
        else:
            waiting.set_result(record)


def _joined(message: bytes, data: Buffer | None, position: int) -> list[Buffer]:
    """Returns the message without its XID, with the data in its place."""
    if data is None:
        return [memoryview(message)[WORD_BYTES:]]
    whole = memoryview(message)
    padding = bytes(-len(data) % WORD_BYTES)
    return [whole[WORD_BYTES:position], data, padding, whole[position:]]
