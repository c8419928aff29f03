# SPDX-License-Identifier: BSD-2-Clause
"""A client of RPC-over-RDMA that sends what it is told: headers and chunks, right or wrong."""

from __future__ import annotations

import itertools
import os
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any, Self

from tests.rpc.rdma_chunks import Segment
from tests.rpc.rdma_header import ErrorHeader, Header, Proc, decode_header, encode_header

from livedma.rdma import Completion, Device, cm
from livedma.rpc.rdma_private import PrivateData
from livedma.rpc.rdma_server import Options, RdmaConnection, RdmaServer
from livedma.rpc.service import Connection, Data, Part

PORT = 20049
PATIENCE = 20.0
# No other test run uses them at the same time.
_NET = f"127.{1 + os.getpid() // 250 % 250}.{1 + os.getpid() % 250}"
HERE, THERE = f"{_NET}.11", f"{_NET}.12"
_SEND, _RECEIVE = 1, 2
_xids = itertools.count(0x1000)
OPTIONS = {"window_bytes": 4 << 20, "credits_max": 64, "connections": 8, "workers": 2}


def wait_until(condition: Callable[[], object]) -> None:
    end = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < end, "it did not happen in time"
        time.sleep(0.005)


def message(xid: int, body: bytes = b"") -> bytes:
    """As much of an RPC call as the transport looks at."""
    return xid.to_bytes(4, "big") + body


class Peer:
    """One connection. Memory is one region of `size` bytes; Receives and SENDs have places of
    their own."""

    def __init__(
        self,
        device: Device,
        address: str,
        *,
        port: int = PORT,
        inline: int | None = 4096,
        invalidation: bool = False,
        receives: int = 32,
        size: int = 1 << 20,
        receive_bytes: int | None = None,
        private_more: bytes = b"",
        **setup: Any,
    ) -> None:
        private = b"" if inline is None else PrivateData(inline, inline, invalidation).encode()
        self.inline = receive_bytes or inline or 1024
        self.xid = 0
        self.receives = receives
        self.replies: dict[int, bytes] = {}
        self.failed: list[Completion] = []
        self.invalidated: list[int] = []
        self._sends = itertools.count()
        self.pd = device.protection_domain()
        self.memory = bytearray(size)
        rights = ("remote_read", "remote_write", "remote_invalidate")
        self.region = self.pd.register(self.memory, *rights)
        self._inbox = bytearray(receives * self.inline)
        self._inbox_region = self.pd.register(self._inbox)
        self._outbox = bytearray(64 * 8192)
        self._outbox_region = self.pd.register(self._outbox)
        self.connection = cm.connect(
            device,
            address,
            port,
            timeout=PATIENCE,
            private_data=private + private_more,
            pd=self.pd,
            prepare=self._prepare,
            max_send=64,
            max_recv=max(receives, 1),
            max_inline=0,
            **setup,
        )
        self.private = PrivateData.decode(self.connection.private_data)

    def _prepare(self, qp: Any) -> None:
        for i in range(self.receives):
            self._post_receive(qp, i)

    def _post_receive(self, qp: Any, i: int) -> None:
        piece = self._inbox_region[i * self.inline : (i + 1) * self.inline]
        qp.post_recv(_RECEIVE << 32 | i, [piece])

    def send(self, data: bytes) -> None:
        place = next(self._sends) % 64 * 8192
        self._outbox[place : place + len(data)] = data
        piece = self._outbox_region[place : place + len(data)]
        self.connection.qp.post_send(_SEND << 32, "SEND", [piece])

    def call(self, body: bytes = b"", *, xid: int | None = None, **fields: Any) -> int:
        """Sends a call, and says its XID. RDMA_NOMSG has no body."""
        xid = next(_xids) if xid is None else xid
        header = encode_header(Header(xid, fields.pop("credits", 32), **fields))
        is_long = fields.get("proc") == Proc.RDMA_NOMSG
        self.send(header + (b"" if is_long else message(xid, body)))
        return xid

    def segment(self, offset: int, length: int, handle: int | None = None) -> Segment:
        key, va, _ = self.region[offset : offset + length]
        return Segment(key if handle is None else handle, length, va)

    def inbox_segment(self, length: int) -> Segment:
        """Memory of its Receives, in which nobody else has a right."""
        key, va, _ = self._inbox_region[:length]
        return Segment(key, length, va)

    def take(self) -> None:
        """Whatever has completed, within a short while."""
        for completion in self.connection.cq.wait(0.05):
            if completion.status != "SUCCESS":
                self.failed.append(completion)
            elif completion.wr_id >> 32 == _RECEIVE:
                i = completion.wr_id & 0xFFFFFFFF
                data = bytes(self._inbox[i * self.inline : i * self.inline + completion.length])
                self.replies[int.from_bytes(data[:4], "big")] = data
                if completion.invalidated is not None:
                    self.invalidated.append(completion.invalidated)
                self._post_receive(self.connection.qp, i)

    def raw_reply(self, xid: int) -> bytes:
        end = time.monotonic() + PATIENCE
        while xid not in self.replies:
            assert time.monotonic() < end, "no reply"
            assert not self.failed, self.failed
            self.take()
        return self.replies.pop(xid)

    def reply(self, xid: int) -> tuple[Header, bytes]:
        """The header of a reply, and the message behind it."""
        data = self.raw_reply(xid)
        header, end = decode_header(data)
        assert isinstance(header, Header), header
        return header, data[end:]

    def error(self, xid: int) -> ErrorHeader:
        header, _ = decode_header(self.raw_reply(xid))
        assert isinstance(header, ErrorHeader), header
        return header

    def await_end(self) -> None:
        """Until the other side has cut the connection."""
        end = time.monotonic() + PATIENCE
        while not self.failed:
            assert time.monotonic() < end, "the connection lives on"
            self.take()

    def close(self) -> None:
        self.connection.close()
        self.region.close()
        self._inbox_region.close()
        self._outbox_region.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class Echo:
    """A program that keeps what it gets and answers with it, or with what it is told to."""

    def __init__(self) -> None:
        self.messages: list[bytes] = []
        self.ended: list[Connection] = []
        self.answer: Sequence[Part] | Exception | None = ()

    def __call__(self, connection: Connection, message: bytes) -> Sequence[Part] | None:
        self.messages.append(message)
        if isinstance(self.answer, Exception):
            raise self.answer
        if self.answer is None:
            return None
        if not self.answer:
            return [message]
        return [message[:4], *self.answer]

    def closed(self, connection: Connection) -> None:
        self.ended.append(connection)


@contextmanager
def serving(
    program: Any, *, native: object = None, **options: Any
) -> Iterator[tuple[RdmaServer, Device]]:
    """A server at THERE, and the device that its clients use."""
    with ExitStack() as stack:
        mine = stack.enter_context(Device(HERE))
        theirs = stack.enter_context(Device(THERE))
        merged: dict[str, Any] = {**OPTIONS, **options}
        server = stack.enter_context(RdmaServer(theirs, PORT, program, Options(**merged)))
        if native is not None:
            server.set_native_program(native)
        yield server, mine


def only_connection(server: RdmaServer) -> RdmaConnection:
    wait_until(lambda: len(server.connections) == 1 and server.connections[0].is_open)
    return server.connections[0]


def data_reply(data: bytes) -> list[Part]:
    """A result with opaque data in it: its length, the data, and a word behind it."""
    return [len(data).to_bytes(4, "big"), Data(data), b"tail"]
