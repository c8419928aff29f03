# SPDX-License-Identifier: BSD-2-Clause
"""Whatever the wire and both users do: both sides agree in the end, and nothing is left over."""

from __future__ import annotations

import contextlib
import os
from dataclasses import dataclass

import pytest
from cm_world import PORT, SERVER, World
from hypothesis import given, settings
from hypothesis import strategies as st

from livedma.rdma.cm import events
from livedma.rdma.cm.connection import Connection, ConnectionStateError, State

SCHEDULES = int(os.environ.get("LIVEDMA_SCHEDULES", "500"))
PACKET_LIFETIME = 0.268
ENDS = (events.Rejected, events.Unreachable, events.Disconnected)


@dataclass
class Plan:
    """What becomes of one connection, in seconds after its turn comes."""

    starts: float
    answer: str
    answers: float
    confirm: str
    confirms: float
    client_closes: float | None
    server_closes: float | None
    has_data: bool  # the client's packets reach the server's queue pair before the RTU


delays = st.one_of(st.just(0.0), st.floats(0, 0.3), st.floats(0, 30))
closes = st.one_of(st.none(), st.floats(0, 0.5), st.floats(0, 100))
plans = st.lists(
    st.builds(
        Plan,
        starts=delays,
        answer=st.sampled_from(["accept", "accept", "reject"]),
        answers=delays,
        confirm=st.sampled_from(["confirm", "confirm", "reject"]),
        confirms=delays,
        client_closes=closes,
        server_closes=closes,
        has_data=st.booleans(),
    ),
    min_size=1,
    max_size=4,
)
fates = st.lists(
    st.one_of(
        st.just([]),
        st.lists(st.floats(0.0001, PACKET_LIFETIME), min_size=1, max_size=3),
        st.just([0.001]),
    ),
    max_size=40,
)


class Users:
    """Both users, doing what the plans say; each checks what it is told."""

    def __init__(self, world: World, plans: list[Plan]) -> None:
        self.world = world
        self.plans = plans
        self.clients: dict[int, Connection] = {}  # index of the plan ->
        self.servers: dict[int, list[Connection]] = {}
        self.accepted: set[int] = set()
        world.listen()
        world.on_event = self.on_event
        for index, plan in enumerate(plans):
            world.at(plan.starts, lambda index=index: self.start(index))

    def start(self, index: int) -> None:
        world, plan = self.world, self.plans[index]
        self.clients[index] = world.client.connect(
            SERVER, PORT, 100 + index, world.now, private_data=bytes([index])
        )
        if plan.client_closes is not None:
            self.later(plan.client_closes, world.client.disconnect, self.clients[index])

    def later(self, seconds: float, act, *arguments, **options) -> None:
        def attempt() -> None:
            with contextlib.suppress(ConnectionStateError):  # the peer may be faster
                act(*arguments, self.world.now, **options)

        self.world.at(seconds, attempt)

    def on_event(self, engine, event) -> None:
        if isinstance(event, events.ConnectRequest):
            self.on_request(event)
        elif isinstance(event, events.ConnectResponse):
            self.on_response(event)

    def on_request(self, event: events.ConnectRequest) -> None:
        server, index = self.world.server, event.private_data[0]
        plan = self.plans[index]
        self.servers.setdefault(index, []).append(event.connection)
        if plan.answer == "reject":
            self.later(plan.answers, server.reject, event.connection)
            return
        self.accepted.add(index)
        self.later(
            plan.answers, self.accept, event.connection, 200 + index, private_data=bytes([index])
        )
        if plan.server_closes is not None:
            self.later(plan.server_closes, server.disconnect, event.connection)

    def accept(self, connection: Connection, qpn: int, now: float, **options) -> None:
        self.world.server.accept(connection, qpn, now, **options)

    def on_response(self, event: events.ConnectResponse) -> None:
        index = event.private_data[0]
        plan, client = self.plans[index], self.world.client
        assert self.clients[index] is event.connection
        assert index in self.accepted
        if plan.confirm == "reject":
            self.later(plan.confirms, client.reject, event.connection)
        else:
            self.later(plan.confirms, self.confirm, event.connection, index)

    def confirm(self, connection: Connection, index: int, now: float) -> None:
        self.world.client.confirm(connection, now)
        if self.plans[index].has_data:
            self.world.server.establish(self.servers[index][-1])


def are_peers(mine: Connection, theirs: Connection) -> bool:
    return (
        (mine.local_id, mine.remote_id) == (theirs.remote_id, theirs.local_id)
        and (mine.qpn, mine.remote_qpn) == (theirs.remote_qpn, theirs.qpn)
        and (mine.rq_psn, mine.sq_psn) == (theirs.sq_psn, theirs.rq_psn)
    )


def assert_life_is_complete(world: World) -> None:
    """One end at most, and the exit from timewait last of all, once."""
    for engine, seen in world.seen.items():
        for connection in {id(event.connection): event.connection for event in seen}.values():
            life = [event for event in seen if event.connection is connection]
            assert isinstance(life[-1], events.TimewaitExit), life
            assert sum(isinstance(event, events.TimewaitExit) for event in life) == 1
            assert sum(isinstance(event, ENDS) for event in life) <= 1, life
            assert sum(isinstance(event, events.Established) for event in life) <= 1
            assert sum(isinstance(event, events.ConnectResponse) for event in life) <= 1
        assert not engine.connections


@pytest.mark.slow
@settings(max_examples=SCHEDULES)
@given(plans, fates)
def test_both_sides_agree(plans, fates):
    coming = iter(fates)
    world = World(lambda mad: next(coming, [0.001]))
    users = Users(world, plans)
    world.run(100_000)
    for index, mine in users.clients.items():
        theirs = users.servers.get(index, [])
        assert len(theirs) <= 1, "one request was seen twice"
        assert mine.state in (State.ESTABLISHED, State.CLOSED)
        for their in theirs:
            assert their.state is mine.state
            assert are_peers(mine, their) or mine.state is State.CLOSED
    for mine in users.clients.values():
        world.client.disconnect(mine, world.now)
    world.run()
    world.assert_nothing_left()
    assert_life_is_complete(world)


@pytest.mark.slow
@settings(max_examples=SCHEDULES // 2)
@given(plans, fates)
def test_a_wire_that_dies_leaves_nothing(plans, fates):
    coming = iter(fates)
    world = World(lambda mad: next(coming, []))
    users = Users(world, plans)
    world.run(100_000)
    for mine in users.clients.values():
        world.client.disconnect(mine, world.now)
    for theirs in users.servers.values():
        for their in theirs:
            world.server.disconnect(their, world.now)
    world.run()
    world.assert_nothing_left()
    assert_life_is_complete(world)
