# SPDX-License-Identifier: BSD-2-Clause
"""A server of RPC-over-RDMA that says what a test tells it to: a raw queue pair, on a real wire."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

from tests.rpc.rdma_chunks import Segment
from tests.rpc.rdma_header import Header, Proc, decode_header, encode_header

from livedma.rdma import Device, cm
from livedma.rpc.rdma_client import RdmaTransport, connect
from livedma.rpc.rdma_private import PrivateData

PORT = 20049
INLINE = 4096
RECEIVES = 64


class Peer:
    """One connection at the server's side."""

    def __init__(self, device: Device) -> None:
        self.pd = device.protection_domain()
        self._memory = bytearray((RECEIVES + 1) * INLINE)
        self._region = self.pd.register(self._memory)
        self._data = bytearray(1 << 20)
        self._data_region = self.pd.register(self._data)
        self.connection: cm.Connection | None = None
        self._calls: asyncio.Queue[bytes] = asyncio.Queue()
        self._done: asyncio.Queue[str] = asyncio.Queue()
        self._task: asyncio.Task[None] | None = None

    def prepare(self, qp: object) -> None:
        for i in range(RECEIVES):
            qp.post_recv(i, [self._region[i * INLINE : (i + 1) * INLINE]])  # type: ignore[attr-defined]

    def start(self) -> None:
        self._task = asyncio.create_task(self._receive())

    @property
    def waiting(self) -> int:
        """Calls that came and were not looked at."""
        return self._calls.qsize()

    async def _receive(self) -> None:
        assert self.connection is not None
        while True:
            for one in await self.connection.cq.wait_async():
                if one.operation != "RECV":
                    self._done.put_nowait(one.status)
                elif one.status == "SUCCESS":
                    start = one.wr_id * INLINE
                    self._calls.put_nowait(bytes(self._memory[start : start + one.length]))
                    self.connection.qp.post_recv(one.wr_id, [self._region[start : start + INLINE]])

    async def call(self) -> tuple[Header, bytes]:
        """The next call: its header, and what came inline."""
        data = await self._calls.get()
        header, end = decode_header(data)
        assert isinstance(header, Header)
        return header, data[end:]

    async def send(self, data: bytes) -> None:
        assert self.connection is not None
        start = RECEIVES * INLINE
        self._memory[start : start + len(data)] = data
        self.connection.qp.post_send(1, "SEND", [self._region[start : start + len(data)]])
        assert await self._done.get() == "SUCCESS"

    async def write(self, segment: Segment, data: bytes) -> None:
        """RDMA WRITE to the caller's memory."""
        await self._move("WRITE", segment, data, len(data))

    async def read(self, segment: Segment) -> bytes:
        """RDMA READ of the caller's memory."""
        await self._move("READ", segment, b"", segment.length)
        return bytes(self._data[: segment.length])

    async def _move(self, operation: str, segment: Segment, data: bytes, length: int) -> None:
        assert self.connection is not None
        self._data[: len(data)] = data
        self.connection.qp.post_send(
            2,
            operation,
            [self._data_region[:length]],
            remote_va=segment.offset,
            rkey=segment.handle,
        )
        assert await self._done.get() == "SUCCESS"

    async def reply(
        self,
        header: Header,
        body: bytes = b"",
        *,
        credits: int = 32,  # noqa: A002 - the specification's word
        writes: Sequence[tuple[Segment, ...]] = (),
    ) -> None:
        """RDMA_MSG with a reply of RPC, of which nothing but its start is looked at here."""
        head = encode_header(Header(header.xid, credits, Proc.RDMA_MSG, writes=tuple(writes)))
        await self.send(head + reply_message(header.xid, body))

    def close(self) -> None:
        if self._task is not None:
            self._task.cancel()
        if self.connection is not None:
            self.connection.close()


def reply_message(xid: int, body: bytes = b"") -> bytes:
    return xid.to_bytes(4, "big") + (1).to_bytes(4, "big") + body


@asynccontextmanager
async def peers(
    here: Device, there: Device, *, said: PrivateData | None = None, calls: int = 64
) -> AsyncIterator[tuple[RdmaTransport, Peer]]:
    """A transport, and its peer."""
    said = said or PrivateData(INLINE, INLINE)
    peer = Peer(there)
    with cm.listen(there, PORT) as listener:

        async def accept() -> None:
            request = await listener.get_async()
            peer.connection = await request.accept_async(
                private_data=said.encode(),
                pd=peer.pd,
                prepare=peer.prepare,
                max_recv=RECEIVES,
                max_send=16,
            )
            peer.start()

        accepting = asyncio.create_task(accept())
        transport = await connect(there.address, PORT, device=here, calls=calls)
        await accepting
        try:
            yield transport, peer
        finally:
            transport.close()
            peer.close()
