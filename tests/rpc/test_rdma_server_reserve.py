# SPDX-License-Identifier: BSD-2-Clause
"""What data leaves for control traffic: buffers for long messages, and a thread for short work.

Each test has the same server without the reserve beside it, which fails where the other one does
not.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

import pytest
from rdma_peer import PATIENCE, Echo, Peer, only_connection, serving, wait_until
from tests.rpc.rdma_chunks import ReadChunk
from tests.rpc.rdma_header import Proc

from livedma._native.accelerator import Accelerator
from livedma._native.nfs import Changes, WriteVerifier
from livedma.nfs.numbers import PROGRAM, VERSION
from livedma.rpc.message import Call, encode_call
from livedma.rpc.rdma_server import RdmaConnection
from livedma.rpc.service import Connection, Part

PIECES = 3
LENGTH = PIECES * 4096
FEW = {"credits": 8, "mapped_bytes": 0, "buffer_bytes": 4096}  # one buffer for data


@contextmanager
def all_taken(connection: RdmaConnection) -> Iterator[None]:
    """While data has all the buffers that it can have."""
    pool, held = connection.memory.data_pool, []
    while (buffer := pool.take_free()) is not None:
        held.append(buffer)
    assert len(held) == connection.memory.buffers
    assert connection.memory.taken() == (connection.memory.buffers, 0)
    yield
    for buffer in held:
        buffer.release()


def long_call(peer: Peer) -> int:
    """A call whose message is too long to go inline: it is fetched."""
    xid = 0x1234
    peer.memory[:4] = xid.to_bytes(4, "big")
    reads = (ReadChunk(0, (peer.segment(0, LENGTH),)),)
    return peer.call(xid=xid, proc=Proc.RDMA_NOMSG, reads=reads)


def long_reply(peer: Peer) -> int:
    return peer.call(reply=(peer.segment(1 << 16, LENGTH + 4),))


def data_in(peer: Peer) -> int:
    return peer.call(reads=(ReadChunk(4, (peer.segment(0, LENGTH),)),))


@pytest.mark.parametrize("reserve", [1, 0])
@pytest.mark.parametrize("ask", [long_call, long_reply])
def test_long_messages_need_no_buffer_that_data_has(
    ask: Callable[[Peer], int], reserve: int
) -> None:
    echo = Echo()
    echo.answer = [bytes(LENGTH)] if ask is long_reply else [b"short"]
    with (
        serving(echo, reserve=reserve, **FEW) as (server, device),
        Peer(device, server.device.address) as peer,
    ):
        connection = only_connection(server)
        with all_taken(connection):
            waiting = data_in(peer)  # data waits in any case
            wait_until(lambda: connection.statistics()["waiting_pieces"])
            xid = ask(peer)
            if reserve:
                peer.reply(xid)
            else:
                wait_until(lambda: connection.statistics()["waiting_pieces"] >= 2)
            assert waiting not in peer.replies
        peer.raw_reply(waiting)
        if not reserve:
            peer.reply(xid)
        wait_until(lambda: not connection.memory.data_pool.stats.taken)


class Blocking(Echo):
    """Answers control traffic at once; all else is in the store until that is open."""

    def __init__(self) -> None:
        super().__init__()
        self.is_open = threading.Event()
        self.inside = 0

    def __call__(self, connection: Connection, message: bytes) -> Sequence[Part] | None:
        if message[20:24] == bytes(4):  # NULL_PROCEDURE is here
            return [message]
        self.inside += 1
        assert self.is_open.wait(PATIENCE)
        return [message]


def rpc(procedure: int) -> bytes:
    """Without the XID, which the peer adds."""
    return encode_call(Call(0, PROGRAM, VERSION, procedure))[4:]


@pytest.mark.parametrize("has_reserve", [True, False])
def test_threads_that_are_all_taken(has_reserve: bool) -> None:
    """By one client: another one's control traffic is served, and its other calls are next."""
    store = Blocking()
    with (
        serving(store, workers=2, reserve=int(has_reserve), native=_program()) as (server, device),
        Peer(device, server.device.address) as greedy,
        Peer(device, server.device.address) as modest,
    ):
        taken = [greedy.call(rpc(1)) for _ in range(20)]
        wait_until(lambda: store.inside == 2)
        xid = modest.call(rpc(0))
        if has_reserve:
            assert modest.reply(xid)[1][4:] == rpc(0)
        else:
            modest.take()
            assert xid not in modest.replies
        assert store.inside == 2
        store.is_open.set()
        for one in taken:
            greedy.reply(one)
        if not has_reserve:
            modest.reply(xid)


def _program() -> object:
    """The server's own, which tells control traffic; it has no sessions, so it leaves all calls."""
    return Accelerator(Changes(), WriteVerifier(bytes(8))).capsule
