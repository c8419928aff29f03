# SPDX-License-Identifier: BSD-2-Clause
"""Clients that can be called back, over loopback TCP: each call and each answer is a test's own."""

from __future__ import annotations

import contextlib
import itertools
import socket
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from calling import (
    PUTROOTFH,
    ROOT,
    Clock,
    Peer,
    Result,
    create_session,
    op,
    reclaim_complete,
    sequence,
)
from open_calls import Part, by_name, no_create, open_args
from opening import Told
from tests.rpc.records import encode_record

from livedma.nfs import numbers
from livedma.nfs.numbers import VERSION, Op, Status
from livedma.nfs.server.config import Config
from livedma.nfs.server.parts import Server
from livedma.nfs.server.persist import Persist
from livedma.nfs.server.program import NfsProgram
from livedma.nfs.server.state.shares import READ
from livedma.nfs.server.store import Store
from livedma.nfs.stateid import Stateid
from livedma.rpc.message import (
    Accepted,
    AuthSys,
    Call,
    decode_call,
    encode_call,
    encode_reply,
    is_reply,
)
from livedma.rpc.record import RecordSplitter
from livedma.rpc.tcp_server import TcpServer
from livedma.rpc.xdr import Decoder, Encoder

PATIENCE_S = 30.0
CB_RECALL, CB_SEQUENCE = 4, 11
PROGRAM = 0x40000000
WANT_READ, WANT_WRITE, WANT_ANY, WANT_NONE, WANT_CANCEL = 0x100, 0x200, 0x300, 0x400, 0x500
BACK_CHANNEL = 2  # CREATE_SESSION4_FLAG_CONN_BACK_CHAN


@dataclass
class Delegating:
    """A server that delegates files, with a clock of its own."""

    server: Server
    program: NfsProgram
    tcp: TcpServer
    clock: Clock
    accelerator: Told
    path: Path

    def file(self, name: str, data: bytes = b"0123456789") -> Path:
        path = self.path / name
        path.write_bytes(data)
        return path

    def wait(self, seconds: float) -> None:
        """Time passes, and the server notices."""
        self.clock.now += seconds
        self.server.tick()


@contextmanager
def delegating(directory: Path, **config: Any) -> Iterator[Delegating]:
    """Called again, it is a restart."""
    path = directory / "export"
    path.mkdir(exist_ok=True)
    clock = Clock()
    chosen = Config(**{"squash": "none", "delegations": True, **config})
    with contextlib.ExitStack() as stack:
        persist = stack.enter_context(Persist(directory / "state"))
        store = Store(path, secret=persist.secret("handles"), config=chosen)
        stack.callback(store.close)
        told = Told(store)
        stack.callback(told.close)
        server = Server(store, persist, chosen, clock=clock, accelerator=told)
        stack.callback(server.stop)
        program = NfsProgram(server)
        tcp = stack.enter_context(TcpServer(program, "127.0.0.1", threads=4))
        yield Delegating(server, program, tcp, clock, told, path)


@dataclass(frozen=True)
class Called:
    """A call of the server's: CB_SEQUENCE and CB_RECALL."""

    header: Call
    session: bytes
    sequence: int
    stateid: Stateid
    handle: bytes
    minor: int


@dataclass(frozen=True)
class Opened:
    """What OPEN gave. delegation: its type, and the stateid or why there is none."""

    stateid: Stateid
    kind: int
    delegation: Stateid | None
    why: int | None


def answer(
    called: Called,
    recall: int = Status.OK,
    slot: int = Status.OK,
    session: bytes | None = None,
    number: int | None = None,
) -> bytes:
    """The reply to a recall."""
    out = Encoder()
    out.u32(recall or slot)
    out.opaque(b"")
    out.u32(1 if slot else 2)
    out.u32(CB_SEQUENCE, slot)
    if not slot:
        out.fixed(session or called.session, 16)
        out.u32(called.sequence if number is None else number, 0, 0, 0)
        out.u32(CB_RECALL, recall)
    return encode_reply(Accepted(called.header.xid), bytes(out))


class BackPeer(Peer):
    """A client at a connection of its own. Calls that come meanwhile are kept in `calls`."""

    def __init__(self, serving: Delegating, credential: AuthSys = ROOT) -> None:
        super().__init__(serving.program, credential=credential)
        self.sock = socket.create_connection(("127.0.0.1", serving.tcp.port), PATIENCE_S)
        self.calls: deque[Called] = deque()
        self.session_id = b""
        self.client = 0
        self._numbers = itertools.count(1)
        self._splitter = RecordSplitter(1 << 20)
        self._records: deque[bytes] = deque()

    def __enter__(self) -> BackPeer:
        return self

    def __exit__(self, *_: object) -> None:
        self.sock.close()

    def rpc(self, arguments: bytes, procedure: int = 1, version: int = VERSION) -> bytes:
        xid = next(self._xids)
        call = Call(xid, numbers.PROGRAM, version, procedure, self.credential)
        self.tell(encode_call(call, arguments))
        while True:
            record = self._record()
            if is_reply(record):
                assert record[:4] == xid.to_bytes(4, "big")
                return record
            self.calls.append(_decode(record))

    def tell(self, message: bytes) -> None:
        self.sock.sendall(encode_record(message))

    def _record(self) -> bytes:
        while not self._records:
            data = self.sock.recv(1 << 16)
            assert data, "the server has cut the connection"
            self._records.extend(self._splitter.feed(data))
        return self._records.popleft()

    def called(self) -> Called:
        """The next call of the server's, which may have come already."""
        return self.calls.popleft() if self.calls else _decode(self._record())

    def answered(self, **said: Any) -> Called:
        """As above; it is answered."""
        called = self.called()
        self.tell(answer(called, **said))
        return called

    def join(self, owner: bytes, flags: int = BACK_CHANNEL, security: bytes | None = None) -> None:
        """A session, by which the client may be called, as a new client has it."""
        self.introduce(owner, flags, security)
        assert self.do(reclaim_complete()).status == Status.OK

    def introduce(self, owner: bytes, flags: int, security: bytes | None = None) -> int:
        """As above, before RECLAIM_COMPLETE. The flags that were granted."""
        self.client, number, _ = self.exchange(owner)
        wanted = create_session(self.client, number, flags=flags)
        if security is not None:
            wanted = wanted[:-12] + security
        result = self.send(wanted)
        assert result.status == Status.OK
        self.session_id = result.last.fixed(16)
        result.last.u32()
        return result.last.u32()

    def do(self, *ops: bytes, minor: int = 1) -> Result:
        return self.send(sequence(self.session_id, next(self._numbers)), *ops, minor=minor)

    def at(self, name: str, *ops: bytes, minor: int = 1) -> Result:
        """With the file of this name as the current one."""
        return self.do(PUTROOTFH, lookup(name), *ops, minor=minor)

    def open(self, name: str, access: int = READ, how: Part = no_create, **more: Any) -> Opened:
        result = self.try_open(by_name(name.encode()), access, how, **more)
        assert result.status == Status.OK
        return opened(result)

    def try_open(
        self, claim: Part, access: int = READ, how: Part = no_create, at: str = "", **more: Any
    ) -> Result:
        args = bytes(open_args(claim, how, access, **more))
        where = (PUTROOTFH, lookup(at)) if at else (PUTROOTFH,)
        return self.do(*where, op(Op.OPEN) + args)

    def delegated(self, name: str, owner: bytes = b"o") -> Stateid:
        """An open that has to come with a delegation."""
        ret = self.open(name, READ | WANT_READ, owner=owner).delegation
        assert ret is not None
        return ret

    def close(self, name: str, stateid: Stateid) -> Status:
        out = Encoder()
        stateid.encode(out)
        return self.at(name, op(Op.CLOSE) + bytes(4) + bytes(out)).status

    def give_back(self, name: str, stateid: Stateid) -> Status:
        return self.at(name, with_stateid(Op.DELEGRETURN, stateid)).status

    def read(self, name: str, stateid: Stateid) -> Status:
        return self.at(name, with_stateid(Op.READ, stateid) + bytes(8) + b"\0\0\0\4").status

    def test(self, stateid: Stateid) -> Status:
        result = self.do(op(Op.TEST_STATEID, lambda out: (out.u32(1), stateid.encode(out))))
        assert result.status == Status.OK and result.last.u32() == 1
        return Status(result.last.u32())

    def free(self, stateid: Stateid) -> Status:
        return self.do(with_stateid(Op.FREE_STATEID, stateid)).status

    def flags(self) -> int:
        """What SEQUENCE says."""
        result = self.do()
        result.last.skip(32)
        return result.last.u32()


def lookup(name: str) -> bytes:
    return op(Op.LOOKUP, lambda out: out.opaque(name.encode()))


def with_stateid(number: Op, stateid: Stateid) -> bytes:
    return op(number, stateid.encode)


def opened(result: Result) -> Opened:
    decoder = result.last
    stateid = Stateid.decode(decoder)
    decoder.skip(20 + 4)
    decoder.array(Decoder.u32)
    kind = decoder.u32()
    if kind in (1, 2):
        given = Stateid.decode(decoder)
        assert not decoder.boolean()
        if kind == 2:
            assert (decoder.u32(), decoder.u64()) == (1, 0)
        assert decoder.u32() == 0
        decoder.u32(), decoder.u32(), decoder.opaque()
        decoder.finish()
        return Opened(stateid, kind, given, None)
    return Opened(stateid, kind, None, decoder.u32() if kind == 3 else None)


def _decode(record: bytes) -> Called:
    decoder = Decoder(record)
    header = decode_call(decoder)
    assert (header.version, header.procedure) == (1, 1)
    assert decoder.opaque() == b""
    minor = decoder.u32()
    decoder.u32()
    assert decoder.u32() == 2
    assert decoder.u32() == CB_SEQUENCE
    session, number = decoder.fixed(16), decoder.u32()
    assert [decoder.u32() for _ in range(4)] == [0, 0, 0, 0]
    assert decoder.u32() == CB_RECALL
    stateid = Stateid.decode(decoder)
    assert not decoder.boolean()
    handle = decoder.opaque()
    decoder.finish()
    return Called(header, session, number, stateid, handle, minor)


def until(condition: Callable[[], bool]) -> None:
    """Waits for what another thread brings about."""
    end_s = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < end_s
        time.sleep(0.005)
