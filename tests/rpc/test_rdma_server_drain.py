# SPDX-License-Identifier: BSD-2-Clause
"""A connection that is to end takes no further call; those under way are answered first."""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

from rdma_peer import PATIENCE, Echo, Peer, only_connection, serving, wait_until

from livedma.rpc.service import Connection, Part


class Slow(Echo):
    """Answers once it is open. messages: the calls that were executed."""

    def __init__(self) -> None:
        super().__init__()
        self.is_open = threading.Event()
        self.messages: list[bytes] = []

    def __call__(self, connection: Connection, message: bytes) -> Sequence[Part] | None:
        self.messages.append(message[4:])
        assert self.is_open.wait(PATIENCE)
        return [message]


def test_calls_under_way_are_answered_and_no_other_is_executed() -> None:
    slow = Slow()
    with (
        serving(slow) as (server, device),
        Peer(device, server.device.address) as peer,
        ThreadPoolExecutor(1) as thread,
    ):
        connection = only_connection(server)
        first = peer.call(b"first...")
        wait_until(lambda: slow.messages)
        assert connection.endpoint is not None
        connection.endpoint.drain()
        draining = thread.submit(connection.drain, PATIENCE)
        second = peer.call(b"late....")
        wait_until(lambda: connection.statistics()["drained_calls"] == 1)
        assert not draining.done()
        slow.is_open.set()
        peer.reply(first)
        last_s = draining.result(PATIENCE)
        assert 0 < last_s <= time.monotonic()
        assert connection.is_open and second not in peer.replies
        seen = connection.statistics()
        assert (seen["in_progress"], seen["replying"], seen["replies"]) == (0, 0, 1)
        assert not seen["dropped_calls"]  # which an alert takes for trouble
        assert slow.messages == [b"first..."]


def test_a_call_that_takes_too_long_is_not_waited_for() -> None:
    slow = Slow()
    with (
        serving(slow) as (server, device),
        Peer(device, server.device.address) as peer,
    ):
        connection = only_connection(server)
        peer.call(b"first...")
        wait_until(lambda: slow.messages)
        connection.drain(0.05)
        assert connection.statistics()["in_progress"] == 1
        slow.is_open.set()
