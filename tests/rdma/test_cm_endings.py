# SPDX-License-Identifier: BSD-2-Clause
"""How connections on loopback end, in every state and by either side."""

from __future__ import annotations

import subprocess
import sys

import pytest
from loopback import (
    HERE,
    IMPATIENT,
    PATIENCE,
    PORT,
    RTU,
    THERE,
    Silent,
    connected,
    devices,
    exchange,
    holding,
    pool,
    wait_until,
)

from livedma.rdma import Device, QueuePair, cm


def test_either_side_may_disconnect() -> None:
    for first in (0, 1):
        with connected() as pair:
            ending, other = pair[first], pair[1 - first]
            ending.disconnect(timeout=PATIENCE)
            assert other.wait_disconnected(PATIENCE)
            assert not ending.is_established and not other.is_established
            assert ending.qp.state == other.qp.state == "ERR"
            other.disconnect()  # which is over


def test_a_queue_pair_is_retired_before_it_goes() -> None:
    """Once, whether there was a connection or not; and never one that was not prepared."""
    retired: list[str] = []

    def retire(qp: QueuePair) -> None:
        retired.append(qp.state)

    def refuse(qp: QueuePair) -> None:
        raise KeyError(qp.number)

    with connected(retire=retire) as (mine, _):
        assert not retired
        mine.close()
        mine.close()
        assert retired == ["ERR"]
    with devices() as (one, two):
        with pytest.raises(cm.RejectedError, match="invalid service ID"):
            cm.connect(one, two.address, PORT, timeout=PATIENCE, retire=retire)
        assert retired == ["ERR"] * 2
        with pytest.raises(KeyError):
            cm.connect(one, two.address, PORT, timeout=PATIENCE, prepare=refuse, retire=retire)
        assert retired == ["ERR"] * 2


def test_a_receive_that_waits_is_flushed_when_the_peer_disconnects() -> None:
    with connected() as (mine, theirs):
        theirs.qp.post_recv(9)
        mine.disconnect(timeout=PATIENCE)
        completion = theirs.cq.wait(PATIENCE)[0]
        assert (completion.wr_id, completion.status) == (9, "WR_FLUSH_ERR")


def test_both_may_disconnect_at_once() -> None:
    with connected() as (mine, theirs), pool() as threads:
        ending = [threads.submit(one.disconnect) for one in (mine, theirs)]
        for one in ending:
            one.result(PATIENCE)


def test_waiting_for_the_end_has_an_end() -> None:
    with connected() as (mine, _):
        assert mine.wait_disconnected(0.01) is False


def test_a_device_that_closes_tells_its_peers() -> None:
    with connected() as (mine, theirs):
        mine.device.close()
        assert theirs.wait_disconnected(PATIENCE)
        assert mine.wait_disconnected(PATIENCE)
        mine.close()


def test_a_device_that_closes_lets_nobody_wait() -> None:
    with devices() as (one, two), cm.listen(two, PORT) as listener, pool() as threads:
        connecting = threads.submit(cm.connect, one, two.address, PORT)
        listener.get(PATIENCE)
        listening = threads.submit(listener.get)
        iterating = threads.submit(lambda: list(listener))
        one.close()
        with pytest.raises(cm.ConnectError, match="closed"):
            connecting.result(PATIENCE)
        two.close()
        with pytest.raises(cm.ConnectError, match="has no listener any more"):
            listening.result(PATIENCE)
        assert iterating.result(PATIENCE) == []
        with pytest.raises(ValueError, match="closed"):
            cm.connect(one, two.address, PORT)


def test_a_listener_that_closes_rejects_and_can_come_back() -> None:
    with devices() as (one, two), pool() as threads:
        listener = cm.listen(two, PORT)
        with pytest.raises(cm.PortInUseError):
            cm.listen(two, PORT)
        connecting = threads.submit(cm.connect, one, two.address, PORT)
        listener.get(PATIENCE)
        listener.close()
        listener.close()
        with pytest.raises(cm.RejectedError, match="consumer reject"):
            connecting.result(PATIENCE)
        assert list(listener) == []
        cm.listen(two, PORT).close()


@pytest.mark.parametrize("timing", [None, IMPATIENT])
def test_a_peer_that_lost_its_memory_connects_again(timing: cm.Timing | None) -> None:
    """A device that vanished without a word comes back with the numbers it had.

    One that shares its address would begin with others.
    """
    with (
        devices(timing=timing, share=False) as (one, two),
        cm.listen(two, PORT) as listener,
        pool() as threads,
    ):
        accepting = threads.submit(lambda: listener.get(PATIENCE).accept())
        number = cm.connect(one, two.address, PORT, timeout=PATIENCE).qp.number
        theirs = accepting.result(PATIENCE)
        cm.manager(one)._gsi = Silent()  # type: ignore[assignment]
        one.close()
        with Device(one.address, share=False) as again:
            cm.manager(again, timing=timing)
            accepting = threads.submit(lambda: listener.get(PATIENCE).accept())
            mine = cm.connect(again, two.address, PORT, timeout=PATIENCE)
            assert mine.qp.number == number
            assert theirs.wait_disconnected(PATIENCE)
            exchange(mine, accepting.result(PATIENCE))


def test_closing_in_every_state() -> None:
    with devices() as (one, two), cm.listen(two, PORT) as listener, pool() as threads:
        # Asked, and gone before there is an answer.
        with pytest.raises(TimeoutError):
            cm.connect(one, two.address, PORT, timeout=0.001)
        # Accepted, but the asker has gone meanwhile.
        with pytest.raises((cm.ConnectError, cm.ConnectionStateError)):
            listener.get(PATIENCE).accept(timeout=PATIENCE)
        # Established, and closed by both, twice.
        accepting = threads.submit(lambda: listener.get(PATIENCE).accept())
        mine = cm.connect(one, two.address, PORT, timeout=PATIENCE)
        theirs = accepting.result(PATIENCE)
        for connection in (mine, theirs, mine, theirs):
            connection.close()
        assert mine.wait_disconnected(PATIENCE) and theirs.wait_disconnected(PATIENCE)
        for device in (one, two):
            wait_until(lambda device=device: cm.manager(device)._engine.is_idle)


def test_a_queue_pair_that_its_user_closed_is_no_trouble() -> None:
    with connected() as (mine, theirs):
        mine.qp.close()
        theirs.disconnect(timeout=PATIENCE)
        assert mine.wait_disconnected(PATIENCE)
        with pytest.raises(ValueError, match="closed"):
            _ = mine.qp.number


def test_a_queue_pair_that_is_closed_while_it_is_connected_rejects_the_peer() -> None:
    with devices() as (one, two), cm.listen(two, PORT) as listener, pool() as threads:
        made: list[QueuePair] = []
        connecting = threads.submit(cm.connect, one, two.address, PORT, prepare=made.append)
        request = listener.get(PATIENCE)
        made[0].close()
        with pytest.raises(cm.RejectedError, match="consumer reject"):
            request.accept(timeout=PATIENCE)
        with pytest.raises(cm.ConnectError, match="cannot be connected"):
            connecting.result(PATIENCE)


def test_a_queue_pair_that_is_closed_before_it_is_confirmed_ends_the_connection() -> None:
    with devices() as (one, two), cm.listen(two, PORT) as listener, pool() as threads:
        release = holding(cm.manager(one), RTU)
        made: list[QueuePair] = []
        accepting = threads.submit(lambda: listener.get(PATIENCE).accept(prepare=made.append))
        mine = cm.connect(one, two.address, PORT, timeout=PATIENCE)
        made[0].close()
        release()
        with pytest.raises(cm.ConnectError, match="cannot be connected"):
            accepting.result(PATIENCE)
        assert mine.wait_disconnected(PATIENCE)


def test_a_program_that_ends_tells_its_peers() -> None:
    program = (
        f"from livedma.rdma import Device, cm\ncm.connect(Device('{HERE}'), '{THERE}', {PORT})\n"
    )
    with (
        Device(THERE) as device,
        cm.listen(device, PORT) as listener,
        subprocess.Popen([sys.executable, "-c", program]) as process,
    ):
        theirs = listener.get(PATIENCE).accept(timeout=PATIENCE)
        assert theirs.wait_disconnected(PATIENCE)
        assert process.wait(PATIENCE) == 0
