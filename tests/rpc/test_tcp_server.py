# SPDX-License-Identifier: BSD-2-Clause
"""RPC over TCP: what a peer may do, and what others notice of one that may not."""

from __future__ import annotations

import ipaddress
import socket
import struct
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

import pytest
from tests.rpc.records import encode_record

from livedma.errors import PortInUseError
from livedma.rpc.service import Connection, Data, Part
from livedma.rpc.tcp_connection import TcpConnection
from livedma.rpc.tcp_server import TcpLimits, TcpServer

PATIENCE_S = 60.0
MUCH = bytes(range(256)) * 1000 + b"12345"


def wait_for(condition: Callable[[], bool]) -> None:
    end = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < end, "it never came true"
        time.sleep(0.005)


class Echo:
    """A program whose calls wait at a gate, if it is closed."""

    def __init__(self) -> None:
        self.gate = threading.Event()
        self.gate.set()
        self.connections: dict[int, Connection] = {}
        self.executing = 0
        self.executed = 0
        self.over: list[int] = []
        self._lock = threading.Lock()

    def __call__(self, connection: Connection, message: bytes) -> Sequence[Part] | None:
        with self._lock:
            self.connections[connection.number] = connection
            self.executing += 1
        assert self.gate.wait(PATIENCE_S)
        with self._lock:
            self.executing -= 1
            self.executed += 1
        if message == b"none":
            return None
        if message == b"fail":
            raise RuntimeError
        if message.startswith(b"long"):
            return [bytes(1 << 20)]
        if message == b"data":
            return [b"head", Data(b"12345"), b"tail"]
        if message == b"much data":
            return [b"head", Data(MUCH), b"tail"]
        return [message]

    def closed(self, connection: Connection) -> None:
        self.over.append(connection.number)


@pytest.fixture
def echo() -> Iterator[Echo]:
    echo = Echo()
    yield echo
    echo.gate.set()


@contextmanager
def serving(echo: Echo, allow: Sequence[str] = (), **limits: float) -> Iterator[TcpServer]:
    networks = [ipaddress.ip_network(one) for one in allow]
    bounds = TcpLimits(**limits)  # type: ignore[arg-type]
    server = TcpServer(echo, "127.0.0.1", allow=networks, limits=bounds, threads=2)
    with server:
        try:
            yield server
        finally:
            echo.gate.set()


def connect(server: TcpServer) -> socket.socket:
    return socket.create_connection(("127.0.0.1", server.port), timeout=PATIENCE_S)


def receive(peer: socket.socket) -> bytes:
    (word,) = struct.unpack(">I", exactly(peer, 4))
    assert word & 0x80000000
    return exactly(peer, word & 0x7FFFFFFF)


def exactly(peer: socket.socket, length: int) -> bytes:
    data = b""
    while len(data) < length:
        part = peer.recv(length - len(data))
        assert part, "the connection was cut"
        data += part
    return data


def ask(peer: socket.socket, message: bytes) -> bytes:
    peer.sendall(encode_record(message))
    return receive(peer)


def is_cut(peer: socket.socket) -> bool:
    try:
        while peer.recv(1 << 16):
            pass
    except ConnectionResetError:
        pass
    return True


def test_calls_and_replies(echo: Echo) -> None:
    with serving(echo) as server, connect(server) as peer:
        assert ask(peer, b"hello") == b"hello"
        assert ask(peer, b"data") == b"head12345\0\0\0tail"
        assert ask(peer, b"much data") == b"head" + MUCH + b"\0\0\0tail"
        assert len(ask(peer, b"long")) == 1 << 20
        peer.sendall(encode_record(b"none") + encode_record(b"fragments", 2))
        assert receive(peer) == b"fragments"
        (facts,) = server.connections()
        assert (facts.peer, facts.port) == peer.getsockname()
        assert facts.calls == 6


def test_calls_of_one_connection_overlap(echo: Echo) -> None:
    echo.gate.clear()
    with serving(echo) as server, connect(server) as peer:
        peer.sendall(encode_record(b"one") + encode_record(b"two"))
        wait_for(lambda: echo.executing == 2)
        echo.gate.set()
        assert {receive(peer), receive(peer)} == {b"one", b"two"}


@pytest.mark.parametrize("limits", [{"outstanding": 1}, {"held_bytes": 64}])
def test_calls_that_have_to_wait_are_all_served(echo: Echo, limits: dict[str, float]) -> None:
    # No call may wait for ever, whichever of the two threads sees first that one has ended.
    calls = [b"%08d" % n for n in range(3000)]
    with serving(echo, **limits) as server, connect(server) as peer:
        peer.sendall(b"".join(map(encode_record, calls)))
        assert sorted(receive(peer) for _ in calls) == calls
        (connection,) = server.open_connections()
        wait_for(lambda: connection.held_bytes == 0 and connection.in_flight == 0)


def test_the_end_of_a_connection_is_told_after_its_last_call(echo: Echo) -> None:
    echo.gate.clear()
    with serving(echo) as server:
        with connect(server) as peer:
            peer.sendall(encode_record(b"late"))
            wait_for(lambda: echo.executing == 1)
        wait_for(lambda: not server.connections())
        assert echo.over == []
        (connection,) = echo.connections.values()
        wait_for(lambda: not connection.is_open)
        echo.gate.set()
        wait_for(lambda: echo.over == [connection.number])


def test_a_connection_is_cut_by_its_program(echo: Echo) -> None:
    with serving(echo) as server, connect(server) as peer, connect(server) as other:
        ask(peer, b"hello")
        (connection,) = echo.connections.values()
        connection.close()
        connection.close()
        assert is_cut(peer)
        wait_for(lambda: echo.over == [connection.number])
        assert ask(other, b"still here") == b"still here"


def test_a_program_that_fails_costs_one_connection(
    echo: Echo, caplog: pytest.LogCaptureFixture
) -> None:
    with serving(echo) as server, connect(server) as peer, connect(server) as other:
        peer.sendall(encode_record(b"fail"))
        assert is_cut(peer)
        assert ask(other, b"still here") == b"still here"
    assert "failed" in caplog.text


@pytest.mark.parametrize(
    "garbage",
    [
        b"\xff\xff\xff\xff",
        b"\x7f\xff\xff\xff",
        struct.pack(">I", 0x80000000 | 4097),
        b"\0\0\0\0" * 65,
        b"GET / HTTP/1.1\r\nHost: example.org\r\n\r\n",
    ],
)
def test_what_is_no_record_is_cut(echo: Echo, garbage: bytes) -> None:
    with serving(echo, record_bytes=4096) as server:
        with connect(server) as peer, connect(server) as other:
            peer.sendall(encode_record(b"before") + garbage)
            assert is_cut(peer)
            assert ask(other, b"x" * 4096) == b"x" * 4096
        assert echo.executed == 2


def test_who_does_not_read_is_not_read_from(echo: Echo) -> None:
    """It asks for a gigabyte and takes nothing; the server holds some, and serves others."""
    limit = 4 << 20
    with serving(echo, held_bytes=limit) as server, connect(server) as peer:
        peer.setblocking(False)
        sent = 0
        call = encode_record(b"long" + bytes(1020))
        try:
            for _ in range(1024 * 64):
                sent += peer.send(call)
        except BlockingIOError:
            pass
        assert sent < 1024 * 64 * len(call)
        with connect(server) as other:
            assert ask(other, b"still here") == b"still here"
        wait_for(lambda: echo.executing == 0)
        stuck = max(server.connections(), key=lambda facts: facts.unsent_bytes)
        # Each of the threads had begun one when it became too much.
        assert stuck.unsent_bytes <= limit + 2 * ((1 << 20) + 4)


def test_calls_without_answer_are_bounded(echo: Echo) -> None:
    echo.gate.clear()
    with serving(echo, outstanding=4) as server, connect(server) as peer:
        peer.sendall(encode_record(b"call") * 5)
        wait_for(lambda: [one.outstanding for one in server.connections()] == [4])
        peer.sendall(encode_record(b"one more"))
        with connect(server) as other:
            other.sendall(encode_record(b"other"))
            wait_for(lambda: sum(one.outstanding for one in server.connections()) == 5)
            assert {one.outstanding for one in server.connections()} == {4, 1}
            echo.gate.set()
            assert receive(other) == b"other"
        replies = [receive(peer) for _ in range(6)]
        assert replies.count(b"call") == 5 and replies.count(b"one more") == 1


@pytest.mark.parametrize("is_halfway", [True, False])
def test_who_is_stuck_is_cut(echo: Echo, is_halfway: bool) -> None:
    """In the middle of a record, or of a reply that it does not take. An idle peer is not."""
    with serving(echo, stalled_s=0.2) as server, connect(server) as idle:
        assert ask(idle, b"hello") == b"hello"
        with connect(server) as peer:
            if is_halfway:
                peer.sendall(encode_record(b"whole") + encode_record(b"half")[:6])
            else:
                peer.sendall(encode_record(b"long") * 64)
            wait_for(lambda: len(server.connections()) == 2)
            wait_for(lambda: len(server.connections()) == 1)
        assert ask(idle, b"still here") == b"still here"


def test_slow_is_not_stuck(echo: Echo) -> None:
    echo.gate.clear()
    with serving(echo, stalled_s=0.2, outstanding=1) as server, connect(server) as peer:
        # While a call is executed nothing is read, so that the other half is not the peer's fault.
        peer.sendall(encode_record(b"slow") + encode_record(b"next")[:6])
        wait_for(lambda: echo.executing == 1)
        time.sleep(0.7)
        assert server.connections()
        echo.gate.set()
        peer.sendall(encode_record(b"next")[6:])
        assert [receive(peer), receive(peer)] == [b"slow", b"next"]


@pytest.mark.slow
def test_thousands_of_connections_are_bounded_and_do_not_displace_those_who_talk(
    echo: Echo,
) -> None:
    with serving(echo, connections=8) as server, connect(server) as peer:
        assert ask(peer, b"first") == b"first"
        for _ in range(1000):
            with connect(server):
                pass
        held = [connect(server) for _ in range(20)]
        try:
            wait_for(lambda: server.accepted >= 1021)
            assert len(server.connections()) <= 8
            assert ask(peer, b"still here") == b"still here"
            assert ask(held[-1], b"the latest") == b"the latest"
        finally:
            for one in held:
                one.close()


def test_when_all_talk_one_more_is_refused(echo: Echo) -> None:
    with serving(echo, connections=2) as server, connect(server) as one, connect(server) as two:
        ask(one, b"hello")
        ask(two, b"hello")
        with connect(server) as three:
            assert is_cut(three)
        assert ask(one, b"still here") == b"still here"


def test_networks_that_may_connect(echo: Echo) -> None:
    with serving(echo, allow=["10.0.0.0/8", "::/0"]) as server:
        with connect(server) as peer:
            assert is_cut(peer)
        assert server.refused == 1
    with serving(echo, allow=["10.0.0.0/8", "127.0.0.0/8"]) as server, connect(server) as peer:
        assert ask(peer, b"hello") == b"hello"


def test_all_addresses_of_both_kinds(echo: Echo) -> None:
    networks = [ipaddress.ip_network("127.0.0.0/8"), ipaddress.ip_network("::1/128")]
    with TcpServer(echo, allow=networks) as server:
        for address in ("127.0.0.1", "::1"):
            with socket.create_connection((address, server.port), timeout=PATIENCE_S) as peer:
                assert ask(peer, b"hello") == b"hello"
                assert {one.peer for one in server.connections()} >= {address}


def test_a_port_in_use(echo: Echo) -> None:
    with serving(echo) as server, pytest.raises(PortInUseError, match=f"port {server.port}"):
        TcpServer(echo, "127.0.0.1", server.port)


def test_closing_cuts_all_and_waits_for_calls(echo: Echo) -> None:
    echo.gate.clear()
    with serving(echo) as server:
        peers = [connect(server) for _ in range(3)]
        for peer in peers:
            peer.sendall(encode_record(b"call"))
        wait_for(lambda: echo.executing == 2)
        threading.Timer(0.05, echo.gate.set).start()
        server.close()
        server.close()
    assert echo.executing == 0 and echo.executed >= 2
    assert len(echo.over) == 3
    for peer in peers:
        assert is_cut(peer)
        peer.close()


def test_calling_the_peer() -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        ours.setblocking(False)
        connection = TcpConnection(ours, "127.0.0.1", 1, 1 << 20, 0.0, lambda _: None)
        assert connection.call(b"hello")
        assert theirs.recv(100) == encode_record(b"hello")
        # A peer that takes nothing is called no more, and what was sent so far is bounded.
        called = 0
        while connection.call(bytes(1 << 18)):
            called += 1
            assert called < 100
        assert connection.unsent_bytes < 2 << 20
        connection.close()
        assert not connection.call(b"hello")
