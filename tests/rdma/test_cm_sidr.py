# SPDX-License-Identifier: BSD-2-Clause
"""Resolving the queue pair of a datagram service."""

from __future__ import annotations

import random

import pytest
from cm_world import CLIENT, PORT, SERVER, STRANGER, World, losing

from livedma.rdma.cm import events, messages
from livedma.rdma.cm.connection import ConnectionStateError, TableFullError
from livedma.rdma.cm.engine import Engine
from livedma.rdma.cm.outbox import Limits
from livedma.wire import cm


def asked(world: World, **options):
    if not world.server._listeners:
        world.server.listen(PORT, "UDP")
    mine = world.client.resolve(SERVER, PORT, world.now, **options)
    world.run(0.01)
    return mine, world.got(world.server, events.SidrRequested)[-1].request


def test_a_service_is_resolved():
    world = World()
    mine, theirs = asked(world, private_data=b"Q" * 180, source_port=50001)
    assert world.got(world.server, events.SidrRequested)[0].private_data == b"Q" * 180
    assert (theirs.peer, theirs.peer_port, theirs.port) == (CLIENT, 50001, PORT)
    world.server.answer(theirs, world.now, qpn=77, qkey=0x1234567, private_data=b"P" * 136)
    world.run(0.01)
    assert world.got(world.client, events.SidrResolved) == [
        events.SidrResolved(mine, "valid", 77, 0x1234567, b"P" * 136)
    ]
    assert world.names() == ["SIDR_REQ", "SIDR_REP"]
    world.run()
    world.assert_nothing_left()


def test_a_service_id_that_nobody_serves():
    world = World()
    world.server.listen(PORT)  # of connections
    world.client.resolve(SERVER, PORT, world.now)
    world.run()
    assert world.got(world.client, events.SidrResolved)[0].status == "unsupported service ID"
    assert world.server.counters.refused == 1
    world.assert_nothing_left()


def test_a_request_can_be_rejected():
    world = World()
    _, theirs = asked(world)
    world.server.answer(theirs, world.now, status=messages.SIDR_REJECTED)
    world.run(0.01)
    assert world.got(world.client, events.SidrResolved)[0].status == "rejected"


def test_a_lost_answer_is_given_again():
    world = World(losing("SIDR_REQ", "SIDR_REP", times=2))
    world.server.listen(PORT, "UDP")
    world.on_event = lambda engine, event: (
        isinstance(event, events.SidrRequested) and engine.answer(event.request, world.now, qpn=77)
    )
    world.client.resolve(SERVER, PORT, world.now)
    world.run()
    assert world.names(CLIENT) == ["SIDR_REQ"] * 5
    assert len(world.got(world.server, events.SidrRequested)) == 1
    assert world.got(world.client, events.SidrResolved)[0].qpn == 77
    world.assert_nothing_left()


def test_a_request_that_nobody_answers():
    world = World(losing("SIDR_REQ"))
    mine = world.client.resolve(SERVER, PORT, world.now)
    world.run()
    assert world.names() == ["SIDR_REQ"] * 16
    assert world.seen[world.client] == [events.SidrUnreachable(mine)]
    world.assert_nothing_left()


def test_a_cancelled_request_is_forgotten():
    world = World()
    mine, theirs = asked(world)
    world.client.cancel(mine)
    world.client.cancel(mine)
    world.server.answer(theirs, world.now, qpn=77)
    world.run()
    assert not world.seen[world.client]
    assert world.client.counters.unmatched == 1
    world.assert_nothing_left()


def test_an_answer_from_another_address_does_not_count():
    world = World()
    mine, _ = asked(world)
    answer = {"attribute": "SIDR_REP", "request_id": mine.request_id, "qpn": 666}
    world.inject(world.client, answer, STRANGER)
    assert not world.seen[world.client] and world.client.counters.misdirected == 1


def test_a_request_is_answered_once():
    world = World()
    mine, theirs = asked(world)
    world.server.answer(theirs, world.now, qpn=77)
    for request in (mine, theirs):
        with pytest.raises(ConnectionStateError, match="not waiting"):
            world.server.answer(request, world.now, qpn=77)


def test_an_answer_with_too_much_private_data_changes_nothing():
    world = World()
    _, theirs = asked(world)
    with pytest.raises(ValueError, match="137 bytes of private data"):
        world.server.answer(theirs, world.now, qpn=77, private_data=bytes(137))
    world.server.answer(theirs, world.now, qpn=77)


def test_a_listener_that_ends_answers_what_waits():
    world = World()
    asked(world)
    world.server.listen(PORT + 1, "UDP")
    world.client.resolve(SERVER, PORT + 1, world.now)
    world.run(0.01)
    listener = world.got(world.server, events.SidrRequested)[0].listener
    world.server.unlisten(listener, world.now)
    world.run(0.01)
    assert len(world.got(world.client, events.SidrResolved)) == 1
    assert world.got(world.client, events.SidrResolved)[0].status == "unsupported service ID"


def strangers_requests(count: int, seed: int = 0) -> list[bytes]:
    engine = Engine(STRANGER, source=random.Random(seed))
    for _ in range(count):
        engine.resolve(SERVER, PORT, 0.0)
    return [mad for mad, _ in engine.transmits()]


def test_a_flood_that_waits_is_bounded_by_the_backlog():
    world = World()
    world.server.listen(PORT, "UDP", backlog=5)
    for mad in strangers_requests(50):
        world.server.receive(mad, STRANGER, world.now)
    world.flush()
    assert len(world.server._sidr) == 5 and world.server.counters.backlog_full == 45


def test_a_flood_that_is_answered_is_bounded():
    world = World(limits=Limits(sidr_requests=10))
    world.server.listen(PORT, "UDP")
    for mad in strangers_requests(10):
        world.server.receive(mad, STRANGER, world.now)
    waiting = [event.request for event in world.server.events()]
    more = strangers_requests(2, seed=1)
    world.server.receive(more[0], STRANGER, world.now)
    assert world.server.counters.table_full == 1
    world.server.answer(waiting[3], world.now, qpn=77)
    world.server.receive(more[1], STRANGER, world.now)
    assert len(world.server._sidr) == 10 and world.server.counters.forgotten == 1
    world.server.expire(world.now + 1000)
    assert len(world.server._sidr) == 10  # what was forgotten is not missed


def test_our_own_requests_are_bounded():
    engine = Engine(CLIENT, limits=Limits(sidr_requests=1))
    engine.resolve(SERVER, PORT, 0.0)
    with pytest.raises(TableFullError, match="1 requests are open"):
        engine.resolve(SERVER, PORT, 0.0)


def test_the_request_says_what_linux_says():
    engine = Engine(CLIENT)
    engine.resolve(SERVER, PORT, 0.0, source_port=1025)
    message = cm.decode(engine.transmits()[0][0])["cm"]
    assert message["service_id"] == "0x0000000001111c06" and message["pkey"] == 0xFFFF
    assert message["ip_cm"] == {"ip_version": 4, "src_port": 1025, "src": CLIENT, "dst": SERVER}
