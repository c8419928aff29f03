# SPDX-License-Identifier: BSD-2-Clause
"""How connections come about, and what both sides then know."""

from __future__ import annotations

import random

import pytest
from cm_world import CLIENT, PORT, SERVER, World

from livedma.errors import PortInUseError
from livedma.rdma.cm import events, messages
from livedma.rdma.cm.connection import (
    State,
)
from livedma.rdma.cm.engine import Engine
from livedma.rdma.cm.messages import ack_timeout


def test_a_connection_from_request_to_timewait_exit():
    world = World()
    mine, theirs = world.established()
    assert mine.state is theirs.state is State.ESTABLISHED
    world.client.disconnect(mine, world.now)
    world.run()
    assert world.names() == ["REQ", "REP", "RTU", "DREQ", "DREP"]
    assert [type(event) for event in world.seen[world.client]] == [
        events.ConnectResponse,
        events.Disconnected,
        events.TimewaitExit,
    ]
    assert [type(event) for event in world.seen[world.server]] == [
        events.ConnectRequest,
        events.Established,
        events.Disconnected,
        events.TimewaitExit,
    ]
    assert world.got(world.client, events.Disconnected)[0].by_peer is False
    assert world.got(world.server, events.Disconnected)[0].by_peer is True
    world.assert_nothing_left()


@pytest.mark.parametrize("addresses", [("10.0.0.1", "10.0.0.2"), ("fd00::1", "fd00::2")])
def test_both_sides_know_what_their_queue_pairs_need(addresses):
    client, server = addresses
    world = World(addresses=addresses)
    mine, theirs = world.request(
        qpn=100, path_mtu=4096, responder_resources=5, initiator_depth=9, retry_count=3,
        rnr_retry_count=2, transport="UC", source_port=50001, flow_control=True,
    )  # fmt: skip
    assert (theirs.responder_resources, theirs.initiator_depth) == (9, 5)
    world.server.accept(
        theirs, 200, world.now, responder_resources=4, initiator_depth=8, rnr_retry_count=6
    )
    world.run(0.01)
    assert (theirs.responder_resources, theirs.initiator_depth) == (4, 5)
    assert (mine.responder_resources, mine.initiator_depth) == (5, 4)
    assert (mine.peer, theirs.peer) == (server, client)
    assert (mine.remote_qpn, theirs.remote_qpn) == (200, 100)
    assert (mine.sq_psn, mine.rq_psn) == (theirs.rq_psn, theirs.sq_psn)
    assert mine.path_mtu == theirs.path_mtu == 4096
    assert mine.transport == theirs.transport == "UC"
    assert mine.flow_label == theirs.flow_label
    assert theirs.peer_port == 50001
    # Each side is told how often it may retry when the other one is not ready.
    assert (mine.rnr_retry_count, theirs.rnr_retry_count) == (6, 2)
    assert mine.retry_count == theirs.retry_count == 3
    assert mine.ack_timeout == theirs.ack_timeout == 17


def test_a_peer_cannot_raise_the_depths():
    world = World()
    mine, _theirs = world.request(responder_resources=2, initiator_depth=3)
    reply = {
        "attribute": "REP", "local_comm_id": 77, "remote_comm_id": mine.local_id, "qpn": 5,
        "responder_resources": 255, "initiator_depth": 255,
    }  # fmt: skip
    world.inject(world.client, reply, SERVER)
    assert (mine.responder_resources, mine.initiator_depth) == (2, 3)


@pytest.mark.parametrize(
    ("ack_delay", "lifetime", "code"),
    [(15, 16, 17), (16, 16, 18), (20, 16, 20), (18, 16, 19), (0, 0, 2), (31, 31, 31), (0, 14, 15)],
)
def test_the_ack_timeout_is_rounded_as_linux_does(ack_delay, lifetime, code):
    assert ack_timeout(ack_delay, lifetime) == code


def test_the_first_psns_are_random():
    world = World()
    psns = {world.request(qpn=qpn)[0].rq_psn for qpn in range(2, 22)}
    assert len(psns) > 15


def test_ids_carry_the_slot_and_cannot_be_guessed():
    for slot in (0, 7, 255):
        engine = Engine(CLIENT, slot=slot)
        ids = [engine.connect(SERVER, PORT, 17, 0.0).local_id for _ in range(50)]
        assert {number >> 24 for number in ids} == {slot}
        assert len(set(ids)) == 50 and sorted(ids) != ids
        assert engine.resolve(SERVER, PORT, 0.0).request_id >> 24 == slot
    with pytest.raises(ValueError, match="slot 256"):
        Engine(CLIENT, slot=256)


class Dull(random.Random):
    """Says each number twice."""

    def __init__(self) -> None:
        self.calls = 0
        super().__init__(0)

    def getrandbits(self, k: int, /) -> int:
        self.calls += 1
        return self.calls // 16 % (1 << k)


def test_an_id_in_use_is_not_given_out_again():
    engine = Engine(CLIENT, source=Dull())
    ids = [engine.connect(SERVER, PORT, 17, 0.0, source_port=1).local_id for _ in range(20)]
    assert len(set(ids)) == 20 and 0 not in ids


def test_private_data_of_every_message():
    world = World()
    mine, theirs = world.request(private_data=b"Q" * 56)
    assert world.got(world.server, events.ConnectRequest)[0].private_data == b"Q" * 56
    world.server.accept(theirs, 23, world.now, private_data=b"P" * 196)
    world.run(0.01)
    assert world.got(world.client, events.ConnectResponse)[0].private_data == b"P" * 196
    world.client.confirm(mine, world.now, b"U" * 224)
    world.run(0.01)
    assert world.got(world.server, events.Established)[0].private_data == b"U" * 224
    theirs.drep_private_data = b"E" * 224
    world.client.disconnect(mine, world.now, b"D" * 220)
    world.run(0.01)
    assert world.got(world.server, events.Disconnected)[0].private_data == b"D" * 220
    assert world.got(world.client, events.Disconnected)[0].private_data == b"E" * 224


def test_private_data_of_a_rejection():
    world = World()
    mine, theirs = world.request()
    world.server.reject(theirs, world.now, private_data=b"J" * 148)
    world.run(0.01)
    assert world.got(world.client, events.Rejected) == [events.Rejected(mine, 28, b"", b"J" * 148)]


def test_private_data_that_is_too_long_changes_nothing():
    world = World()
    mine, theirs = world.request()
    server, client = world.server, world.client
    for attempt in (
        lambda: client.connect(SERVER, PORT, 18, world.now, private_data=bytes(57)),
        lambda: server.accept(theirs, 23, world.now, private_data=bytes(197)),
        lambda: server.reject(theirs, world.now, private_data=bytes(149)),
        lambda: client.resolve(SERVER, PORT, world.now, private_data=bytes(181)),
    ):
        with pytest.raises(ValueError, match="bytes of private data"):
            attempt()
    assert client.connections == [mine] and theirs.state is State.REQ_RECEIVED
    server.accept(theirs, 23, world.now)
    world.run(0.01)
    with pytest.raises(ValueError, match="bytes of private data"):
        client.confirm(mine, world.now, bytes(225))
    client.confirm(mine, world.now)
    with pytest.raises(ValueError, match="bytes of private data"):
        client.disconnect(mine, world.now, bytes(221))
    assert mine.state is State.ESTABLISHED


def test_addresses_of_two_kinds_do_not_connect():
    world = World()
    with pytest.raises(ValueError, match="different IP versions"):
        world.client.connect("fd00::2", PORT, 17, world.now)
    assert world.client.is_idle


def test_one_listener_a_port_and_space():
    engine = Engine(SERVER)
    listener = engine.listen(PORT)
    engine.listen(PORT, "UDP")
    with pytest.raises(PortInUseError, match="RDMA port 7174"):
        engine.listen(PORT)
    engine.unlisten(listener, 0.0)
    engine.unlisten(listener, 0.0)
    engine.listen(PORT)
    with pytest.raises(ValueError, match="port 0"):
        engine.listen(0)
    with pytest.raises(ValueError, match="'SCTP'"):
        engine.listen(1, "SCTP")


def test_a_listener_that_ends_rejects_what_waits():
    world = World()
    established, _ = world.established(qpn=17)
    waiting, _ = world.request(qpn=18)
    listener = world.got(world.server, events.ConnectRequest)[0].listener
    world.server.unlisten(listener, world.now)
    world.run(0.01)
    assert world.got(world.client, events.Rejected) == [
        events.Rejected(waiting, messages.CONSUMER_REJECT, b"", bytes(148))
    ]
    assert established.state is State.ESTABLISHED
    later = world.client.connect(SERVER, PORT, 19, world.now)
    world.run(0.01)
    assert world.got(world.client, events.Rejected)[1].connection is later


def test_what_the_backlog_has_no_room_for_comes_again():
    world = World()
    world.listen(backlog=2)
    for qpn in (17, 18, 19):
        world.client.connect(SERVER, PORT, qpn, world.now)
    world.run(0.01)
    requests = world.got(world.server, events.ConnectRequest)
    assert len(requests) == 2 and world.server.counters.backlog_full == 1
    world.server.accept(requests[0].connection, 23, world.now)
    world.run(5)
    assert len(world.got(world.server, events.ConnectRequest)) == 3


def test_both_sides_may_have_the_same_address():
    world = World(addresses=(CLIENT, CLIENT))
    engine = world.engines[CLIENT]
    engine.listen(PORT)
    mine = engine.connect(CLIENT, PORT, 17, world.now)
    world.run(0.01)
    theirs = world.got(engine, events.ConnectRequest)[0].connection
    engine.accept(theirs, 23, world.now)
    world.run(0.01)
    engine.confirm(mine, world.now)
    world.run(0.01)
    assert mine.state is theirs.state is State.ESTABLISHED
    engine.disconnect(theirs, world.now)
    world.run()
    assert len(world.got(engine, events.Disconnected)) == 2
    world.assert_nothing_left()


def test_the_next_timer_is_the_first_of_all():
    engine = Engine(CLIENT)
    assert engine.next_timer is None and engine.is_idle
    engine.resolve(SERVER, PORT, 50.0)
    first = engine.next_timer
    assert not engine.is_idle
    engine.connect(SERVER, PORT, 17, 60.0)
    assert engine.next_timer == first
    engine.connect(SERVER, PORT, 17, 40.0)
    assert engine.next_timer == first - 10
