# SPDX-License-Identifier: BSD-2-Clause
"""Connections break at any point, requests come again by others, and each is executed once."""

from __future__ import annotations

import random
import socket
import struct
import threading
from collections.abc import Iterator
from itertools import chain
from pathlib import Path

import pytest
from calling import (
    PUTROOTFH,
    ROOT,
    Export,
    compound,
    create_session,
    destroy_session,
    exchange_id,
    exported,
    op,
    sequence,
)
from tests.rpc.records import encode_record

from livedma.nfs.numbers import PROGRAM, VERSION, Op, Status
from livedma.nfs.server.config import Config
from livedma.rpc.message import Accepted, Call, decode_reply, encode_call
from livedma.rpc.tcp_server import TcpServer
from livedma.rpc.xdr import Decoder

pytestmark = pytest.mark.slow

PATIENCE_S = 60.0


@pytest.fixture
def export(tmp_path: Path) -> Iterator[Export]:
    with exported(tmp_path, Config(squash="none")) as export:
        yield export


@pytest.fixture
def tcp(export: Export) -> Iterator[TcpServer]:
    with TcpServer(export.program, "127.0.0.1", threads=4) as server:
        yield server


def make_directory(name: str) -> bytes:
    """Not idempotent: a second one is EXIST."""
    return op(Op.CREATE, lambda out: (out.u32(2), out.string(name), out.u32(1, 0), out.opaque(b"")))


class Client:
    """One thread's; its connection is replaced whenever it is gone."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._peer: socket.socket | None = None

    def send(self, *ops: bytes) -> None:
        if self._peer is None:
            self._peer = socket.create_connection(("127.0.0.1", self._port), PATIENCE_S)
        message = encode_call(Call(7, PROGRAM, VERSION, 1, ROOT), compound(*ops))
        self._peer.sendall(encode_record(message))

    def receive(self) -> tuple[Status, Decoder]:
        (word,) = struct.unpack(">I", self._exactly(4))
        decoder = Decoder(self._exactly(word & 0x7FFFFFFF))
        assert decode_reply(decoder) == Accepted(7)
        status = Status(decoder.u32())
        decoder.skip(16)
        return status, decoder

    def call(self, *ops: bytes) -> tuple[Status, Decoder]:
        self.send(*ops)
        return self.receive()

    def cut(self) -> None:
        if self._peer is not None:
            self._peer.close()
            self._peer = None

    def _exactly(self, length: int) -> bytes:
        assert self._peer is not None
        data = b""
        while len(data) < length:
            part = self._peer.recv(length - len(data))
            assert part, "the server has cut the connection"
            data += part
        return data


def session_of(client: Client, owner: bytes) -> bytes:
    _, introduced = client.call(exchange_id(owner))
    status, result = client.call(create_session(introduced.u64(), introduced.u32()))
    assert status == Status.OK
    return result.fixed(16)


def persist(client: Client, rng: random.Random, *ops: bytes) -> Status:
    """Sends a request until its reply comes; connections break before, while or after it is
    executed.
    """
    while True:
        client.send(*ops)
        if rng.random() < 0.4:
            client.cut()
            continue
        status, _ = client.receive()
        # It is being executed, by a connection that was cut.
        if status != Status.DELAY:
            return status


def test_each_request_is_executed_once(export: Export, tcp: TcpServer) -> None:
    names = [[f"{thread}-{n}" for n in range(60)] for thread in range(4)]
    wrong: list[object] = []
    shared = Client(tcp.port)
    session = session_of(shared, b"owner")

    def work(slot: int) -> None:
        rng, client = random.Random(slot), Client(tcp.port)
        for number, name in enumerate(names[slot], 1):
            ops = (sequence(session, number, slot, 3), PUTROOTFH, make_directory(name))
            status = persist(client, rng, *ops)
            if status != Status.OK:
                wrong.append((name, status))
        client.cut()

    threads = [threading.Thread(target=work, args=(slot,)) for slot in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []
    assert sorted(path.name for path in export.path.iterdir()) == sorted(chain(*names))
    (facts,) = (one.facts() for one in export.server.sessions.all())
    assert facts.counters["executed"] == 240
    assert facts.counters["replayed"] > 0
    shared.cut()


def test_a_session_goes_on_by_another_connection(export: Export, tcp: TcpServer) -> None:
    first, second = Client(tcp.port), Client(tcp.port)
    session = session_of(first, b"owner")
    ops = (sequence(session), PUTROOTFH, make_directory("one"))
    assert first.call(*ops)[0] == Status.OK
    first.cut()
    assert second.call(*ops)[0] == Status.OK
    again = (sequence(session, 2), PUTROOTFH, make_directory("one"))
    assert second.call(*again)[0] == Status.EXIST
    assert second.call(destroy_session(session))[0] == Status.OK
    second.cut()


def test_sessions_end_while_others_use_them(export: Export, tcp: TcpServer) -> None:
    """Threads use, destroy and make sessions of one connection all at once: nobody is hurt."""
    bystander = Client(tcp.port)
    kept = session_of(bystander, b"bystander")
    stolen: list[bytes] = []
    wrong: list[object] = []

    def make_and_destroy(name: bytes) -> None:
        client = Client(tcp.port)
        for _ in range(30):
            session = session_of(client, name)
            stolen.append(session)
            client.call(sequence(session))
            status, _ = client.call(destroy_session(session))
            if status != Status.OK:
                wrong.append(status)
        client.cut()

    def use() -> None:
        client = Client(tcp.port)
        for number in range(1, 120):
            session = stolen[number % len(stolen)] if stolen else kept
            status, _ = client.call(sequence(session, 1, 1), PUTROOTFH)
            if status not in (Status.OK, Status.BADSESSION, Status.DELAY):
                wrong.append(status)
        client.cut()

    threads = [threading.Thread(target=make_and_destroy, args=(b"%d" % n,)) for n in range(2)]
    threads += [threading.Thread(target=use) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []
    assert bystander.call(sequence(kept))[0] == Status.OK
    assert len(export.server.sessions) == 1
    bystander.cut()
