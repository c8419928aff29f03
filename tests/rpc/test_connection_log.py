# SPDX-License-Identifier: BSD-2-Clause
"""Each peer that connects, leaves or is refused is in the log, in a bounded number of lines."""

from __future__ import annotations

import asyncio
import ipaddress
import logging
import socket
from collections.abc import Callable, Iterator

import pytest
from rdma_peer import HERE, PORT, THERE, Echo, Peer, only_connection, serving, wait_until
from tests.rpc.records import encode_record

from livedma.rdma import Device, cm
from livedma.rpc import connection_log, rdma_client, tcp_client
from livedma.rpc.client import ConnectionRefusedByServer
from livedma.rpc.connection_log import ConnectionLog, Told
from livedma.rpc.connection_log import Peer as From
from livedma.rpc.message import AuthStatus, Call, Denied, decode_reply, encode_call
from livedma.rpc.rdma_server import Options, RdmaServer
from livedma.rpc.refusal import (
    decode_refusal,
    encode_refusal,
    not_connected,
    raise_if_denied,
)
from livedma.rpc.tcp_refusal import AT_ONCE
from livedma.rpc.tcp_server import TcpLimits, TcpServer
from livedma.rpc.xdr import Decoder

WHO = From("10.0.0.9", 4711, "rdma")


class Lines(logging.Handler):
    """What connections were told of, as records have it."""

    def __init__(self) -> None:
        super().__init__()
        self.told: list[Told] = []

    def emit(self, record: logging.LogRecord) -> None:
        told = record.told  # type: ignore[attr-defined]
        assert record.getMessage() == told.line
        self.told.append(told)

    def of(self, kind: str) -> list[Told]:
        return [one for one in self.told if one.kind == kind]

    def one(self, kind: str) -> Told:
        wait_until(lambda: self.of(kind))
        (found,) = self.of(kind)
        return found


@pytest.fixture
def lines() -> Iterator[Lines]:
    logger = logging.getLogger(connection_log.LOGGER)
    handler, level = Lines(), logger.level
    logger.addHandler(handler)
    logger.setLevel(logging.INFO)
    yield handler
    logger.removeHandler(handler)
    logger.setLevel(level)


def test_lines(lines: Lines) -> None:
    log = ConnectionLog()
    log.accepted(3, WHO)
    log.client(3, "10.0.0.9", "Linux 'x'")
    log.left(3, From("fd00::1", 7, "tcp"), "the peer disconnected", 3700.2, 12)
    log.refused(WHO, "no")
    assert [one.line for one in lines.told] == [
        "accepted  connection 3: 10.0.0.9:4711 over rdma",
        "client    connection 3: 10.0.0.9 calls itself \"Linux 'x'\"",
        "left      connection 3: [fd00::1]:7 over tcp: the peer disconnected; it was there for "
        "1:01:40 h and made 12 calls",
        "refused   10.0.0.9:4711 over rdma: no",
    ]


def test_a_flood_has_so_many_lines_and_the_rest_is_counted(lines: Lines) -> None:
    now_s = 100.0
    log = ConnectionLog(lambda: now_s)
    for _ in range(10_000):
        log.refused(WHO, "no")
    assert len(lines.told) == connection_log.AT_ONCE
    log.accepted(1, WHO)  # another kind has lines of its own
    assert lines.told[-1].kind == "accepted"
    log.tick()
    assert len(lines.told) == connection_log.AT_ONCE + 1
    now_s += 1.0
    log.tick()
    assert lines.told[-1].data == {"suppressed": 10_000 - connection_log.AT_ONCE}
    assert lines.told[-1].line.startswith("refused   9900 more, without a line for each")
    before = len(lines.told)
    for _ in range(10_000):
        log.refused(WHO, "no")
    assert len(lines.told) - before <= connection_log.EACH_SECOND
    now_s += 1000.0
    log.refused(WHO, "no")
    assert [one.text for one in lines.told[-2:]] == [
        f"{10_000 - len(lines.told) + before + 1 + 1} more, without a line for each: there were "
        "too many in too short a time",
        "10.0.0.9:4711 over rdma: no",
    ]


def test_a_refusal_fits_into_its_private_data() -> None:
    assert decode_refusal(encode_refusal("no", is_lasting=True) + bytes(100)) == ("no", True)
    long = encode_refusal("ö" * 200, is_lasting=False)
    assert len(long) <= 148
    found = decode_refusal(long)
    assert found is not None and set(found[0]) == {"ö"} and not found[1]
    hostile = encode_refusal("a\x1b[2Jb\n", is_lasting=True)
    assert decode_refusal(hostile) == ("a?[2Jb?", True)
    for other in (b"", bytes(148), b"LdmaREJ1", b"LdmaREJ1?x"):
        assert decode_refusal(other) is None
    plain = not_connected(cm.RejectedError("10.0.0.1", 28))
    assert str(plain) == "10.0.0.1 rejected the connection: consumer reject"


@pytest.mark.slow
def test_who_comes_and_goes_over_rdma(lines: Lines) -> None:
    with serving(Echo()) as (server, device):
        with Peer(device, server.device.address) as peer:
            peer.reply(peer.call())
            number = only_connection(server).number
            accepted = lines.one("accepted")
            assert accepted.connection == number
            assert accepted.data["peer"] == device.address and accepted.data["port"] > 0
        left = lines.one("left")
        assert (left.connection, left.data["calls"]) == (number, 1)
        assert left.data["why"] == "the peer disconnected"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("options", "cut", "why"),
    [
        ({}, lambda server: server.close(), "the server ends"),
        ({}, lambda server: server.connections[0].close(), "the server cut it"),
        ({"idle_s": 0.1}, lambda server: None, "the peer was silent for 0.1 s"),
    ],
)
def test_why_a_connection_over_rdma_was_cut(
    lines: Lines, options: dict[str, float], cut: Callable[[RdmaServer], None], why: str
) -> None:
    with serving(Echo(), **options) as (server, device), Peer(device, server.device.address):
        lines.one("accepted")
        cut(server)
        assert lines.one("left").data["why"] == why


@pytest.mark.slow
@pytest.mark.parametrize(
    ("options", "allow", "why", "is_lasting"),
    [
        ({}, "10.0.0.0/8", f"{HERE} is not in its --allow list", True),
        ({"window_bytes": 64 << 10}, "::/0", "room", False),
        ({"connections": 0}, "::/0", "it has 0 connections, and takes no more", False),
        ({"credits_max": 1 << 20}, "::/0", "", False),  # which fails when it is being accepted
    ],
)
def test_a_refusal_over_rdma_is_logged_and_named_at_the_client(
    lines: Lines, options: dict[str, int], allow: str, why: str, is_lasting: bool
) -> None:
    networks = [ipaddress.ip_network(allow), ipaddress.ip_network("0.0.0.0/0")]
    merged = {"window_bytes": 4 << 20, "connections": 8, **options}
    with (
        Device(HERE) as here,
        Device(THERE) as there,
        RdmaServer(
            there,
            PORT,
            Echo(),
            allow=networks[: 1 if is_lasting else 2],
        ) as server,
    ):
        server.options = Options(**merged)  # type: ignore[arg-type]
        with pytest.raises(ConnectionRefusedByServer, match=f"the connection: .*{why}") as e:
            asyncio.run(rdma_client.connect(THERE, PORT, device=here))
        assert e.value.is_lasting is is_lasting
        refused = lines.one("refused")
        assert why in refused.text and refused.data["transport"] == "rdma"
        assert not lines.of("accepted") and server.refused == 1


def tcp(allow: str = "0.0.0.0/0", **limits: float) -> TcpServer:
    bounds = TcpLimits(**limits)  # type: ignore[arg-type]
    networks = [ipaddress.ip_network(allow)]
    return TcpServer(Echo(), "127.0.0.1", allow=networks, limits=bounds, threads=1)


def test_who_comes_and_goes_over_tcp(lines: Lines) -> None:
    with tcp(stalled_s=0.2) as server:
        with socket.create_connection(("127.0.0.1", server.port)) as peer:
            peer.sendall(encode_record(b"ping"))
            assert peer.recv(100)
            accepted = lines.one("accepted")
            assert accepted.data["port"] == peer.getsockname()[1]
        left = lines.one("left")
        assert left.connection == accepted.connection
        assert (left.data["why"], left.data["calls"]) == ("the peer disconnected", 1)
        with socket.create_connection(("127.0.0.1", server.port)) as peer:
            peer.sendall(b"\x80")
            assert not peer.recv(100)
        assert lines.of("left")[-1].data["why"] == "the peer stopped in the middle for 0.2 s"
        with socket.create_connection(("127.0.0.1", server.port)) as peer:
            peer.sendall(b"\xff\xff\xff\xff")
            assert not peer.recv(100)
        assert lines.of("left")[-1].data["why"].startswith("the peer broke the rules: ")
        with socket.create_connection(("127.0.0.1", server.port)):
            wait_until(lambda: len(lines.of("accepted")) == 4)
            assert server.cut(lines.of("accepted")[-1].connection or 0)
            wait_until(lambda: len(lines.of("left")) == 4)
        assert lines.of("left")[-1].data["why"] == "the server cut it"


def test_too_many_over_tcp(lines: Lines) -> None:
    with tcp(connections=1) as server:
        with socket.create_connection(("127.0.0.1", server.port)) as one:
            one.sendall(encode_record(b"ping"))
            assert one.recv(100)
            with socket.create_connection(("127.0.0.1", server.port)) as other:
                assert not other.recv(100)
        assert "it has 1 connections, and takes no more" in lines.one("refused").text


def test_the_first_call_of_a_peer_that_may_not_connect_is_denied(lines: Lines) -> None:
    with tcp("10.0.0.0/8") as server, socket.create_connection(("127.0.0.1", server.port)) as peer:
        peer.settimeout(20)
        record = encode_record(encode_call(Call(7, 100003, 4, 0)))
        peer.sendall(record[:9])
        assert "127.0.0.1 is not in its --allow list" in lines.one("refused").text
        peer.sendall(record[9:] + bytes(5000))
        answer = b""
        while some := peer.recv(1000):
            answer += some
        reply = decode_reply(Decoder(answer[4:]))
        assert isinstance(reply, Denied) and reply.xid == 7
        assert reply.auth_status == AuthStatus.AUTH_TOOWEAK
        with pytest.raises(ConnectionRefusedByServer, match="does not serve clients at this addr"):
            raise_if_denied(reply)
    assert server.refused == 1 and not lines.of("accepted")


def test_peers_that_may_not_connect_take_no_room(lines: Lines) -> None:
    with tcp("10.0.0.0/8") as server:
        peers = [socket.create_connection(("127.0.0.1", server.port)) for _ in range(AT_ONCE + 8)]
        for peer in peers[AT_ONCE:]:
            peer.settimeout(20)
            assert not peer.recv(100)  # closed at once
        peers[0].sendall(encode_record(b"no call at all"))
        peers[0].settimeout(20)
        assert not peers[0].recv(100)
        assert len(lines.of("refused")) == AT_ONCE + 8
        assert not server.connections()
    for peer in peers:
        peer.close()


async def _call(port: int) -> None:
    transport = await tcp_client.connect("127.0.0.1", port)
    answer = await transport.call(encode_call(Call(0, 100003, 4, 0)))
    raise_if_denied(decode_reply(Decoder(answer.message)))


def test_our_client_over_tcp_is_told() -> None:
    with tcp("10.0.0.0/8") as server, pytest.raises(ConnectionRefusedByServer):
        asyncio.run(_call(server.port))
