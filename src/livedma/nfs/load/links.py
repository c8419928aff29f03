# SPDX-License-Identifier: BSD-2-Clause
"""Keeps the connections of the load, and the calls that Python makes on them."""

from __future__ import annotations

import asyncio
import errno
import mmap
import os
import socket
from dataclasses import dataclass, field

from livedma._native.caller import memory_bytes, receives
from livedma._native.load import Load, buffer_bytes
from livedma._native.rdma import Region
from livedma.nfs.load.plan import Pattern, Plan
from livedma.rdma import CompletionQueue, Device, ProtectionDomain, QueuePair, cm
from livedma.rpc.client import REPLY_ROOM, Answer, Buffer, CallRefused, ConnectionLost
from livedma.rpc.names import TransportKind
from livedma.rpc.rdma_client import INLINE_BYTES
from livedma.rpc.rdma_private import PrivateData, agree
from livedma.rpc.refusal import READS_REFUSALS, not_connected
from livedma.rpc.xdr import WORD_BYTES
from livedma.wire.words import amount

__all__ = ["Calls", "LinkTransport", "RdmaLinks", "TcpLinks"]

_CONNECT_S = 10.0
_RETRIES = 3  # of a packet: about 6 s without an acknowledgement mean that the peer is away
_SILENCE_MS = 10_000  # a peer that has not acknowledged data for so long is away
_MORE_LINKS = 7  # at a time, besides those that are there from the start
_HEADERS_MOST = 120  # of RPC-over-RDMA, in front of a call
_UNREACHED = (cm.ConnectError, cm.RejectedError, cm.UnreachableError)
_WHY = {
    errno.EPROTO: "the server broke the rules of the transport",
    errno.EMSGSIZE: "a call is longer than the server takes inline",
    errno.ECONNRESET: "the connection was lost",
    errno.EREMOTEIO: "the server answered with RDMA_ERROR",
    errno.EBADMSG: "the server says that it wrote to memory that was not offered",
}


class Calls:
    """Takes the replies to Python's calls from the thread that runs the load."""

    def __init__(self, load: Load) -> None:
        self._load = load
        self._loop = asyncio.get_running_loop()
        self._waiting: dict[int, asyncio.Future[bytes]] = {}
        self._next = 0
        self._loop.add_reader(load.fileno(), self._collect)
        self.stirred = asyncio.Event()  #: set when replies have come, or a connection has broken

    async def call(self, link: int, message: bytes) -> bytes:
        user, self._next = self._next, self._next + 1
        future: asyncio.Future[bytes] = self._loop.create_future()
        self._waiting[user] = future
        try:
            self._load.call(link, user, message)
            return await future
        except OSError as error:
            raise _lost(error.errno or errno.EIO) from None
        finally:
            self._waiting.pop(user, None)

    def _collect(self) -> None:
        self.stirred.set()
        for user, error, message in self._load.replies():
            future = self._waiting.get(user)
            if future is None or future.done():
                continue
            if error:
                future.set_exception(_lost(error))
            else:
                future.set_result(message)

    def close(self) -> None:
        self._loop.remove_reader(self._load.fileno())
        for future in self._waiting.values():
            if not future.done():
                future.set_exception(ConnectionLost("the load has ended"))


def _lost(error: int) -> ConnectionLost | CallRefused:
    is_of_call = error in (errno.EREMOTEIO, errno.EBADMSG)
    return (CallRefused if is_of_call else ConnectionLost)(_WHY.get(error, os.strerror(error)))


class LinkTransport:
    """Implements `Transport` over a connection of the load."""

    def __init__(self, load: Load, calls: Calls, link: int, kind: TransportKind, most: int) -> None:
        self._load, self._calls, self._link = load, calls, link
        self._kind, self._most = kind, most

    @property
    def kind(self) -> TransportKind:
        return self._kind

    @property
    def is_open(self) -> bool:
        return not self._load.link_error(self._link)

    async def call(
        self,
        message: bytes,
        *,
        send_data: Buffer | None = None,
        position: int = 0,
        receive_into: bytearray | memoryview | None = None,
        reply_room: int = REPLY_ROOM,
    ) -> Answer:
        """Makes a call as `Transport` says. Nothing is placed: such calls are few and short."""
        if send_data is not None:
            padding = bytes(-len(send_data) % WORD_BYTES)
            message = b"".join((message[:position], send_data, padding, message[position:]))
        if len(message) > self._most:
            raise CallRefused(f"a call of {len(message)} bytes is above {self._most}")
        return Answer(await self._calls.call(self._link, message))

    def close(self) -> None:
        """Does nothing: the connection belongs to the load."""


@dataclass(slots=True)
class _RdmaLink:
    """Holds the parts of a connection over RDMA."""

    number: int = -1
    connection: cm.Connection | None = None
    regions: list[Region] = field(default_factory=list)
    inline_bytes: int = 0

    def close(self) -> None:
        if self.connection is not None:
            self.connection.close()
        for region in self.regions:
            region.close()


class RdmaLinks:
    """Keeps connections over RDMA, with one completion queue for all."""

    def __init__(self, device: Device, plan: Plan, spin: float) -> None:
        calls = plan.calls
        self._device, self._plan = device, plan
        self._pd: ProtectionDomain = device.protection_domain()
        self._cq: CompletionQueue = device.completion_queue(
            (plan.connections + _MORE_LINKS) * (3 * calls + receives(calls))
        )
        self._links: dict[int, _RdmaLink] = {}
        self.load = Load(
            device.engine,
            self._cq,
            size=plan.size,
            depth=plan.depth,
            rw=plan.rw.value,
            sequential=plan.pattern == Pattern.SEQUENTIAL,
            verify=plan.verify,
            interval_ns=plan.interval_ns,
            spin=spin,
        )

    async def open(self, address: str, port: int, within_s: float = _CONNECT_S) -> int:
        """Makes one more connection and returns its number. ConnectionLost: it cannot be made."""
        if len(self._links) >= self._plan.connections + _MORE_LINKS:
            raise ConnectionLost(f"no more than {amount(len(self._links), 'connection')}")
        link = _RdmaLink()
        try:
            await self._connect(link, address, port, within_s)
        except BaseException:
            if link.number >= 0:
                self.load.close_link(link.number)
            link.close()
            raise
        self._links[link.number] = link
        return link.number

    async def _connect(self, link: _RdmaLink, address: str, port: int, within_s: float) -> None:
        said, calls = PrivateData(INLINE_BYTES, INLINE_BYTES), self._plan.calls
        # Before the connection is asked for: gigabytes may take longer than a server waits.
        messages = self._memory(link, memory_bytes(calls, INLINE_BYTES, INLINE_BYTES))
        data_bytes = calls * buffer_bytes(self._plan.size)
        data = self._memory(link, data_bytes, "remote_read", "remote_write")

        def prepare(qp: QueuePair) -> None:
            link.number = self.load.add_rdma(
                qp,
                messages,
                data,
                calls=calls,
                send_bytes=INLINE_BYTES,
                receive_bytes=INLINE_BYTES,
            )

        try:
            async with asyncio.timeout(within_s):
                link.connection = await cm.connect_async(
                    self._device,
                    address,
                    port,
                    private_data=said.encode() + READS_REFUSALS,
                    pd=self._pd,
                    cq=self._cq,
                    prepare=prepare,
                    retry_count=_RETRIES,
                    max_send=2 * calls,
                    max_recv=receives(calls),
                    max_send_sge=1,
                    max_recv_sge=1,
                )
        except TimeoutError:
            raise ConnectionLost(f"{address} did not answer in {within_s:g} s") from None
        except cm.ConnectError as error:
            if type(error) not in _UNREACHED:
                raise  # The error gives its own reason.
            raise not_connected(error) from None
        inline = agree(said, PrivateData.decode(link.connection.private_data))
        self.load.limit(link.number, inline.send_bytes)
        link.inline_bytes = inline.send_bytes

    def _memory(self, link: _RdmaLink, size: int, *access: str) -> tuple[int, int, memoryview]:
        # It is not pinned: the device is in this process and finds it by its address. So users that
        # may pin little can load as much as root, also while a lost connection has its memory yet.
        buffer = mmap.mmap(-1, size)
        region = self._device.engine.register(buffer, ("local_write", *access), pd=self._pd)
        link.regions.append(region)
        return region.key, region.va, memoryview(buffer)

    def transport(self, calls: Calls, link: int) -> LinkTransport:
        most = self._links[link].inline_bytes - _HEADERS_MOST
        return LinkTransport(self.load, calls, link, TransportKind.RDMA, most)

    def close_link(self, link: int) -> bool:
        """Ends a connection; False if a session or call still uses it."""
        if not self.load.close_link(link):
            return False
        self._links.pop(link).close()
        return True

    def close(self) -> None:
        self.load.end()
        for link in self._links.values():
            if link.connection is not None:
                link.connection.close()
        self.load.close()
        for link in self._links.values():
            link.close()
        self._cq.close()


class TcpLinks:
    """Keeps connections over TCP."""

    _MOST = 65536  # bytes of one of Python's calls

    def __init__(self, plan: Plan) -> None:
        self._sockets: dict[int, socket.socket] = {}
        self.load = Load(
            size=plan.size,
            depth=plan.depth,
            rw=plan.rw.value,
            sequential=plan.pattern == Pattern.SEQUENTIAL,
            verify=plan.verify,
            interval_ns=plan.interval_ns,
        )

    async def open(self, address: str, port: int, within_s: float = _CONNECT_S) -> int:
        """Makes one more connection and returns its number. ConnectionLost: it cannot be made."""
        family = socket.AF_INET6 if ":" in address else socket.AF_INET
        plug = socket.socket(family, socket.SOCK_STREAM)
        plug.setblocking(False)
        plug.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        plug.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, _SILENCE_MS)
        try:
            async with asyncio.timeout(within_s):
                await asyncio.get_running_loop().sock_connect(plug, (address, port))
            link = self.load.add_tcp(plug.fileno())
        except TimeoutError:
            plug.close()
            raise ConnectionLost(f"{address} did not answer in {within_s:g} s") from None
        except OSError as error:
            plug.close()
            why = os.strerror(error.errno) if error.errno else str(error)
            raise ConnectionLost(f"{address} port {port}: {why}") from None
        except BaseException:  # the run may end meanwhile
            plug.close()
            raise
        self._sockets[link] = plug
        return link

    def transport(self, calls: Calls, link: int) -> LinkTransport:
        return LinkTransport(self.load, calls, link, TransportKind.TCP, self._MOST)

    def close_link(self, link: int) -> bool:
        """Ends a connection; False if a session or call still uses it."""
        if not self.load.close_link(link):
            return False
        self._sockets.pop(link).close()
        return True

    def close(self) -> None:
        self.load.close()
        for plug in self._sockets.values():
            plug.close()
