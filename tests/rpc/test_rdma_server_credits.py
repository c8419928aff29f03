# SPDX-License-Identifier: BSD-2-Clause
"""Credits are Receives: raised and lowered while calls pass, and never more than there are. A few
Receives more are posted, as far as there are buffers that no reply needs.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator, Sequence

import pytest
from rdma_peer import PATIENCE, Echo, Peer, only_connection, serving, wait_until

from livedma._native.storage import SPARE_RECEIVES
from livedma.errors import BudgetError, NoRoomError
from livedma.rdma import cm
from livedma.rpc.rdma_server import RdmaConnection
from livedma.rpc.refusal import READS_REFUSALS, decode_refusal
from livedma.rpc.service import Connection, Part

PAGE = 4096


class Gate(Echo):
    """Answers when it is told to."""

    def __init__(self) -> None:
        super().__init__()
        self.is_open = threading.Event()

    def __call__(self, connection: Connection, message: bytes) -> Sequence[Part] | None:
        ret = super().__call__(connection, message)
        assert self.is_open.wait(PATIENCE)
        return ret


def grants(peer: Peer) -> int:
    return peer.reply(peer.call())[0].credits


def posted(connection: RdmaConnection) -> int:
    count = connection.statistics()["posted"]
    assert isinstance(count, int)
    return count


def test_credits_are_raised_and_lowered() -> None:
    with (
        serving(Echo(), credits=4) as (server, device),
        Peer(device, server.device.address) as peer,
    ):
        connection = only_connection(server)
        assert (grants(peer), connection.credits) == (4, 4)
        connection.credits = 16
        most = 16 + SPARE_RECEIVES
        assert (connection.credits, posted(connection), grants(peer)) == (16, most, 16)
        wait_until(lambda: posted(connection) == most)
        connection.credits = 3
        # What is posted cannot be taken back: it runs out, while fewer are granted at once.
        assert posted(connection) == most
        for left in range(most - 1, 2 + SPARE_RECEIVES, -1):
            assert (grants(peer), posted(connection)) == (3, left)
        assert grants(peer) == 3
        wait_until(lambda: posted(connection) == 3 + SPARE_RECEIVES)
        connection.credits = 64
        assert grants(peer) == 64
        wait_until(lambda: posted(connection) == 64 + SPARE_RECEIVES)
        # The last reply gives its buffer back after its peer has it.
        pool = connection.memory.receive_pool
        wait_until(lambda: pool.stats.data.taken == 64 + SPARE_RECEIVES)


def test_no_more_receives_are_to_spare_than_replies_leave_buffers() -> None:
    """Two credits have four buffers. A pool does not grow for what is to spare."""
    with (
        serving(Echo(), credits=2) as (server, device),
        Peer(device, server.device.address) as peer,
    ):
        connection = only_connection(server)
        assert posted(connection) == 4
        for _ in range(20):
            assert grants(peer) == 2
            wait_until(lambda: posted(connection) == 4)  # its reply has given its buffer back
        stats = connection.memory.receive_pool.stats
        assert (stats.buffers, stats.data.gave_up) == (4, 0)
        assert connection.statistics()["receives_late"] == 0


@pytest.mark.parametrize("value", [0, -1, 65])
def test_credits_have_bounds(value: int) -> None:
    with serving(Echo()) as (server, device), Peer(device, server.device.address):
        connection = only_connection(server)
        with pytest.raises(ValueError, match="1 to 64"):
            connection.credits = value


def test_who_sends_more_than_granted_waits() -> None:
    """No more calls are worked on than there are Receives; the rest is not lost."""
    gate = Gate()
    with (
        serving(gate, credits=2, workers=8) as (server, device),
        Peer(device, server.device.address) as peer,
    ):
        xids = [peer.call(bytes([i]) * 4) for i in range(12)]
        connection = only_connection(server)
        wait_until(lambda: connection.statistics()["in_progress"] == 4)  # with two to spare
        stats = connection.statistics()
        assert (stats["calls"], stats["posted"]) == (4, 0)
        gate.is_open.set()
        for i, xid in enumerate(xids):
            header, message = peer.reply(xid)
            assert message[4:] == bytes([i]) * 4
            # A call that came at once takes the Receive that was just posted: that one is not
            # granted before there is another.
            assert 1 <= header.credits <= 2


def test_credits_that_are_lowered_while_calls_are_worked_on() -> None:
    gate = Gate()
    with (
        serving(gate, credits=8, workers=8) as (server, device),
        Peer(device, server.device.address) as peer,
    ):
        xids = [peer.call() for _ in range(8)]
        connection = only_connection(server)
        wait_until(lambda: connection.statistics()["in_progress"] == 8)
        connection.credits = 2
        gate.is_open.set()
        assert [peer.reply(xid)[0].credits for xid in xids] == [2] * 8
        wait_until(lambda: posted(connection) == 2 + SPARE_RECEIVES)
        assert grants(peer) == 2


def test_no_more_is_granted_than_there_are_receives() -> None:
    """Those that find no buffer wait for one; others of the pool have taken it."""
    with (
        serving(Echo(), credits=8) as (server, device),
        Peer(device, server.device.address) as peer,
    ):
        connection = only_connection(server)
        pool = connection.memory.receive_pool
        assert posted(connection) == 16  # 8 to spare
        pool.set_bounds(24, 24)
        held = []
        while (buffer := pool.take_free()) is not None:
            held.append(buffer)
        assert len(held) == 8 and connection.endpoint is not None
        connection.endpoint.credits = 20
        # The Receive of the next call waits for a buffer until that of a reply is free again.
        assert all(0 < grants(peer) < 20 for _ in range(20))
        assert connection.statistics()["receives_late"]
        for buffer in held:
            buffer.release()
        wait_until(lambda: posted(connection) >= 20)
        assert grants(peer) == 20


def test_credits_for_which_there_is_no_memory() -> None:
    with (
        serving(Echo(), credits=8, window_bytes=64 * PAGE, mapped_bytes=0, buffer_bytes=PAGE) as (
            server,
            device,
        ),
        Peer(device, server.device.address) as peer,
    ):
        connection = only_connection(server)
        with pytest.raises(NoRoomError):
            connection.credits = 64
        assert (connection.credits, grants(peer)) == (8, 8)
        assert 8 <= posted(connection) <= 16


def test_memory_that_cannot_be_had_refuses_the_connection() -> None:
    with serving(Echo(), credits=8, window_bytes=15 * PAGE) as (server, device):
        for _ in range(3):
            with pytest.raises(cm.RejectedError) as refusal:
                Peer(device, server.device.address)
            assert refusal.value.reason == 28
        assert (server.refused, server.connections) == (3, [])


def test_so_many_connections_and_no_more() -> None:
    with (
        serving(Echo(), connections=2) as (server, device),
        Peer(device, server.device.address) as one,
        Peer(device, server.device.address) as other,
    ):
        for peer in (one, other):
            peer.reply(peer.call())
        with pytest.raises(cm.RejectedError):
            Peer(device, server.device.address)
        one.close()
        wait_until(lambda: len(server.connections) == 1)
        with Peer(device, server.device.address) as again:
            again.reply(again.call())


def test_a_silent_peer_makes_room() -> None:
    """The one that has been silent for longest goes; those that call stay."""
    with serving(Echo(), connections=3) as (server, device), contextlib.ExitStack() as stack:

        def connected() -> Peer:
            return stack.enter_context(Peer(device, server.device.address))

        def wait_silent(*expected: bool) -> None:
            """Until the server has the confirmation of each connection."""
            wait_until(lambda: tuple(one.is_silent for one in server.connections) == expected)

        speaking = connected()
        speaking.reply(speaking.call())
        silent = connected()
        wait_silent(False, True)
        later = connected()
        wait_silent(False, True, True)
        new = connected()
        new.reply(new.call())
        silent.await_end()
        for peer in (speaking, later, new):
            peer.reply(peer.call())
        assert server.refused == 0


def test_beyond_the_budget_a_few_get_the_least() -> None:
    """Peers that cannot read a refusal: a kernel's mount would ask again for minutes."""

    @contextlib.contextmanager
    def used_up(length: int) -> Iterator[None]:
        if length:
            raise BudgetError("the budget is used up")
        yield

    with serving(Echo(), credits=8) as (server, device), contextlib.ExitStack() as stack:
        server.admitting = used_up
        here = device, server.device.address
        with pytest.raises(cm.RejectedError) as refusal:
            Peer(*here, private_more=READS_REFUSALS)
        assert decode_refusal(refusal.value.private_data) == ("the budget is used up", False)
        peers = [stack.enter_context(Peer(*here)) for _ in range(4)]
        assert [grants(peer) for peer in peers] == [4] * 4
        for connection in server.connections:
            assert connection.is_least and connection.memory.window.linked < 64 * PAGE
        with pytest.raises(cm.RejectedError):
            Peer(*here)
        peers[0].close()
        wait_until(lambda: len(server.connections) == 3)
        stack.enter_context(Peer(*here))
        server.admitting = lambda _: contextlib.nullcontext()
        for connection in server.connections:
            connection.extend(PAGE)
        assert not any(one.is_least for one in server.connections)
