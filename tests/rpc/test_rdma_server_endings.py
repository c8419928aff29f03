# SPDX-License-Identifier: BSD-2-Clause
"""A connection may end at any moment: all that it had comes back, and others do not notice."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import pytest
from rdma_peer import PATIENCE, PORT, Echo, Peer, data_reply, only_connection, serving, wait_until
from tests.rpc.rdma_chunks import ReadChunk

from livedma._native.pool import Buffer
from livedma.rdma import cm
from livedma.rpc.rdma_server import RdmaConnection, RdmaServer
from livedma.rpc.service import Connection, Part

pytestmark = pytest.mark.slow


class Stage(Echo):
    """Lets calls wait in the program."""

    def __init__(self) -> None:
        super().__init__()
        self.is_open = threading.Event()
        self.is_open.set()
        self.inside = 0

    def __call__(self, connection: Connection, message: bytes) -> Sequence[Part] | None:
        self.inside += 1
        assert self.is_open.wait(PATIENCE)
        return super().__call__(connection, message)


@contextmanager
def without_buffers(connection: RdmaConnection) -> Iterator[None]:
    """Nobody finds a data buffer meanwhile, nor one of those that are kept back."""
    held: list[Buffer] = []
    for control in (False, True):
        while (buffer := connection.memory.data_pool.try_take(control)) is not None:
            held.append(buffer)
    yield
    for buffer in held:
        buffer.release()


def cut(peer: Peer, connection: RdmaConnection, by: str) -> None:
    if by == "peer":
        peer.connection.disconnect(timeout=PATIENCE)
    else:
        connection.close()
        connection.close()
        peer.await_end()


def is_gone(server: RdmaServer, stage: Stage, connection: RdmaConnection) -> None:
    wait_until(lambda: not server.connections)
    assert stage.ended == [connection]
    assert not connection.is_open
    assert connection.memory.window.closed
    assert connection.memory.receive_pool.closed
    assert connection.memory.data_pool.closed
    stats = connection.statistics()
    left = ("posted", "in_progress", "replying", "waiting_pieces", "queued_sends", "gathered_bytes")
    assert [stats[name] for name in left] == [0] * len(left)


CUTS = pytest.mark.parametrize("by", ["peer", "server"])


@CUTS
def test_idle(by: str) -> None:
    stage = Stage()
    with serving(stage) as (server, device), Peer(device, server.device.address) as peer:
        peer.reply(peer.call())
        connection = only_connection(server)
        cut(peer, connection, by)
        is_gone(server, stage, connection)


@CUTS
def test_in_the_program(by: str) -> None:
    """And in the queue before it; memory stays as long as somebody may use it."""
    stage = Stage()
    stage.is_open.clear()
    with serving(stage, workers=2) as (server, device), Peer(device, server.device.address) as peer:
        for _ in range(6):
            peer.call()
        connection = only_connection(server)
        wait_until(lambda: stage.inside == 2 and connection.statistics()["in_progress"] == 6)
        cut(peer, connection, by)
        wait_until(lambda: not connection.is_open)
        assert not stage.ended
        assert not connection.memory.window.closed
        stage.is_open.set()
        is_gone(server, stage, connection)
        assert stage.inside == 6


@CUTS
def test_while_a_call_is_fetched(by: str) -> None:
    stage = Stage()
    with serving(stage) as (server, device), Peer(device, server.device.address) as peer:
        connection = only_connection(server)
        with without_buffers(connection):
            for _ in range(5):
                peer.call(reads=(ReadChunk(4, (peer.segment(0, 100_000),)),))
            wait_until(lambda: connection.statistics()["waiting_pieces"] >= 5)
            cut(peer, connection, by)
            wait_until(lambda: not connection.statistics()["waiting_pieces"])
        is_gone(server, stage, connection)
        assert not stage.messages


@CUTS
def test_while_calls_wait_to_be_fetched(by: str) -> None:
    stage = Stage()
    with (
        serving(stage, message_bytes=100_000, gathered_bytes=100_000) as (server, device),
        Peer(device, server.device.address) as peer,
    ):
        connection = only_connection(server)
        with without_buffers(connection):
            for _ in range(5):
                peer.call(reads=(ReadChunk(4, (peer.segment(0, 90_000),)),))
            wait_until(lambda: connection.statistics()["in_progress"] == 5)
            cut(peer, connection, by)
            wait_until(lambda: not connection.statistics()["in_progress"])
        is_gone(server, stage, connection)


@CUTS
@pytest.mark.parametrize("how", ["data", "long reply"])
def test_while_data_is_placed(by: str, how: str) -> None:
    stage = Stage()
    stage.answer = data_reply(bytes(200_000)) if how == "data" else [bytes(200_000)]
    with serving(stage) as (server, device), Peer(device, server.device.address) as peer:
        connection = only_connection(server)
        with without_buffers(connection):
            for _ in range(5):
                chunk = (peer.segment(0, 300_000),)
                if how == "data":
                    peer.call(writes=(chunk,))
                else:
                    peer.call(reply=chunk)
            wait_until(lambda: connection.statistics()["waiting_pieces"] >= 5)
            cut(peer, connection, by)
            wait_until(lambda: not connection.statistics()["in_progress"])
        is_gone(server, stage, connection)


@CUTS
def test_while_replies_find_no_receive(by: str) -> None:
    stage = Stage()
    with (
        serving(stage) as (server, device),
        Peer(device, server.device.address, receives=0) as peer,
    ):
        connection = only_connection(server)
        for _ in range(20):
            peer.call()
        wait_until(lambda: connection.statistics()["replying"] == 20)
        if by == "server":
            connection.close()
        else:
            peer.connection.disconnect(timeout=PATIENCE)
        is_gone(server, stage, connection)


def test_a_peer_that_takes_no_replies_is_cut_off() -> None:
    """In time, and others are served meanwhile."""
    stage = Stage()
    with serving(stage, stall_s=1.0) as (server, device):
        address = server.device.address
        with Peer(device, address, receives=0) as peer, Peer(device, address) as other:
            wait_until(lambda: len(server.connections) == 2)
            stuck, fine = server.connections
            for _ in range(60):  # bounded by what it may have under way, whatever it sends
                peer.call()
            while stuck.is_open:
                other.reply(other.call())
            wait_until(lambda: server.connections == [fine])
            assert stuck.statistics()["errors"]["stalled"] == 1
            other.reply(other.call())


def test_while_the_server_closes() -> None:
    stage = Stage()
    stage.is_open.clear()
    with serving(stage) as (server, device), Peer(device, server.device.address) as peer:
        peer.call()
        wait_until(lambda: stage.inside == 1)
        connection = only_connection(server)
        closing = threading.Thread(target=server.close)
        closing.start()
        peer.await_end()
        assert not stage.ended
        stage.is_open.set()
        closing.join(PATIENCE)
        assert not closing.is_alive()
        is_gone(server, stage, connection)
        server.close()


def test_while_a_connection_gets_its_memory() -> None:
    """A server that ends does not wait for what may take long, and the peer is refused."""
    with serving(Echo(), window_bytes=1 << 30, buffer_bytes=1) as (server, device):
        closing = threading.Thread(target=server.close)

        @contextmanager
        def while_it_closes(_: int) -> Iterator[None]:
            closing.start()
            wait_until(lambda: server.is_closing)
            yield

        server.admitting = while_it_closes
        with pytest.raises(cm.ConnectError):
            Peer(device, server.device.address)
        closing.join(PATIENCE)
        assert not closing.is_alive()
        assert not server.connections and server.refused == 1


def test_buffers_of_one_byte() -> None:
    """A call takes more of them than there are, and goes through them in turn."""
    echo = Echo()
    echo.answer = data_reply(b"x" * 9000)
    with (
        serving(echo, mapped_bytes=1 << 19, buffer_bytes=1) as (server, device),
        Peer(device, server.device.address) as peer,
    ):
        xid = peer.call(writes=((peer.segment(0, 9000),),))
        peer.reply(xid)
        assert peer.memory[:9000] == b"x" * 9000
        peer.call(writes=((peer.segment(0, 9000),),))  # it is cut off in the middle of this one
        server.close()
        peer.await_end()


def test_a_device_closes_its_servers() -> None:
    stage = Stage()
    with serving(stage) as (server, device), Peer(device, server.device.address) as peer:
        peer.reply(peer.call())
        connection = only_connection(server)
        server.device.close()
        is_gone(server, stage, connection)
        assert server.service.is_stopped


def test_a_peer_that_is_gone_without_a_word() -> None:
    """Its device has vanished: replies are not acknowledged, and retries run out."""
    stage = Stage()
    stage.is_open.clear()
    with serving(stage, stall_s=2.0) as (server, device):
        peer = Peer(device, server.device.address)
        for _ in range(4):
            peer.call()
        wait_until(lambda: stage.inside > 0)
        connection = only_connection(server)
        peer.connection.qp.close()  # nobody says so to the other side
        stage.is_open.set()
        is_gone(server, stage, connection)
        peer.close()


def test_connections_come_and_go() -> None:
    stage = Stage()
    with serving(stage, credits=8, connections=4) as (server, device):
        for round_ in range(15):
            with Peer(device, server.device.address) as peer:
                for _ in range(8):
                    last = peer.call()
                if round_ % 3:
                    peer.reply(last)
            wait_until(lambda: len(server.connections) < 3)
        wait_until(lambda: not server.connections)
        assert len(stage.ended) == 15


def test_a_program_that_raises(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its caller gets SYSTEM_ERR; the exception is told, and the worker goes on."""
    told: list[str] = []
    monkeypatch.setattr(threading, "excepthook", lambda args: told.append(str(args.exc_value)))
    echo = Echo()
    echo.answer = RuntimeError("no way")
    with serving(echo, workers=1) as (server, device), Peer(device, server.device.address) as peer:
        for _ in range(2):
            xid = peer.call()
            words = peer.reply(xid)[1]
            assert words == xid.to_bytes(4, "big") + bytes.fromhex(
                "00000001 00000000 00000000 00000000 00000005"
            )
        assert told == ["no way"] * 2


def test_a_port_that_is_taken() -> None:
    """Nothing is left of a server that cannot listen."""
    with serving(Echo()) as (server, _):
        before = len(server.device.before_close)
        with pytest.raises(Exception, match=str(PORT)):
            RdmaServer(server.device, PORT, Echo())
        assert len(server.device.before_close) == before


def test_a_service_waits_for_its_endpoints() -> None:
    with serving(Echo()) as (server, device), Peer(device, server.device.address):
        only_connection(server)
        with pytest.raises(ValueError, match="not over"):
            server.service.stop()


def test_only_programs_are_programs() -> None:
    with serving(Echo()) as (server, _):
        with pytest.raises((TypeError, ValueError)):
            server.set_native_program(object())
        server.set_native_program(None)


def test_what_is_over_stays_harmless() -> None:
    """A caller that still knows a connection may use its levers, even when the device is gone."""
    stage = Stage()
    with serving(stage) as (server, device), Peer(device, server.device.address) as peer:
        peer.reply(peer.call())
        connection = only_connection(server)
        endpoint = connection.endpoint
    assert server.device.closed
    connection.close()
    assert endpoint is not None
    endpoint.credits = 7
    endpoint.start()
    assert (endpoint.is_open, endpoint.statistics()["credits"]) == (False, 7)
    connection.credits = 8
    assert (connection.is_open, connection.credits) == (False, 0)
    assert connection.statistics()["calls"] == 1


def test_a_peer_that_answers_no_reads() -> None:
    """It has agreed to none at a time: what would need one ends the connection."""
    stage = Stage()
    with (
        serving(stage) as (server, device),
        Peer(device, server.device.address, responder_resources=0) as peer,
    ):
        connection = only_connection(server)
        peer.reply(peer.call())
        peer.call(reads=(ReadChunk(4, (peer.segment(0, 8),)),))
        is_gone(server, stage, connection)


def test_a_peer_that_says_nothing_is_cut_off() -> None:
    """It may be gone without a word; one that speaks now and then stays."""
    with serving(Stage(), idle_s=1.0) as (server, device):
        silent = Peer(device, server.device.address)
        connection = only_connection(server)
        with Peer(device, server.device.address) as other:
            wait_until(lambda: len(server.connections) == 2)
            while connection in server.connections:
                other.reply(other.call())
            assert [one.is_open for one in server.connections] == [True]
        silent.await_end()
        silent.close()
