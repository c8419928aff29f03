# SPDX-License-Identifier: BSD-2-Clause
"""Connections between devices on loopback, made by the connection manager."""

from __future__ import annotations

import pytest
from loopback import (
    ELSEWHERE,
    HERE,
    IMPATIENT,
    NOBODY,
    PATIENCE,
    PORT,
    RTU,
    THERE,
    connected,
    devices,
    exchange,
    holding,
    pool,
    wait_until,
)

from livedma.rdma import Device, QueuePair, cm
from livedma.rdma.cm.gsi import Gsi
from livedma.rdma.interface import Interface


@pytest.mark.parametrize(
    "addresses",
    [(HERE, THERE), (HERE, HERE), ("::1", "::1")],
)
def test_a_connection_carries_data_both_ways(addresses: tuple[str, str]) -> None:
    with connected(addresses) as (mine, theirs):
        assert mine.is_established and theirs.is_established
        assert (mine.peer, theirs.peer) == (addresses[1], addresses[0])
        assert mine.path_mtu == theirs.path_mtu == 4096
        assert mine.qp.state == theirs.qp.state == "RTS"
        exchange(mine, theirs)


def test_what_was_negotiated_is_what_the_queue_pairs_use() -> None:
    with devices() as (one, two), cm.listen(two, PORT) as listener, pool() as threads:
        accepting = threads.submit(
            lambda: listener.get(PATIENCE).accept(responder_resources=3, initiator_depth=9)
        )
        mine = cm.connect(
            one, two.address, PORT, path_mtu=512, responder_resources=2, initiator_depth=8
        )
        theirs = accepting.result(PATIENCE)
        assert (mine.responder_resources, mine.initiator_depth) == (2, 3)
        assert (theirs.responder_resources, theirs.initiator_depth) == (3, 2)
        assert mine.path_mtu == theirs.path_mtu == 512
        exchange(mine, theirs)
        # READs beyond what may be open at a time are queued, not refused.
        memory = theirs.pd.register(bytearray(b"x" * 64), "remote_read")
        sink = mine.pd.register(bytearray(64))
        for number in range(16):
            mine.qp.post_send(number, "READ", [sink[:]], remote_va=memory.va, rkey=memory.rkey)
        done: list[str] = []
        while len(done) < 16:
            more = mine.cq.wait(PATIENCE)
            assert more
            done += [completion.status for completion in more]
        assert done == ["SUCCESS"] * 16


def test_private_data_travels_with_each_step() -> None:
    with devices() as (one, two), cm.listen(two, PORT) as listener, pool() as threads:
        connecting = threads.submit(cm.connect, one, two.address, PORT, private_data=b"Q" * 56)
        request = listener.get(PATIENCE)
        assert request.private_data == b"Q" * 56
        assert request.peer == one.address and request.peer_port >= 49152
        theirs = request.accept(private_data=b"P" * 196, timeout=PATIENCE)
        mine = connecting.result(PATIENCE)
        assert mine.private_data == b"P" * 196 and theirs.private_data == b"Q" * 56


def test_receives_can_be_posted_before_the_peer_can_send() -> None:
    with devices() as (one, two), cm.listen(two, PORT) as listener, pool() as threads:
        pd = two.protection_domain()
        region = pd.register(bytearray(100))
        prepared: list[QueuePair] = []

        def prepare(qp: QueuePair) -> None:
            prepared.append(qp)
            qp.post_recv(5, [region[:]])

        accepting = threads.submit(lambda: listener.get(PATIENCE).accept(pd=pd, prepare=prepare))
        mine = cm.connect(one, two.address, PORT, timeout=PATIENCE)
        mine.qp.post_send(1, "SEND", inline=b"at once")
        theirs = accepting.result(PATIENCE)
        assert prepared == [theirs.qp]
        assert theirs.cq.wait(PATIENCE)[0].wr_id == 5
        assert theirs.qp.counters["rcvd_pkts"] and not mine.qp.counters["rcvd_rnr_err"]


def test_a_rejection_says_why() -> None:
    with devices() as (one, two), cm.listen(two, PORT) as listener, pool() as threads:
        connecting = threads.submit(cm.connect, one, two.address, PORT)
        listener.get(PATIENCE).reject(b"not today")
        with pytest.raises(cm.RejectedError, match="consumer reject") as caught:
            connecting.result(PATIENCE)
        assert caught.value.reason == 28
        assert caught.value.private_data.rstrip(b"\0") == b"not today"


def test_nobody_listens() -> None:
    with devices() as (one, two), pytest.raises(cm.RejectedError, match="invalid service ID"):
        cm.connect(one, two.address, PORT)


def test_nobody_is_there() -> None:
    with devices(timing=IMPATIENT) as (one, _):
        with pytest.raises(cm.UnreachableError, match=f"{NOBODY} does not answer"):
            cm.connect(one, NOBODY, PORT)
        with pytest.raises(cm.UnreachableError, match=f"{NOBODY} does not answer"):
            cm.resolve(one, NOBODY, PORT)


def test_waiting_for_an_answer_has_an_end() -> None:
    with devices() as (one, two), cm.listen(two, PORT) as listener:
        with pytest.raises(TimeoutError):
            cm.connect(one, two.address, PORT, timeout=0.1)
        request = listener.get(PATIENCE)
        wait_until(lambda: not request.is_waiting)  # it was withdrawn
        with pytest.raises(cm.ConnectionStateError):
            request.accept()
        with pytest.raises(TimeoutError):
            listener.get(0.01)


def test_an_acceptance_that_nobody_confirms() -> None:
    with devices(timing=IMPATIENT) as (one, two), cm.listen(two, PORT) as listener:
        holding(cm.manager(one), RTU)
        with pool() as threads:
            accepting = threads.submit(lambda: listener.get(PATIENCE).accept())
            mine = cm.connect(one, two.address, PORT, timeout=PATIENCE)
            with pytest.raises(cm.UnreachableError, match=f"{HERE} does not answer"):
                accepting.result(PATIENCE)
            assert mine.wait_disconnected(PATIENCE)  # the other side said that it gave up


def test_an_mtu_that_is_too_large_is_asked_for_again() -> None:
    with devices() as (one, two), cm.listen(two, PORT) as listener, pool() as threads:
        two.interface = Interface(two.interface.index, two.interface.name, 1500)
        accepting = threads.submit(lambda: listener.get(PATIENCE).accept())
        mine = cm.connect(one, two.address, PORT, timeout=PATIENCE)
        theirs = accepting.result(PATIENCE)
        assert mine.path_mtu == theirs.path_mtu == 1024
        exchange(mine, theirs, bytes(range(64)))


def test_data_before_the_confirmation_establishes() -> None:
    """The peer's RTU never comes, its data does."""
    with devices() as (one, two), cm.listen(two, PORT) as listener, pool() as threads:
        holding(cm.manager(one), RTU)
        pd = two.protection_domain()
        region = pd.register(bytearray(16))
        accepting = threads.submit(
            lambda: listener.get(PATIENCE).accept(
                pd=pd, prepare=lambda qp: qp.post_recv(1, [region[:]])
            )
        )
        mine = cm.connect(one, two.address, PORT, timeout=PATIENCE)
        mine.qp.post_send(1, "SEND", inline=b"early")
        theirs = accepting.result(2)  # the REP would be repeated after 4 seconds
        assert theirs.is_established and theirs.qp.state == "RTS"


def test_many_connections() -> None:
    count = 100
    with devices() as (one, two), cm.listen(two, PORT) as listener, pool() as threads:
        accepting = threads.submit(
            lambda: [listener.get(PATIENCE).accept(timeout=PATIENCE) for _ in range(count)]
        )
        mine = list(
            threads.map(
                lambda number: cm.connect(
                    one, two.address, PORT, private_data=bytes([number]), timeout=PATIENCE
                ),
                range(count),
            )
        )
        theirs = {connection.private_data[0]: connection for connection in accepting.result(60)}
        for number, connection in enumerate(mine):
            assert theirs[number].qp.number == connection._cm.remote_qpn
        exchange(mine[3], theirs[3])
        for connection in mine:
            connection.close()
        for connection in theirs.values():
            assert connection.wait_disconnected(PATIENCE)
            connection.close()
        for device in (one, two):
            wait_until(lambda device=device: cm.manager(device)._engine.is_idle)
            assert not [c for c in cm.manager(device)._handlers if not hasattr(c, "backlog")]


def test_a_queue_pair_that_cannot_be_prepared_leaves_the_request() -> None:
    with devices() as (one, two), cm.listen(two, PORT) as listener, pool() as threads:
        connecting = threads.submit(cm.connect, one, two.address, PORT)
        request = listener.get(PATIENCE)
        with pytest.raises(ValueError, match="closed"):
            request.accept(prepare=lambda qp: qp.close())
        assert request.is_waiting
        theirs = request.accept(timeout=PATIENCE)
        exchange(connecting.result(PATIENCE), theirs)


def test_what_cannot_be_asked_leaves_nothing_behind() -> None:
    with devices() as (one, two), cm.listen(two, PORT) as listener, pool() as threads:
        with pytest.raises(ValueError, match="private data"):
            cm.connect(one, two.address, PORT, private_data=bytes(57))
        with pytest.raises(ValueError, match="IP versions"):
            cm.connect(one, "::1", PORT)
        assert cm.manager(one)._engine.is_idle
        connecting = threads.submit(cm.connect, one, two.address, PORT)
        request = listener.get(PATIENCE)
        with pytest.raises(ValueError, match="private data"):
            request.accept(private_data=bytes(197))
        with pytest.raises(ZeroDivisionError):
            request.accept(prepare=lambda qp: 1 // 0)
        assert request.is_waiting
        theirs = request.accept(timeout=PATIENCE)
        exchange(connecting.result(PATIENCE), theirs)


def test_trouble_with_one_connection_is_not_everybodys(
    caplog: pytest.LogCaptureFixture,
) -> None:
    def bad(_: object) -> None:
        raise RuntimeError("a handler's own fault")

    with connected() as (mine, theirs):
        manager = cm.manager(mine.device)
        with manager.engine() as (engine, now):
            other = engine.connect(NOBODY, PORT, 999, now)
            manager.on_event(other, bad)
            engine.disconnect(other, now)
        wait_until(lambda: "own fault" in caplog.text)
        exchange(mine, theirs)


def test_a_path_is_not_wider_than_the_interface() -> None:
    with connected(path_mtu=8192) as (mine, theirs):
        assert mine.path_mtu == theirs.path_mtu == 4096


def test_a_device_has_one_manager() -> None:
    with devices() as (one, _):
        assert cm.manager(one) is cm.manager(one)
        with pytest.raises(ValueError, match="already"):
            cm.manager(one, slot=3)


def test_more_mads_than_there_is_room_for_are_no_trouble() -> None:
    with Device(HERE) as one, Device(THERE) as two:
        flood, other = Gsi(one), cm.manager(two)
        for _ in range(2000):
            flood.send(bytes(256), two.address)
        with cm.listen(two, PORT) as listener, pool() as threads:
            del flood
            accepting = threads.submit(lambda: listener.get(PATIENCE).accept())
            with Device(ELSEWHERE) as three:
                mine = cm.connect(three, two.address, PORT, timeout=PATIENCE)
                exchange(mine, accepting.result(PATIENCE))
        assert other._engine.counters.malformed > 0


def test_a_datagram_service_is_found_by_its_port() -> None:
    with devices() as (one, two):
        ends = []
        for device in (one, two):
            pd, cq = device.protection_domain(), device.completion_queue()
            qp = pd.queue_pair("UD", cq)
            qp.modify("INIT", qkey=0x01234567)
            qp.modify("RTR")
            qp.modify("RTS")
            ends.append((pd, cq, qp))
        memory = bytearray(100)
        pd, cq, qp = ends[1]
        with pd.register(memory) as region:
            qp.post_recv(1, [region[:]])
            with cm.announce(two, PORT, qp, private_data=b"welcome"):
                found = cm.resolve(one, two.address, PORT, timeout=PATIENCE)
            assert (found.address, found.qpn, found.qkey) == (two.address, qp.number, 0x01234567)
            assert found.private_data.rstrip(b"\0") == b"welcome"
            ends[0][2].post_send(
                1,
                "SEND",
                inline=b"datagram",
                dst=found.address,
                remote_qp=found.qpn,
                remote_qkey=found.qkey,
            )
            assert cq.wait(PATIENCE)[0].status == "SUCCESS"
        assert memory[40:48] == b"datagram"
        with pytest.raises(cm.ConnectError, match="unsupported service ID"):
            cm.resolve(one, two.address, PORT)
        with pytest.raises(ValueError, match="137 bytes of private data"):
            cm.announce(two, PORT, qp, private_data=bytes(137))
