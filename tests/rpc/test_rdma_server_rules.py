# SPDX-License-Identifier: BSD-2-Clause
"""Every rule of RPC-over-RDMA that a client can break, and what the server makes of it."""

from __future__ import annotations

import struct
from collections.abc import Iterator

import pytest
from rdma_peer import Echo, Peer, data_reply, only_connection, serving, wait_until
from tests.rpc.rdma_chunks import ReadChunk, Segment
from tests.rpc.rdma_header import ErrorCode, Proc

from livedma._native.storage import SPARE_RECEIVES
from livedma.rdma import Device
from livedma.rpc.rdma_server import RdmaServer

pytestmark = pytest.mark.slow

XID = 0x77
CREDITS = 8
POSTED = CREDITS + SPARE_RECEIVES


def words(*values: int) -> bytes:
    return struct.pack(f">{len(values)}I", *values)


SEGMENT = words(5, 8, 0, 64)
MESSAGE, NOMSG = words(XID, 1, 32, 0), words(XID, 1, 32, 1)


@pytest.fixture
def served() -> Iterator[tuple[RdmaServer, Device, Echo]]:
    echo = Echo()
    with serving(echo, credits=CREDITS) as (server, device):
        yield server, device, echo


def lives_on(server: RdmaServer, peer: Peer) -> None:
    """A call still works, and no buffer is missing."""
    peer.reply(peer.call(b"still"))
    connection = only_connection(server)
    wait_until(lambda: connection.statistics()["posted"] == POSTED)
    wait_until(lambda: not connection.memory.data_pool.stats.data.taken)
    assert connection.memory.receive_pool.stats.data.taken == POSTED


@pytest.mark.parametrize(
    "data",
    [
        pytest.param(words(XID, 1, 32, 2, 0, 0, 0, 0, XID), id="RDMA_MSGP"),
        pytest.param(words(XID, 1, 32, 9, 0, 0, 0, XID), id="no procedure"),
        pytest.param(MESSAGE + words(0, 0, 0, XID + 1), id="another XID"),
        pytest.param(MESSAGE + words(0, 0, 0), id="no message"),
        pytest.param(MESSAGE + words(0, 0), id="cut short"),
        pytest.param(MESSAGE + words(2, 0, 0, XID), id="no boolean"),
        pytest.param(MESSAGE + words(1, 6) + SEGMENT + words(0, 0, 0, XID), id="odd position"),
        pytest.param(MESSAGE + words(1, 0) + SEGMENT + words(0, 0, 0, XID), id="position 0"),
        pytest.param(
            MESSAGE + words(1, 8) + SEGMENT + words(1, 12) + SEGMENT + words(0, 0, 0, XID),
            id="overlap",
        ),
        pytest.param(
            MESSAGE + words(0) + (words(1, 1) + SEGMENT) * 17 + words(0, 0, XID), id="many chunks"
        ),
        pytest.param(
            MESSAGE + words(0, 1, 2, 5, 9 << 20, 0, 0, 5, 9 << 20, 0, 0, 0, 0, XID), id="large list"
        ),
        pytest.param(MESSAGE + words(0, 1, 0xFFFFFFFF), id="segments that are not there"),
        pytest.param(NOMSG + words(0, 0, 1, 1) + SEGMENT, id="a reply to nothing"),
        pytest.param(NOMSG + words(1, 0) + SEGMENT + words(0, 0, 0, 0), id="bytes behind NOMSG"),
    ],
)
def test_a_bad_header(served: tuple[RdmaServer, Device, Echo], data: bytes) -> None:
    server, device, echo = served
    with Peer(device, server.device.address) as peer:
        peer.send(data)
        error = peer.error(XID)
        assert (error.code, error.credits, error.version) == (ErrorCode.ERR_CHUNK, 8, 1)
        assert not echo.messages
        lives_on(server, peer)
        assert only_connection(server).statistics()["errors"]["header"] == 1


def test_another_version(served: tuple[RdmaServer, Device, Echo]) -> None:
    server, device, _ = served
    with Peer(device, server.device.address) as peer:
        peer.send(words(XID, 2, 32, 0, 0, 0, 0, XID))
        error = peer.error(XID)
        assert (error.code, error.versions, error.version) == (ErrorCode.ERR_VERS, (1, 1), 2)
        lives_on(server, peer)
        assert only_connection(server).statistics()["errors"]["version"] == 1


@pytest.mark.parametrize(
    ("data", "kind"),
    [
        (b"", "unanswered"),
        (words(XID, 1, 32), "unanswered"),
        (words(XID, 1, 32, 4, 9), "unanswered"),
        (words(XID, 1, 32, 4, 2), "rdma_error"),
        (words(XID, 3, 32, 4, 1, 1, 2), "rdma_error"),
        (words(XID, 1, 32, 3), None),
    ],
)
def test_what_is_not_answered(
    served: tuple[RdmaServer, Device, Echo], data: bytes, kind: str | None
) -> None:
    server, device, _ = served
    with Peer(device, server.device.address) as peer:
        for _ in range(20):  # more than there are Receives
            peer.send(data)
        lives_on(server, peer)
        assert not peer.replies
        stats = only_connection(server).statistics()
        assert stats["dropped_calls"] == 20
        assert stats["errors"] == {name: 20 * (name == kind) for name in stats["errors"]}


def test_no_credits_are_asked_for(served: tuple[RdmaServer, Device, Echo]) -> None:
    server, device, _ = served
    with Peer(device, server.device.address) as peer:
        peer.send(words(XID, 1, 0, 0, 0, 0, 0, XID))
        assert peer.reply(XID)[0].credits == 8


def test_a_chunk_behind_the_message(served: tuple[RdmaServer, Device, Echo]) -> None:
    server, device, _ = served
    with Peer(device, server.device.address) as peer:
        reads = (ReadChunk(16, (peer.segment(0, 8),)),)
        assert peer.error(peer.call(b"8 bytes.", reads=reads)).code == ErrorCode.ERR_CHUNK
        assert only_connection(server).statistics()["errors"]["message"] == 1
        reads = (ReadChunk(12, (peer.segment(0, 8),)),)
        peer.reply(peer.call(b"8 bytes.", reads=reads))
        lives_on(server, peer)


def test_a_long_call_with_another_xid(served: tuple[RdmaServer, Device, Echo]) -> None:
    server, device, echo = served
    with Peer(device, server.device.address) as peer:
        for length in (0, 3, 4, 64):
            reads = (ReadChunk(0, (peer.segment(0, length),)),)
            xid = peer.call(proc=Proc.RDMA_NOMSG, reads=reads)
            assert peer.error(xid).code == ErrorCode.ERR_CHUNK
        lives_on(server, peer)
        assert only_connection(server).statistics()["errors"]["message"] == 4
        assert len(echo.messages) == 1


def test_a_call_that_is_too_long() -> None:
    with (
        serving(Echo(), credits=CREDITS, message_bytes=10_000) as (server, device),
        Peer(device, server.device.address) as peer,
    ):
        reads = (ReadChunk(4, (peer.segment(0, 9993),)),)
        assert peer.error(peer.call(reads=reads)).code == ErrorCode.ERR_CHUNK
        reads = (ReadChunk(4, (peer.segment(0, 9992),)),)
        xid = peer.call(reads=reads, reply=(peer.segment(20_000, 10_000),))
        assert peer.reply(xid)[0].proc == Proc.RDMA_NOMSG
        lives_on(server, peer)


def test_thresholds() -> None:
    """A peer that announces nothing takes 1024 bytes; the server says what it takes."""
    echo = Echo()
    with serving(echo, inline_bytes=8192) as (server, device):
        with Peer(device, server.device.address, inline=None) as peer:
            assert (peer.private.send_bytes, peer.private.receive_bytes) == (8192, 8192)
            echo.answer = [bytes(1024 - 28 - 4)]
            assert len(peer.reply(peer.call())[1]) == 1024 - 28
            echo.answer = [bytes(1024 - 28)]
            assert peer.error(peer.call()).code == ErrorCode.ERR_CHUNK
        with Peer(device, server.device.address, inline=8192) as peer:
            assert len(peer.reply(peer.call())[1]) == 1024 - 24
            assert peer.reply(peer.call(bytes(8192 - 32)))[0].credits


@pytest.mark.parametrize("list_name", ["reads", "writes", "reply"])
def test_a_key_that_is_none(served: tuple[RdmaServer, Device, Echo], list_name: str) -> None:
    """The transport's error ends the connection, and nothing else."""
    server, device, echo = served
    echo.answer = [bytes(5000)] if list_name == "reply" else ()
    with Peer(device, server.device.address) as peer, Peer(device, server.device.address) as other:
        wait_until(lambda: len(server.connections) == 2)
        victim = server.connections[0]
        bad = (Segment(0xBAD, 8192, peer.region.va),)
        if list_name == "writes":
            echo.answer = data_reply(b"data")
        fields = {
            "reads": {"reads": (ReadChunk(4, bad),)},
            "writes": {"writes": (bad,)},
            "reply": {"reply": bad},
        }
        peer.call(**fields[list_name])
        wait_until(lambda: not victim.is_open)
        wait_until(lambda: len(server.connections) == 1)
        assert victim.statistics()["errors"]["connection"] == 1
        echo.answer = ()
        other.reply(other.call())


def test_a_call_longer_than_its_receive(served: tuple[RdmaServer, Device, Echo]) -> None:
    server, device, _ = served
    with Peer(device, server.device.address) as peer:
        only_connection(server)
        peer.send(bytes(4097))
        peer.await_end()
        wait_until(lambda: not server.connections)


@pytest.mark.parametrize("announces", [True, False])
def test_remote_invalidation(served: tuple[RdmaServer, Device, Echo], announces: bool) -> None:
    """The one key of a call is invalidated, if the peer can do that."""
    server, device, echo = served
    with Peer(device, server.device.address, invalidation=announces) as peer:
        echo.answer = [b"word"]
        peer.reply(peer.call())
        assert not peer.invalidated
        two = (peer.segment(0, 8), Segment(1, 8, 0))
        peer.reply(peer.call(reply=two))
        assert not peer.invalidated
        key = peer.region.key
        peer.reply(peer.call(writes=((peer.segment(0, 8), peer.segment(9, 8)),)))
        assert peer.invalidated == ([key] if announces else [])
        assert only_connection(server).statistics()["invalidations"] == announces
