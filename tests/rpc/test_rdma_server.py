# SPDX-License-Identifier: BSD-2-Clause
"""The server's side of RPC-over-RDMA, by a client that does everything by hand."""

from __future__ import annotations

import pytest
from rdma_peer import Echo, Peer, data_reply, only_connection, serving, wait_until
from tests.rpc.rdma_chunks import ReadChunk, filled
from tests.rpc.rdma_header import ErrorCode, Proc

from livedma._native.storage import SPARE_RECEIVES
from livedma.rpc.service import Data


def test_a_short_call_and_its_reply() -> None:
    echo = Echo()
    with serving(echo) as (server, device), Peer(device, server.device.address) as peer:
        xid = peer.call(b"ping")
        header, message = peer.reply(xid)
        assert (header.proc, header.credits) == (Proc.RDMA_MSG, 64)
        assert (header.reads, header.writes, header.reply) == ((), (), None)
        assert message == xid.to_bytes(4, "big") + b"ping"
        connection = only_connection(server)
        stats = connection.statistics()
        assert (stats["calls"], stats["slow_calls"], stats["fast_calls"]) == (1, 1, 0)
        assert connection.peer == device.address
    assert [c.number for c in echo.ended] == [connection.number]


def test_data_of_a_call_is_fetched() -> None:
    """A read chunk of several segments in the middle of a message, of an odd length."""
    echo = Echo()
    with serving(echo) as (server, device), Peer(device, server.device.address) as peer:
        peer.memory[100:105], peer.memory[500:502] = b"hello", b"!!"
        segments = (peer.segment(100, 5), peer.segment(500, 2))
        xid = peer.call(b"beginend.", reads=(ReadChunk(8, segments),))
        peer.reply(xid)
    (message,) = echo.messages
    assert message == xid.to_bytes(4, "big") + b"begi" + b"hello!!\0" + b"nend."


def test_data_of_a_reply_is_placed() -> None:
    """In the first write chunk, over several segments; a second one comes back empty."""
    echo = Echo()
    data = bytes(range(250)) * 600
    echo.answer = data_reply(data)
    with serving(echo) as (server, device), Peer(device, server.device.address) as peer:
        first = (peer.segment(0, 70_001), peer.segment(200_000, 90_000), peer.segment(400_000, 9))
        second = (peer.segment(500_000, 100),)
        xid = peer.call(writes=(first, second))
        header, message = peer.reply(xid)
        assert header.writes == (filled(first, len(data)), filled(second, 0))
        assert message == xid.to_bytes(4, "big") + len(data).to_bytes(4, "big") + b"tail"
        assert peer.memory[:70_001] + peer.memory[200_000 : 200_000 + 79_999] == data
        assert only_connection(server).statistics()["bytes_pushed"] == len(data)


def test_data_goes_inline_where_no_chunk_is_offered() -> None:
    echo = Echo()
    echo.answer = data_reply(b"seven..")
    with serving(echo) as (server, device), Peer(device, server.device.address) as peer:
        xid = peer.call()
        assert peer.reply(xid)[1] == xid.to_bytes(4, "big") + b"\0\0\0\7seven..\0tail"


def test_a_long_reply_takes_the_reply_chunk() -> None:
    echo = Echo()
    echo.answer = [bytes(100_000)]
    with serving(echo) as (server, device), Peer(device, server.device.address) as peer:
        peer.memory[:] = b"\xff" * len(peer.memory)
        offered = (peer.segment(0, 65_536), peer.segment(70_000, 65_536))
        xid = peer.call(reply=offered)
        header, message = peer.reply(xid)
        assert (header.proc, message) == (Proc.RDMA_NOMSG, b"")
        assert header.reply == filled(offered, 100_004)
        whole = peer.memory[:65_536] + peer.memory[70_000 : 70_000 + 34_468]
        assert whole == xid.to_bytes(4, "big") + bytes(100_000)


def test_a_short_reply_leaves_the_reply_chunk_alone() -> None:
    with serving(Echo()) as (server, device), Peer(device, server.device.address) as peer:
        xid = peer.call(b"ping", reply=(peer.segment(0, 4096),))
        header, message = peer.reply(xid)
        assert (header.proc, header.reply, message[4:]) == (Proc.RDMA_MSG, None, b"ping")


def test_a_long_call_comes_by_its_chunk() -> None:
    """Position 0 is the reduced message, and another chunk has data that belongs into it."""
    echo = Echo()
    echo.answer = [b"done"]
    with serving(echo) as (server, device), Peer(device, server.device.address) as peer:
        xid = 0x01020304
        reduced = xid.to_bytes(4, "big") + bytes(range(200)) * 30
        peer.memory[: len(reduced)] = reduced
        peer.memory[100_000:170_000] = b"D" * 70_000
        reads = (
            ReadChunk(0, (peer.segment(0, 3000), peer.segment(3000, len(reduced) - 3000))),
            ReadChunk(40, (peer.segment(100_000, 70_000),)),
        )
        peer.call(xid=xid, proc=Proc.RDMA_NOMSG, reads=reads)
        peer.reply(xid)
    assert echo.messages == [reduced[:40] + b"D" * 70_000 + reduced[40:]]


def test_many_calls_at_once() -> None:
    echo = Echo()
    with serving(echo) as (server, device), Peer(device, server.device.address) as peer:
        for _ in range(20):
            xids = [peer.call(bytes([i]) * 40) for i in range(32)]
            for i, xid in enumerate(xids):
                assert peer.reply(xid)[1][4:] == bytes([i]) * 40
        connection = only_connection(server)
        wait_until(lambda: connection.statistics()["replies"] == 640)
        taken = 64 + SPARE_RECEIVES
        wait_until(lambda: connection.memory.receive_pool.stats.data.taken == taken)


def test_a_program_that_fails_is_answered_for() -> None:
    echo = Echo()
    with serving(echo) as (server, device), Peer(device, server.device.address) as peer:
        echo.answer = None
        silent = peer.call()
        wait_until(lambda: len(echo.messages) == 1)
        echo.answer = ()
        peer.reply(peer.call())
        assert silent not in peer.replies
        assert only_connection(server).statistics()["dropped_calls"] == 1


@pytest.mark.parametrize("has_chunk", [False, True])
def test_a_reply_that_fits_nowhere(has_chunk: bool) -> None:
    echo = Echo()
    echo.answer = [bytes(5000)]
    with serving(echo) as (server, device), Peer(device, server.device.address) as peer:
        reply = (peer.segment(0, 5003),) if has_chunk else None
        error = peer.error(peer.call(reply=reply))
        assert (error.code, error.credits) == (ErrorCode.ERR_CHUNK, 64)
        echo.answer = [Data(bytes(11))]
        error = peer.error(peer.call(writes=((peer.segment(0, 10),),)))
        assert error.code == ErrorCode.ERR_CHUNK
        assert only_connection(server).statistics()["errors"]["no_room"] == 2
