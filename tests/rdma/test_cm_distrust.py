# SPDX-License-Identifier: BSD-2-Clause
"""What a peer, or somebody else, cannot do."""

from __future__ import annotations

import random

import pytest
from cm_world import CLIENT, PORT, SERVER, STRANGER, World, altered_request, losing

from livedma.rdma.cm import events, messages
from livedma.rdma.cm.connection import (
    State,
    TableFullError,
)
from livedma.rdma.cm.engine import Engine
from livedma.rdma.cm.outbox import Limits


@pytest.mark.parametrize("attribute", ["DREQ", "DREP", "REJ", "RTU", "REP", "MRA"])
def test_messages_from_another_address_do_nothing(attribute):
    world = World()
    mine, theirs = world.accepted() if attribute in ("RTU", "MRA") else world.established()
    if attribute == "DREP":
        world.client.disconnect(mine, world.now)
    engine, target, other = (
        (world.server, theirs, mine)
        if attribute in ("RTU", "MRA", "DREQ")
        else (world.client, mine, theirs)
    )
    before = (target.state, target.deadline, target.remote_qpn)
    message = {
        "attribute": attribute, "local_comm_id": other.local_id, "qpn": 99,
        "remote_comm_id": target.local_id, "remote_qpn": target.qpn,
        "message": "REP" if attribute == "MRA" else "other", "reason": 28, "service_timeout": 20,
    }  # fmt: skip
    world.inject(engine, message, STRANGER)
    assert (target.state, target.deadline, target.remote_qpn) == before
    assert engine.counters.misdirected == 1
    assert not [1 for _, to, _ in world.sent if to == STRANGER]


@pytest.mark.parametrize("attribute", ["REJ", "MRA"])
def test_answers_to_a_request_from_another_address_do_nothing(attribute):
    world = World()
    mine, _ = world.request()
    before = mine.deadline
    message = {
        "attribute": attribute, "remote_comm_id": mine.local_id, "local_comm_id": 1,
        "message": "REQ", "reason": 8, "service_timeout": 24,
    }  # fmt: skip
    world.inject(world.client, message, STRANGER)
    assert mine.state is State.REQ_SENT and mine.deadline == before


def test_a_disconnect_has_to_name_the_queue_pair():
    world = World()
    mine, theirs = world.established()
    ids = {"local_comm_id": mine.local_id, "remote_comm_id": theirs.local_id}
    world.inject(world.server, {"attribute": "DREQ", **ids, "remote_qpn": 24}, CLIENT)
    assert theirs.state is State.ESTABLISHED and world.server.counters.misdirected == 1


def test_a_timeout_does_not_end_what_is_established_without_both_ids():
    world = World()
    mine, theirs = world.established()
    rejection = {"attribute": "REJ", "message": "other", "reason": 4}
    world.inject(world.server, {**rejection, "local_comm_id": mine.local_id}, CLIENT)
    assert theirs.state is State.ESTABLISHED


def flood(world: World, count: int, seed: int = 0) -> None:
    engine = Engine(STRANGER, source=random.Random(seed))
    for qpn in range(count):
        engine.connect(SERVER, PORT, 100 + 1000 * seed + qpn, world.now)
    for mad, _ in engine.transmits():
        world.server.receive(mad, STRANGER, world.now)
    world.flush()


def test_a_flood_of_requests_is_bounded_by_the_backlog():
    world = World()
    world.listen(backlog=16)
    flood(world, 500)
    assert len(world.server.connections) == 16
    assert world.server.counters.backlog_full == 484


def test_a_flood_of_requests_that_are_accepted_is_bounded():
    world = World(limits=Limits(half_open=20))
    world.listen()
    world.on_event = lambda engine, event: (
        isinstance(event, events.ConnectRequest) and engine.accept(event.connection, 23, world.now)
    )
    for seed in range(10):
        flood(world, 10, seed)
    assert len(world.server.connections) == 20
    assert world.server.counters.table_full == 80


def test_a_flood_of_requests_that_are_rejected_is_bounded():
    world = World(limits=Limits(rejections=20))
    world.listen()
    world.on_event = lambda engine, event: (
        isinstance(event, events.ConnectRequest) and engine.reject(event.connection, world.now)
    )
    for seed in range(10):
        flood(world, 10, seed)
    assert len(world.server.connections) == 20
    assert world.server.counters.forgotten == 80
    world.run()
    world.assert_nothing_left()


def test_a_full_table_has_no_resources():
    world = World(limits=Limits(connections=2))
    world.listen()
    flood(world, 3)
    assert world.last("REJ")["reason"] == messages.NO_RESOURCES
    for qpn in (17, 18):
        world.client.connect(SERVER, PORT, qpn, world.now)
    with pytest.raises(TableFullError, match="2 connections"):
        world.client.connect(SERVER, PORT, 19, world.now)


@pytest.mark.parametrize("code", [0, 31])
def test_a_peers_times_are_bounded(code):
    world = World(losing("REP"))
    world.listen()
    altered_request(
        world,
        local_cm_response_timeout=code,
        remote_cm_response_timeout=code,
        primary_ack_timeout=code,
    )
    theirs = world.got(world.server, events.ConnectRequest)[0].connection
    start = world.now
    world.server.accept(theirs, 23, world.now)
    world.run()
    assert 16 * 0.05 <= world.now - start <= 18 * 20
    world.assert_nothing_left()


def test_many_moves_of_one_timer_leave_no_heap():
    world = World()
    mine, _ = world.request()
    for step in range(5000):
        world.client._table.timers.set(mine, world.now + 10 + step)
    assert len(world.client._table.timers._heap) < 200
    assert world.client.next_timer == world.now + 10 + 4999


@pytest.mark.parametrize(("qpn", "state"), [(1, State.TIMEWAIT), (2, State.REP_RECEIVED)])
def test_a_reply_cannot_name_a_special_queue_pair(qpn, state):
    world = World()
    mine, _ = world.request()
    ids = {"local_comm_id": 77, "remote_comm_id": mine.local_id}
    world.inject(world.client, {"attribute": "REP", **ids, "qpn": qpn}, SERVER)
    assert mine.state is state
    if qpn == 1:
        rejection = world.last("REJ")
        assert (rejection["reason"], rejection["remote_comm_id"]) == (5, 77)
        assert world.got(world.client, events.Rejected)[0].reason == 5


def test_a_peer_cannot_make_a_rejection_be_remembered_for_long():
    world = World(losing("REP", "REJ"))
    world.listen()
    longest = {"remote_cm_response_timeout": 31, "primary_ack_timeout": 31}
    altered_request(world, **longest)
    start = world.now
    world.server.reject(world.server.connections[0], world.now)
    world.run()
    assert world.now - start <= 160
    world.assert_nothing_left()


def test_what_was_withdrawn_pushes_no_rejection_out():
    world = World(limits=Limits(rejections=1))
    for qpn in (17, 18, 19):
        mine, _ = world.request(qpn=qpn)
        world.client.disconnect(mine, world.now)
        world.run(0.01)
    assert len(world.server.connections) == 3 and world.server.counters.forgotten == 0
