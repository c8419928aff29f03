# SPDX-License-Identifier: BSD-2-Clause
"""Makes calls over RDMA (RFC 8166), and no more at once than the server grants.

Data and long messages go through memory that the transport registers for one call, so that a server
cannot reach a buffer that the caller has back. A reply that claims more than the call offered ends
its call; a message that breaks the protocol's rules ends the connection.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
from collections import deque
from dataclasses import dataclass, field

from livedma._native.caller import Caller, Ended, memory_bytes, receives
from livedma.errors import LivedmaError
from livedma.rdma import Completion, Device, MemoryRegion, QueuePair, cm
from livedma.rpc.client import REPLY_ROOM, Answer, Buffer, CallRefused, ConnectionLost
from livedma.rpc.names import TransportKind
from livedma.rpc.rdma_private import PrivateData, agree
from livedma.rpc.refusal import READS_REFUSALS, not_connected
from livedma.wire.rpc import REPLY

__all__ = ["INLINE_BYTES", "RdmaTransport", "connect"]

INLINE_BYTES = 4096
CALLS = 64

_ALIGN = 64
_REPLY_OVERHEAD = 72  # a header with a write chunk and a reply chunk that came back


async def connect(
    address: str,
    port: int,
    *,
    device: Device | None = None,
    timeout_s: float = 10.0,
    calls: int = CALLS,
    inline_bytes: int = INLINE_BYTES,
) -> RdmaTransport:
    """Connects to a server. Raises `ConnectionLost` if the connection cannot be made in time,
    `ConnectionRefusedByServer` if the server says why it refuses it.

    device: where it leaves from; None: it opens a device of its own, towards the server.
    calls: the most calls at once, if the server grants so many.
    """
    own = Device.towards(address) if device is None else None
    transport = RdmaTransport(device or own, own, calls, inline_bytes)  # type: ignore[arg-type]
    try:
        async with asyncio.timeout(timeout_s):
            await transport.open(address, port)
    except TimeoutError:
        transport.close()
        raise ConnectionLost(f"{address} port {port} did not answer in {timeout_s:g} s") from None
    except cm.ConnectError as error:
        transport.close()
        raise not_connected(error) from None
    except BaseException:
        transport.close()
        raise
    return transport


@dataclass(slots=True)
class _Open:
    """Holds a call without a reply so far, whose caller may have been cancelled."""

    future: asyncio.Future[Answer]
    into: bytearray | memoryview | None = None
    memory: bytearray = field(default_factory=bytearray)
    region: MemoryRegion | None = None
    write_at: int = 0
    reply_at: int = 0


class _Layout:
    """Lays out the parts of a call in one piece of memory."""

    def __init__(self) -> None:
        self.size = 0

    def place(self, length: int) -> int:
        start = self.size
        self.size += length + -length % _ALIGN
        return start


class RdmaTransport:
    """Implements `Transport`; `connect` makes it."""

    def __init__(self, device: Device, own: Device | None, calls: int, inline_bytes: int) -> None:
        self._device, self._own_device = device, own
        self._calls = calls
        self._said = PrivateData(inline_bytes, inline_bytes)
        self._pd = device.protection_domain()
        self._cq = device.completion_queue(3 * calls + receives(calls))
        self._memory = bytearray(memory_bytes(calls, inline_bytes, inline_bytes))
        self._region = self._pd.register(self._memory)
        self._caller: Caller | None = None
        self._connection: cm.Connection | None = None
        self._receive_bytes = inline_bytes
        self._open: dict[int, _Open] = {}
        self._next = 0
        self._turns: deque[asyncio.Future[None]] = deque()
        self._why = "not connected"
        self._pump: asyncio.Task[None] | None = None

    @property
    def kind(self) -> TransportKind:
        return TransportKind.RDMA

    @property
    def is_open(self) -> bool:
        return not self._why

    @property
    def granted(self) -> int:
        """Calls that the server allows at once."""
        return 0 if self._caller is None else self._caller.granted

    @property
    def counters(self) -> dict[str, int]:
        return {} if self._caller is None else self._caller.counters

    async def open(self, address: str, port: int) -> None:
        """Connects. It may be called once."""
        calls = self._calls
        self._connection = await cm.connect_async(
            self._device,
            address,
            port,
            private_data=self._said.encode() + READS_REFUSALS,
            pd=self._pd,
            cq=self._cq,
            prepare=self._prepare,
            max_send=2 * calls,
            max_recv=receives(calls),
            max_send_sge=1,
            max_recv_sge=1,
        )
        inline = agree(self._said, PrivateData.decode(self._connection.private_data))
        assert self._caller is not None
        self._caller.limit(inline.send_bytes)
        self._receive_bytes = inline.receive_bytes
        self._why = ""
        self._pump = asyncio.create_task(self._run())

    def _prepare(self, qp: QueuePair) -> None:
        said = self._said
        self._caller = Caller(
            qp,
            (self._region.lkey, self._region.va, self._memory),
            calls=self._calls,
            send_bytes=said.send_bytes,
            receive_bytes=said.receive_bytes,
        )
        self._caller.prepare()

    async def call(
        self,
        message: bytes,
        *,
        send_data: Buffer | None = None,
        position: int = 0,
        receive_into: bytearray | memoryview | None = None,
        reply_room: int = REPLY_ROOM,
    ) -> Answer:
        """Makes a call as `Transport` describes it."""
        has_waited = False
        while True:
            if self._why or self._caller is None:
                raise ConnectionLost(self._why)
            if has_waited or not self._turns:
                future = self._send(message, send_data, position, receive_into, reply_room)
                if future is not None:
                    return await future
            await self._turn(has_waited)
            has_waited = True

    async def _turn(self, is_first: bool) -> None:
        """Waits until another call has ended; first come, first served.

        is_first: this caller has waited before, and goes to the front.
        """
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        if is_first:
            self._turns.appendleft(turn)
        else:
            self._turns.append(turn)
        try:
            await turn
        except asyncio.CancelledError:
            if turn.done() and not turn.cancelled():
                self._wake()  # gives the turn to the next caller
            raise
        finally:
            if turn in self._turns:
                self._turns.remove(turn)

    def _wake(self) -> None:
        if self._caller is None:
            return
        free = max(self._caller.granted - self._caller.open, 0)
        while self._turns and (free or self._why):
            turn = self._turns.popleft()
            if not turn.done():
                turn.set_result(None)
                free -= 1

    def _send(
        self,
        message: bytes,
        data: Buffer | None,
        position: int,
        into: bytearray | memoryview | None,
        reply_room: int,
    ) -> asyncio.Future[Answer] | None:
        """Sends a call. Returns its future reply, or None if the call cannot be sent now."""
        assert self._caller is not None
        if self._caller.open >= self._caller.granted:
            return None
        has_data, has_into = bool(data), bool(into)
        has_reply = reply_room > self._receive_bytes - _REPLY_OVERHEAD
        room = self._caller.inline_room(read=has_data, write=has_into, reply=has_reply)
        is_long = len(message) > room
        opened = _Open(asyncio.get_running_loop().create_future(), into)
        layout = _Layout()
        message_at = layout.place(len(message) if is_long else 0)
        data_at = layout.place(len(data) if data else 0)
        opened.write_at = layout.place(len(into) if into else 0)
        opened.reply_at = layout.place(reply_room if has_reply else 0)
        pieces: dict[str, tuple[int, int, int] | None] = {}
        long_message = None
        if layout.size:
            region = self._register(opened, layout.size)
            if is_long:
                opened.memory[message_at : message_at + len(message)] = message
                long_message = memoryview(opened.memory)[message_at:]
                pieces["message_chunk"] = region[message_at : message_at + len(message)]
            if data:
                opened.memory[data_at : data_at + len(data)] = data
                pieces["read"] = region[data_at : data_at + len(data)]
            if into:
                pieces["write"] = region[opened.write_at : opened.write_at + len(into)]
            if has_reply:
                pieces["reply"] = region[opened.reply_at : opened.reply_at + reply_room]
        user, self._next = self._next, self._next + 1
        is_sent = False
        try:
            is_sent = self._caller.call(
                user, message, long_message=long_message, position=position, **pieces
            )
        except (OSError, ValueError) as error:
            raise CallRefused(f"the call cannot be sent: {error}") from None
        finally:
            if is_sent:
                self._open[user] = opened
            elif opened.region is not None:
                opened.region.close()
        return opened.future if is_sent else None

    def _register(self, opened: _Open, size: int) -> MemoryRegion:
        opened.memory = bytearray(size)
        try:
            opened.region = self._pd.register(opened.memory, "remote_read", "remote_write")
        except LivedmaError as error:
            raise CallRefused(str(error)) from None
        return opened.region

    async def _run(self) -> None:
        with contextlib.suppress(ValueError, asyncio.CancelledError):  # the device was closed
            while self.is_open:
                self._complete(await self._cq.wait_async())
        self._end("the device was closed")

    def _complete(self, completions: list[Completion]) -> None:
        assert self._caller is not None
        for ended in self._caller.complete(completions):
            self._finish(ended)
        if self._caller.error == errno.EPROTO:
            self._end("the server broke the rules of RPC-over-RDMA")
        elif self._caller.error:
            self._end(f"connection lost: {self._caller.status}")
        self._wake()

    def _finish(self, ended: Ended) -> None:
        user, error, message, placed, reply_length, xid = ended
        opened = self._open.pop(user)
        if opened.region is not None:
            opened.region.close()
        if opened.future.done():
            return  # its caller was cancelled
        if error in (errno.ECONNRESET, errno.EPROTO):
            opened.future.set_exception(ConnectionLost("the connection was lost"))
            return
        if error:
            opened.future.set_exception(CallRefused(_REFUSED[error]))
            return
        if message is None:
            message = bytes(opened.memory[opened.reply_at : opened.reply_at + reply_length])
            if message[:8] != xid.to_bytes(4, "big") + REPLY.to_bytes(4, "big"):
                opened.future.set_exception(CallRefused("the reply chunk has no reply in it"))
                return
        if placed and opened.into is not None:
            opened.into[:placed] = opened.memory[opened.write_at : opened.write_at + placed]
        opened.future.set_result(Answer(message, placed or None))

    def close(self) -> None:
        self._end("closed")

    def _end(self, why: str) -> None:
        if self._connection is None and self._why == "closed":
            return
        self._why = self._why or why
        if self._connection is not None:
            self._connection.close()
            self._connection = None
        for opened in self._open.values():
            if opened.region is not None:
                opened.region.close()
            if not opened.future.done():
                opened.future.set_exception(ConnectionLost(self._why))
        self._open.clear()
        self._wake()
        if self._pump is not None and self._pump is not asyncio.current_task():
            self._pump.cancel()
        self._region.close()
        with contextlib.suppress(OSError):  # its queue pair may still be in use
            self._cq.close()
        if self._own_device is not None:
            self._own_device.close()
            self._own_device = None


_REFUSED = {
    errno.EREMOTEIO: "the server answered with RDMA_ERROR: it cannot take, or answer, this call",
    errno.EBADMSG: "the server says that it wrote to memory that was not offered",
}
