# SPDX-License-Identifier: BSD-2-Clause
"""A client for tests, without a network: builds COMPOUNDs, calls the program, reads the results."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from livedma._native.calls import CallAccount
from livedma.nfs.numbers import PROGRAM, VERSION, Op, Status
from livedma.nfs.server.config import Config
from livedma.nfs.server.parts import Server
from livedma.nfs.server.persist import Persist
from livedma.nfs.server.program import NfsProgram
from livedma.nfs.server.store import Store
from livedma.rpc.message import Accepted, AcceptStatus, AuthSys, Call, decode_reply, encode_call
from livedma.rpc.service import Data
from livedma.rpc.xdr import Decoder, Encoder

ROOT = AuthSys(0, b"client", 0, 0)
OTHER = AuthSys(0, b"client", 1111, 37)
VERIFIER = b"verifier"
UPDATE, CONFIRMED, NON_PNFS = 0x40000000, 0x80000000, 0x10000

_numbers = itertools.count(1)


class Clock:
    """Monotonic seconds that pass when a test says so."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


@dataclass(eq=False)
class Wire:
    """A `Connection` that nothing is behind."""

    peer: str = "192.0.2.1"
    kind: Literal["tcp", "rdma"] = "tcp"
    number: int = field(default_factory=lambda: next(_numbers))
    is_open: bool = True
    account: CallAccount = field(default_factory=CallAccount)

    def close(self) -> None:
        self.is_open = False

    def moved(self, read_bytes: int, written_bytes: int, storage_ns: int) -> None:
        self.account.moved(read_bytes, written_bytes, storage_ns)


@dataclass(frozen=True, slots=True)
class Channel:
    """channel_attrs4 as a client asks for it."""

    request: int = 8192
    response: int = 8192
    cached: int = 2048
    operations: int = 16
    requests: int = 8
    ird: tuple[int, ...] = ()

    def encode(self, out: Encoder) -> None:
        out.u32(0, self.request, self.response, self.cached, self.operations, self.requests)
        out.array(self.ird, Encoder.u32)


@dataclass(frozen=True, slots=True)
class Result:
    """COMPOUND4res. `last` is at the body of the last operation's result, if any."""

    status: Status
    tag: bytes
    ops: int
    raw: bytes
    last_op: int | None
    last: Decoder


def op(number: int, write: Callable[[Encoder], object] | None = None) -> bytes:
    out = Encoder()
    out.u32(number)
    if write:
        write(out)
    return bytes(out)


# Results of operations that tests put before the last one, if they have any.
_BODIES: dict[Op, Callable[[Decoder], object]] = {
    Op.SEQUENCE: lambda decoder: decoder.skip(36),
    Op.GETFH: lambda decoder: decoder.opaque(),
    Op.SECINFO: lambda decoder: decoder.array(Decoder.u32),
}

PUTROOTFH = op(Op.PUTROOTFH)
GETFH = op(Op.GETFH)


def exchange_id(
    owner: bytes = b"owner",
    verifier: bytes = VERIFIER,
    flags: int = 0,
    protection: bytes = bytes(4),
    implementations: int = 0,
) -> bytes:
    def write(out: Encoder) -> None:
        out.fixed(verifier, 8)
        out.opaque(owner)
        out.u32(flags)
        out.raw(protection)
        out.u32(implementations)
        for _ in range(implementations):
            out.string("example.org")
            out.string("test")
            out.i64(0)
            out.u32(0)

    return op(Op.EXCHANGE_ID, write)


def create_session(
    client: int,
    sequence: int = 1,
    flags: int = 0,
    fore: Channel = Channel(),  # noqa: B008 - frozen
    back: Channel = Channel(),  # noqa: B008
) -> bytes:
    def write(out: Encoder) -> None:
        out.u64(client)
        out.u32(sequence, flags)
        fore.encode(out)
        back.encode(out)
        out.u32(0x40000000, 1, 0)

    return op(Op.CREATE_SESSION, write)


def sequence(
    session: bytes, number: int = 1, slot: int = 0, highest: int = 0, cache: bool = False
) -> bytes:
    def write(out: Encoder) -> None:
        out.fixed(session, 16)
        out.u32(number, slot, highest, cache)

    return op(Op.SEQUENCE, write)


def bind(session: bytes, wanted: int = 1) -> bytes:
    return op(
        Op.BIND_CONN_TO_SESSION,
        lambda out: (out.fixed(session, 16), out.u32(wanted), out.boolean(True)),
    )


def destroy_session(session: bytes) -> bytes:
    return op(Op.DESTROY_SESSION, lambda out: out.fixed(session, 16))


def destroy_clientid(client: int) -> bytes:
    return op(Op.DESTROY_CLIENTID, lambda out: out.u64(client))


def reclaim_complete(one_filesystem: bool = False) -> bytes:
    return op(Op.RECLAIM_COMPLETE, lambda out: out.boolean(one_filesystem))


def compound(*ops: bytes, minor: int = 1, tag: bytes = b"", count: int | None = None) -> bytes:
    out = Encoder()
    out.opaque(tag)
    out.u32(minor, len(ops) if count is None else count)
    return bytes(out) + b"".join(ops)


class Peer:
    """A client at one connection."""

    def __init__(
        self, program: NfsProgram, wire: Wire | None = None, credential: AuthSys = ROOT
    ) -> None:
        self.program = program
        self.wire = wire or Wire()
        self.credential = credential
        self._xids = itertools.count(1)

    def rpc(self, arguments: bytes, procedure: int = 1, version: int = VERSION) -> bytes:
        call = Call(next(self._xids), PROGRAM, version, procedure, self.credential)
        parts = self.program(self.wire, encode_call(call, arguments))
        assert parts is not None
        out = bytearray()
        for part in parts:
            if isinstance(part, Data):
                out += part.data
                out += bytes(-len(part.data) % 4)
            else:
                out += part
        return bytes(out)

    def send(self, *ops: bytes, **options: object) -> Result:
        """A COMPOUND that is expected to be understood as RPC."""
        decoder = Decoder(self.rpc(compound(*ops, **options)))  # type: ignore[arg-type]
        reply = decode_reply(decoder)
        assert isinstance(reply, Accepted) and reply.status == AcceptStatus.SUCCESS, reply
        raw = decoder.data[decoder.pos :]
        status, tag, count = Status(decoder.u32()), decoder.opaque(), decoder.u32()
        last_op: int | None = None
        for n in range(count):
            if last_op in _BODIES:
                _BODIES[Op(last_op)](decoder)
            last_op = decoder.u32()
            assert decoder.u32() == (status if n + 1 == count else Status.OK)
        return Result(status, tag, count, raw, last_op, decoder)

    def status(self, *ops: bytes, **options: object) -> Status:
        return self.send(*ops, **options).status

    def exchange(self, owner: bytes = b"owner", **options: object) -> tuple[int, int, int]:
        """The client ID, the sequence of its CREATE_SESSION, flags."""
        result = self.send(exchange_id(owner, **options))  # type: ignore[arg-type]
        assert result.status == Status.OK
        return result.last.u64(), result.last.u32(), result.last.u32()

    def session(self, owner: bytes = b"owner", **options: object) -> tuple[int, bytes]:
        """A new client's ID and the id of its session."""
        number, sequence, _ = self.exchange(owner)
        return number, self.another(number, sequence, **options)

    def another(self, client: int, sequence: int, **options: object) -> bytes:
        result = self.send(create_session(client, sequence, **options))  # type: ignore[arg-type]
        assert result.status == Status.OK
        return result.last.fixed(16)


@dataclass
class Export:
    """A server with a clock of its own."""

    server: Server
    program: NfsProgram
    clock: Clock
    path: Path


@contextmanager
def exported(directory: Path, config: Config | None = None) -> Iterator[Export]:
    """A server of a new directory below `directory`; called again, it is a restart."""
    path = directory / "export"
    path.mkdir(exist_ok=True)
    clock = Clock()
    config = config or Config()
    with Persist(directory / "state") as persist:
        store = Store(path, secret=persist.secret("handles"), config=config)
        server = Server(store, persist, config, clock=clock)
        try:
            yield Export(server, NfsProgram(server), clock, path)
        finally:
            store.close()
