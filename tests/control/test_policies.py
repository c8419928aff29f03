# SPDX-License-Identifier: BSD-2-Clause
"""Policies, as the pure functions that they are."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.control.plant import BUFFER, MIB, PER_CREDIT, Pipe, Plant

from livedma.control.diagnose.forecast import Forecast
from livedma.control.diagnose.limits import Diagnosis, Limit
from livedma.control.policy import policies
from livedma.control.policy.plan import (
    Demand,
    Extend,
    Migrate,
    NoRoom,
    Plan,
    Room,
    SetCredits,
    Shrink,
    Spread,
)
from livedma.errors import LivedmaError

LIMITED = {
    Limit.NOTHING,
    Limit.SEND_QUEUE,
    Limit.STORAGE,
    Limit.CPU,
    Limit.NETWORK,
}


def planned(
    policy: str, limit: Limit, pipe: Pipe | None = None, budget: int | None = None
) -> Plan | NoRoom | None:
    plant = Plant([pipe or Pipe(wanted=1000)])
    snapshot = plant.observe()
    diagnosis = Diagnosis(1, snapshot.at_s, True, limit, "")
    return policies.by_name(policy).plan(diagnosis, snapshot, Room(budget))


@pytest.mark.parametrize("policy", policies.NAMES)
@pytest.mark.parametrize("limit", LIMITED)
def test_what_memory_cannot_cure_is_left_alone(policy: str, limit: Limit) -> None:
    assert planned(policy, limit) is None


@pytest.mark.parametrize("limit", Limit)
def test_static_has_no_plan(limit: Limit) -> None:
    assert planned("static", limit) is None


def test_each_has_its_own_way_to_more_memory() -> None:
    extend, spread, migrate = (
        planned(name, Limit.MEMORY) for name in ("extend", "spread", "migrate")
    )
    assert isinstance(extend, Plan) and isinstance(spread, Plan) and isinstance(migrate, Plan)
    assert extend.actions == (Extend(1, 4 * MIB, 135, {}),)
    assert spread.actions == (Spread(1),)
    (moved,) = migrate.actions
    assert isinstance(moved, Migrate) and moved.bytes == 16 * MIB
    assert moved.credits > moved.bytes // (BUFFER + PER_CREDIT)


@pytest.mark.parametrize("policy", ["extend", "spread", "migrate"])
def test_no_budget_no_plan(policy: str) -> None:
    found = planned(policy, Limit.MEMORY, budget=BUFFER // 2)
    assert isinstance(found, NoRoom) and "32 KiB" in found.reason


@pytest.mark.parametrize("policy", ["extend", "spread", "migrate"])
def test_credits_are_for_who_asked_for_them(policy: str) -> None:
    few = Pipe(wanted=1000, credits=16)
    (connection,) = Plant([few]).observe().connections
    plan = planned(policy, Limit.CREDITS, few)
    assert isinstance(plan, Plan) and plan.actions == (SetCredits(1, 32),)
    assert connection.credits_asked == 1024
    assert planned(policy, Limit.CREDITS, Pipe(credits=1024)) is None


@pytest.mark.parametrize("policy", ["extend", "spread", "migrate"])
def test_credits_come_with_memory_where_buffers_would_be_next(policy: str) -> None:
    plan = planned(policy, Limit.CREDITS, Pipe(wanted=1000))  # all are taken
    assert plan == planned(policy, Limit.MEMORY)


def test_who_sees_the_wire_alone_does_nothing() -> None:
    snapshot = Plant([Pipe(wanted=1000)]).observe()
    blind = replace(
        snapshot, connections=tuple(replace(one, inside=None) for one in snapshot.connections)
    )
    diagnosis = Diagnosis(1, snapshot.at_s, True, Limit.MEMORY, "")
    for name in policies.NAMES:
        assert policies.by_name(name).plan(diagnosis, blind, Room(None)) is None
        assert policies.by_name(name).relax(blind.connections[0], Demand(0, 0, 64)) is None


@pytest.mark.parametrize("more", [64 << 10, MIB])
def test_what_a_connection_began_with_is_not_taken(more: int) -> None:
    """Replies that are late, and shards that are still leaving, are mapped as well: they are no
    reason to take more and more.
    """
    (connection,) = (
        Plant([Pipe(buffers=200, credits=64, window_bytes=64 * MIB)]).observe().connections
    )
    inside = connection.inside
    assert inside is not None
    there = replace(inside, first_buffers=200, mapped_bytes=inside.mapped_bytes + more)
    relax = policies.by_name("extend").relax
    assert relax(replace(connection, inside=there), Demand(10, 10, 64)) is None
    extended = replace(there, first_buffers=72)
    found = relax(replace(connection, inside=extended), Demand(10, 10, 64))
    assert found is not None and found.actions[0].bytes == 128 * BUFFER


@given(
    buffers=st.integers(1, 250),
    more_credits=st.integers(1, 700),
    budget=st.none() | st.integers(0, 32 * MIB),
    window=st.integers(1, 64).map(lambda mib: mib * MIB),
)
def test_no_extension_exceeds_what_there_is(
    buffers: int, more_credits: int, budget: int | None, window: int
) -> None:
    granted = buffers + more_credits
    pipe = Pipe(wanted=5000, buffers=buffers, credits=granted, window_bytes=window)
    room = pipe.room_bytes if budget is None else min(pipe.room_bytes, budget)
    found = planned("extend", Limit.MEMORY, pipe, budget)
    if isinstance(found, NoRoom):
        assert room < MIB  # less than an eighth of a step, with its credits
        return
    assert isinstance(found, Plan)
    (action,) = found.actions
    assert isinstance(action, Extend)
    assert 0 < action.bytes <= pipe.first_bytes and action.bytes % BUFFER == 0
    assert action.bytes + (action.credits - granted) * PER_CREDIT <= room
    assert action.credits >= min(buffers + action.bytes // BUFFER, 1024)


@given(
    buffers=st.integers(1, 250),
    granted=st.integers(64, 300),
    needed=st.integers(0, 300),
    calls=st.integers(0, 300),
)
def test_no_more_is_taken_back_than_nobody_needs(
    buffers: int, granted: int, needed: int, calls: int
) -> None:
    pipe = Pipe(buffers=buffers, credits=granted, window_bytes=64 * MIB)
    (connection,) = Plant([pipe]).observe().connections
    found = policies.by_name("extend").relax(connection, Demand(needed, calls, 64))
    if found is None:
        return
    (action,) = found.actions
    assert isinstance(action, Shrink | SetCredits)
    assert 64 <= action.credits <= granted
    if isinstance(action, Shrink):
        left = buffers - action.bytes // BUFFER
        assert left >= 56 and left > needed
        assert action.credits > min(left, granted - 1)


def foretold(policy: str, asked: int = 1024, budget: int | None = None) -> Plan | NoRoom | None:
    snapshot = Plant([Pipe(wanted=40)]).observe()
    (connection,) = snapshot.connections
    snapshot = replace(snapshot, connections=(replace(connection, credits_asked=asked),))
    forecast = Forecast(1, snapshot.at_s, 0.5, 40.0, 0.0, 56, 30.0, 10.0)
    return policies.by_name(policy).ahead(forecast, snapshot, Room(budget))


def test_extend_alone_acts_ahead() -> None:
    for name in policies.NAMES:
        found = foretold(name)
        assert (found == planned("extend", Limit.MEMORY)) is (name == "extend")
        assert found is None or name == "extend"


def test_nothing_is_mapped_ahead_that_the_peer_cannot_use() -> None:
    assert foretold("extend", asked=56) is None
    assert foretold("extend", asked=57) is None  # nor what would make no difference
    assert foretold("extend", asked=63) is None
    plan = foretold("extend", asked=64)
    assert isinstance(plan, Plan) and plan.actions == (Extend(1, 8 * BUFFER, 64, {}),)
    plan = foretold("extend", asked=80)
    assert isinstance(plan, Plan) and plan.actions == (Extend(1, 24 * BUFFER, 80, {}),)


def test_nothing_is_mapped_ahead_without_budget() -> None:
    assert isinstance(foretold("extend", budget=BUFFER // 2), NoRoom)


@pytest.mark.parametrize("name", ["", "Extend", "none"])
def test_an_unknown_name_is_said(name: str) -> None:
    with pytest.raises(LivedmaError, match="one of static, extend, spread, migrate"):
        policies.by_name(name)


FULL = Pipe(wanted=400, credits=512, buffers=190, first_bytes=4 * MIB, follows=False)


def moved(pipe: Pipe, room: Room) -> Plan | NoRoom | None:
    plant = Plant([pipe])
    snapshot = plant.observe()
    diagnosis = Diagnosis(1, snapshot.at_s, True, Limit.MEMORY, "")
    return policies.by_name("migrate").plan(diagnosis, snapshot, room)


def test_a_client_that_cannot_be_asked_is_extended_where_there_is_room() -> None:
    assert planned("migrate", Limit.MEMORY, Pipe(wanted=1000, follows=False)) == planned(
        "extend", Limit.MEMORY
    )


def test_a_client_that_cannot_be_asked_is_cut_where_its_window_is_full() -> None:
    assert FULL.room_bytes < BUFFER * 8
    plan = moved(FULL, Room(None))
    assert isinstance(plan, Plan)
    (action,) = plan.actions
    assert isinstance(action, Migrate) and action.bytes > 2 * FULL.window_bytes
    assert plan.reason.endswith("its client cannot be asked, and is cut off for about 1 s")
    known = moved(FULL, Room(None, pause_s=0.25))
    assert isinstance(known, Plan) and "cut off for about 250 ms" in known.reason


def test_a_pause_that_is_not_worth_it_is_not_made() -> None:
    """More than half of what its calls take is waiting: 33 s of a minute, so 3 s are worth it."""
    assert isinstance(moved(FULL, Room(None, pause_s=3.0)), Plan)
    found = moved(FULL, Room(None, pause_s=5.0))
    assert isinstance(found, NoRoom) and "a pause of 5 s is too much" in found.reason
    assert not found.is_of_host
    hardly = replace(FULL, wanted=200)
    assert isinstance(moved(hardly, Room(None, pause_s=1.0)), NoRoom)
    assert isinstance(moved(hardly, Room(None, pause_s=0.2)), Plan)


def test_waiting_for_credits_is_worth_a_pause_too() -> None:
    """Credits go with buffers, so hardly a call waits here: the others wait at the client."""
    few = replace(FULL, credits=128, buffers=112, window_bytes=8 * MIB)
    assert isinstance(moved(replace(few, wanted=128), Room(None)), NoRoom)
    assert isinstance(moved(replace(few, wanted=256), Room(None)), Plan)


def test_a_cut_needs_no_room_beside_the_old_connection() -> None:
    """Its memory is free again before the new connection takes any."""
    plan = moved(FULL, Room(2 * FULL.mapped_bytes))
    assert isinstance(plan, Plan)
    (action,) = plan.actions
    assert isinstance(action, Migrate)
    assert 2 * FULL.mapped_bytes < action.bytes <= 3 * FULL.mapped_bytes
    assert isinstance(moved(FULL, Room(0)), NoRoom)
