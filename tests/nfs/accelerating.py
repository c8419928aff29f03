# SPDX-License-Identifier: BSD-2-Clause
"""A real server with its accelerator, and a client of one file, over RDMA on loopback."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.nfs import calling
from tests.nfs.calling import GETFH, PUTROOTFH, op

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "rpc"))
import rdma_peer
from tests.rpc.rdma_chunks import ReadChunk

from livedma._native.accelerator import Accelerator
from livedma.nfs.numbers import Op, Status
from livedma.nfs.server.config import Config
from livedma.nfs.server.parts import Server
from livedma.nfs.server.persist import Persist
from livedma.nfs.server.program import NfsProgram
from livedma.nfs.server.store import Store
from livedma.rdma import Device
from livedma.rpc.message import Accepted, AuthSys, decode_reply
from livedma.rpc.rdma_server import RdmaServer
from livedma.rpc.service import Part
from livedma.rpc.xdr import Decoder, Encoder

NAME = b"file"
CHANNEL = calling.Channel(request=1 << 20, response=1 << 20, cached=4096)


@dataclass
class Lab:
    """What a test has."""

    server: Server
    accelerator: Accelerator
    transport: RdmaServer
    device: Device
    path: Path

    def set_fast(self, is_fast: bool) -> None:
        """Whether the accelerator is shown calls."""
        self.transport.set_native_program(self.accelerator.capsule if is_fast else None)

    @property
    def taken(self) -> int:
        return self.accelerator.counters["taken"]


@contextmanager
def accelerated(directory: Path, content: bytes, **options: Any) -> Iterator[Lab]:
    """A server of one file that everybody may use."""
    export = directory / "export"
    export.mkdir(exist_ok=True)
    path = export / NAME.decode()
    path.write_bytes(content)
    path.chmod(0o666)
    config = Config(squash="none")
    with ExitStack() as stack:
        persist = stack.enter_context(Persist(directory / "state"))
        store = Store(export, secret=persist.secret("handles"), config=config)
        stack.callback(store.close)
        accelerator = Accelerator(store.changes, store.write_verifier, **options)
        stack.callback(accelerator.close)
        server = Server(store, persist, config, accelerator=accelerator)
        transport, device = stack.enter_context(
            rdma_peer.serving(NfsProgram(server), native=accelerator.capsule)
        )
        yield Lab(server, accelerator, transport, device, path)


class LeftError(Exception):
    """The call was sent, and nobody waits for its reply."""


class FileClient(calling.Peer):
    """A client with a session and the file open, at a connection of its own.

    Data of READs is placed, and that of WRITEs fetched, if they are long.
    """

    def __init__(self, lab: Lab, credential: AuthSys = calling.ROOT) -> None:
        self.peer = rdma_peer.Peer(lab.device, lab.transport.device.address)
        super().__init__(self._over_the_wire, credential=credential)  # type: ignore[arg-type]
        self._data: bytes | None = None
        self._room = 0
        self.number = 0  # of the last request in slot 0
        self.is_leaving = False  # does not wait for replies any more

    def _over_the_wire(self, _: object, message: bytes) -> Sequence[Part]:
        xid = self.xid = int.from_bytes(message[:4], "big")
        chunks: dict[str, Any] = {}
        if self._room:
            chunks["writes"] = ((self.peer.segment(0, self._room),),)
        if self._data is not None:
            at = message.index(self._data)
            place = 1 << 19
            self.peer.memory[place : place + len(self._data)] = self._data
            segments = (self.peer.segment(place, len(self._data)),)
            chunks["reads"] = (ReadChunk(at, segments),)
            padded = len(self._data) + -len(self._data) % 4
            message = message[:at] + message[at + padded :]
        self.peer.call(message[4:], xid=xid, **chunks)
        if self.is_leaving:
            raise LeftError
        header, reply = self.peer.reply(xid)
        if self._room:
            (written,) = header.writes
            self.placed = bytes(self.peer.memory[: sum(one.length for one in written)])
        return [reply]

    def enter(self, owner: bytes = b"owner") -> None:
        """A session, in which the file is open for reading and writing."""
        number, self.id = self.session(owner, fore=CHANNEL)
        assert self.do(calling.reclaim_complete()).status == Status.OK
        looked = self.do(PUTROOTFH, op(Op.LOOKUP, lambda out: out.opaque(NAME)), GETFH)
        self.handle = looked.last.opaque()
        opened = self.do(PUTROOTFH, self._open(number))
        assert opened.status == Status.OK
        self.stateid = opened.last.fixed(16)

    @staticmethod
    def _open(client: int) -> bytes:
        def write(out: Encoder) -> None:
            out.u32(0, 3, 0)  # seqid, access, deny
            out.u64(client)
            out.opaque(b"opener")
            out.u32(0, 0)  # no create, by name
            out.opaque(NAME)

        return op(Op.OPEN, write)

    def sequence(self, *, is_again: bool = False) -> bytes:
        self.number += not is_again
        return calling.sequence(self.id, self.number)

    def do(self, *ops: bytes) -> calling.Result:
        return self.send(self.sequence(), *ops)

    def move(self, *ops: bytes, is_again: bool = False) -> calling.Result:
        """READ, WRITE or COMMIT on the file, and what is behind it; results are not looked into."""
        arguments = calling.compound(self.sequence(is_again=is_again), self.putfh(), *ops)
        decoder = Decoder(self.rpc(arguments))
        assert decode_reply(decoder) == Accepted(self.xid)
        raw = decoder.data[decoder.pos :]
        status, tag, count = Status(decoder.u32()), decoder.opaque(), decoder.u32()
        return calling.Result(status, tag, count, raw, None, decoder)

    def take_over(self, before: FileClient) -> None:
        """Goes on with its session and file, at the request that it sent last."""
        self.id, self.handle, self.stateid = before.id, before.handle, before.stateid
        self.number = before.number

    def close_file(self) -> calling.Result:
        def write(out: Encoder) -> None:
            out.u32(0)
            out.raw(self.stateid)

        return self.do(self.putfh(), op(Op.CLOSE, write))

    def putfh(self) -> bytes:
        return op(Op.PUTFH, lambda out: out.opaque(self.handle))

    def read(
        self, offset: int, count: int, *more: bytes, room: int = 0, is_again: bool = False
    ) -> calling.Result:
        """room: of a write chunk; 0: the data is in the reply."""

        def write(out: Encoder) -> None:
            out.raw(self.stateid)
            out.u64(offset)
            out.u32(count)

        self._room = room
        try:
            return self.move(op(Op.READ, write), *more, is_again=is_again)
        finally:
            self._room = 0

    def write(
        self,
        offset: int,
        data: bytes,
        *more: bytes,
        stable: int = 0,
        chunk: bool = False,
        is_again: bool = False,
    ) -> calling.Result:
        """chunk: the data is fetched from one."""

        def write(out: Encoder) -> None:
            out.raw(self.stateid)
            out.u64(offset)
            out.u32(stable)
            out.opaque(data)

        self._data = data if chunk else None
        try:
            return self.move(op(Op.WRITE, write), *more, is_again=is_again)
        finally:
            self._data = None

    def commit(self) -> calling.Result:
        return self.move(op(Op.COMMIT, lambda out: (out.u64(0), out.u32(0))))

    def close(self) -> None:
        self.peer.close()

    def __enter__(self) -> FileClient:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
