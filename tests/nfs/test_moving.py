# SPDX-License-Identifier: BSD-2-Clause
"""Sessions under load go to another connection because the server wants it: nothing is lost."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from livedma.memory import accounting, budget
from livedma.nfs.load import Plan, Result, Runner
from livedma.nfs.server.config import Config
from livedma.nfs.server.facts import Facts
from livedma.nfs.server.service import NfsService
from livedma.rdma import Device
from livedma.rpc.rdma_server import Options
from served import served

pytestmark = pytest.mark.slow

_NET = f"127.{1 + os.getpid() // 250 % 250}.{1 + os.getpid() % 250}"
SERVER, CLIENT, PORT = f"{_NET}.50", f"{_NET}.51", 20049
LIMIT_S = 60.0
MAPPED = 2 << 20
FILLS = 12 * (1 << 20) // 16384  # calls that write the files first

Act = Callable[[Facts], Awaitable[None]]


@pytest.fixture
def service(tmp_path: Path) -> Iterator[NfsService]:
    # Fewer credits than slots: calls wait at the client, and have to move, too.
    options = Options(4 * MAPPED, MAPPED, buffer_bytes=16 << 10, credits=16)
    config = Config(squash="none", store_delay_s=0.002)
    with served(tmp_path, SERVER, PORT, config=config, rdma=options) as service:
        yield service


async def until(condition: Callable[[], object]) -> None:
    async with asyncio.timeout(LIMIT_S):
        while not condition():
            await asyncio.sleep(0.01)


def run(act: Act, service: NfsService, **plan: Any) -> Result:
    """The result of a load during which something is done."""
    facts = Facts(service)
    wanted = {"sessions": 12, "depth": 3, "size": 16384, "rw": "mix", "seconds": 600.0, **plan}

    async def both(device: Device) -> Result:
        runner = Runner(Plan(**wanted), SERVER, PORT, device=device)
        load = asyncio.create_task(runner.run())
        try:
            await act(facts)
        finally:
            runner.stop()
            result = await load
        return result

    async def bounded() -> Result:
        with Device(CLIENT) as device:
            async with asyncio.timeout(2 * LIMIT_S):
                return await both(device)

    return asyncio.run(bounded())


async def is_busy(facts: Facts, sessions: int = 12) -> int:
    """Until all sessions work, on one connection, whose number it returns."""
    await until(lambda: len(facts.sessions()) >= sessions)
    await works_on(facts, FILLS + 500)
    (connection,) = facts.connections()
    return int(connection["number"])


async def works_on(facts: Facts, calls: int = 500) -> None:
    """Until much more was done than was under way."""
    before = sum(one["calls"] for one in facts.connections())
    await until(lambda: sum(one["calls"] for one in facts.connections()) > before + calls)


async def all_work(facts: Facts) -> None:
    """Until each session has done something more."""

    def used() -> dict[str, int]:
        return {one["id"]: one["counters"]["executed"] for one in facts.sessions()}

    before = used()
    await until(lambda: all(used()[one] > before[one] + 10 for one in before))


def numbers(facts: Facts) -> list[int]:
    return [one["number"] for one in facts.connections()]


def check(result: Result) -> None:
    assert result.is_clean, result.as_json()
    assert result.counters.reads > 0
    assert result.counters.writes > 0
    assert result.counters.wrong == 0


def test_all_sessions_move_under_load(service: NfsService) -> None:
    ids: set[str] = set()

    async def act(facts: Facts) -> None:
        old = await is_busy(facts)
        ids.update(one["id"] for one in facts.sessions())
        assert facts.guidance(old)["follows"]
        service.guidance.migrate(old, mapped_bytes=3 * MAPPED, credits=100)
        await until(lambda: numbers(facts) not in ([old], []) and old not in numbers(facts))
        state = service.guidance.state(old)
        assert state is not None
        assert (state.phase, state.moved, state.sessions) == ("done", 12, 12)
        (new,) = facts.connections()
        assert state.successor == new["number"]
        assert (new["window"], new["credits"]) == (4 * MAPPED, 100)
        assert 2 * MAPPED < new["mapped"] <= 3 * MAPPED
        await works_on(facts)
        assert {one["id"] for one in facts.sessions()} == ids  # none was made anew
        assert all(one["connections"] == (new["number"],) for one in facts.sessions())

    result = run(act, service)
    check(result)
    assert (result.connections, len(result.moved), result.counters.repeats) == (2, 12, 0)
    assert all(one.figures.moves == 1 and one.figures.pause_ns > 0 for one in result.sessions)
    assert {one.id.hex() for one in result.sessions} == ids
    said = result.as_json()
    assert said["reconnects"] == 0
    assert said["moved"]["sessions"] == 12
    assert 0 < said["moved"]["pause_us"]["median"] <= said["moved"]["pause_us"]["max"]


def test_a_window_grows_with_what_is_mapped(service: NfsService) -> None:
    async def act(facts: Facts) -> None:
        old = await is_busy(facts)
        service.guidance.migrate(old, mapped_bytes=6 * MAPPED, credits=64)
        await until(lambda: old not in numbers(facts))
        (new,) = facts.connections()
        assert new["window"] == 6 * MAPPED

    check(run(act, service))


def test_new_sessions_spread_and_old_ones_stay(service: NfsService) -> None:
    async def act(facts: Facts) -> None:
        await until(lambda: len(facts.sessions()) > 4)
        (old,) = numbers(facts)
        service.guidance.spread(old)
        await until(lambda: len(facts.sessions()) >= 24)
        state = service.guidance.state(old)
        assert state is not None
        assert (state.phase, state.is_over) == ("opened", True)
        bound = [one["connections"] for one in facts.sessions()]
        assert (old,) in bound
        assert (state.successor,) in bound
        assert len(bound) == bound.count((old,)) + bound.count((state.successor,))
        await works_on(facts)

    result = run(act, service, sessions=24, ramp=40)
    check(result)
    assert (result.connections, len(result.moved)) == (2, 0)


def test_again_and_again(service: NfsService) -> None:
    """More often than there may be connections at a time."""

    async def act(facts: Facts) -> None:
        for _ in range(10):
            old = await is_busy(facts)
            service.guidance.migrate(old, mapped_bytes=MAPPED, credits=64)
            await until(lambda old=old: old not in numbers(facts))  # type: ignore[misc]

    result = run(act, service)
    check(result)
    assert result.connections == 11
    assert all(one.figures.moves == 10 for one in result.sessions)


@pytest.fixture
def no_budget() -> Iterator[None]:
    yield
    budget(None)


@pytest.mark.parametrize("end", ["server", "client"])
def test_it_stays_without_memory_for_the_new_connection(
    service: NfsService, no_budget: None, end: str
) -> None:
    async def act(facts: Facts) -> None:
        old = await is_busy(facts)
        if end == "client":
            budget(accounting.process().charged + (64 << 10))
        # So many credits take the whole window of the server.
        credits_wanted = 1024 if end == "server" else 16
        service.guidance.migrate(old, mapped_bytes=MAPPED, credits=credits_wanted)
        await until(lambda: (state := service.guidance.state(old)) and state.is_over)
        state = service.guidance.state(old)
        assert state is not None
        assert state.phase == "refused"
        assert ("budget" if end == "client" else "no room") in state.words
        assert numbers(facts) == [old]
        await works_on(facts)
        budget(None)
        service.guidance.migrate(old, mapped_bytes=MAPPED, credits=16)  # it still listens
        await until(lambda: old not in numbers(facts))

    result = run(act, service)
    check(result)
    assert (result.connections, len(result.moved)) == (2, 12)


def test_who_does_not_follow_is_left_alone(service: NfsService) -> None:
    async def act(facts: Facts) -> None:
        old = await is_busy(facts)
        service.guidance.migrate(old, mapped_bytes=MAPPED, credits=64)
        await works_on(facts)
        state = service.guidance.state(old)
        assert state is not None
        assert (state.phase, state.is_over) == ("asked", False)
        assert facts.guidance(old)["follows"] is False
        assert numbers(facts) == [old]

    check(run(act, service, follow=False))


async def begun(facts: Facts, service: NfsService) -> tuple[int, int]:
    """The numbers of both connections, when some sessions have moved."""
    old = await is_busy(facts)
    bound = asyncio.Event()
    loop = asyncio.get_running_loop()
    sessions = service.server.sessions
    bind = sessions._bind
    seen = []

    def count(session: Any, connection: Any) -> None:
        bind(session, connection)
        seen.append(session)
        if len(seen) > 4:
            loop.call_soon_threadsafe(bound.set)

    sessions._bind = count  # type: ignore[method-assign]
    service.guidance.migrate(old, mapped_bytes=MAPPED, credits=16)
    await bound.wait()
    state = service.guidance.state(old)
    assert state is not None
    assert state.successor is not None
    return old, state.successor


def test_the_new_connection_is_cut_in_the_middle(service: NfsService) -> None:
    """Sessions that had moved go back, with what was under way."""

    async def act(facts: Facts) -> None:
        old, new = await begun(facts, service)
        service.cut(new)
        await until(lambda: new not in numbers(facts))
        await all_work(facts)
        assert numbers(facts) == [old]

    result = run(act, service)
    assert (result.counters.errors, result.counters.wrong, result.unanswered) == (0, 0, 0)
    assert result.refused == ()
    assert len(result.lost) == 1  # it is told, although nothing was lost with it


def test_the_old_connection_is_cut_in_the_middle(service: NfsService) -> None:
    """Sessions that have moved go on, and so do the others, with what was under way."""

    async def act(facts: Facts) -> None:
        old, new = await begun(facts, service)
        service.cut(old)
        await until(lambda: old not in numbers(facts))
        await all_work(facts)
        assert numbers(facts) == [new]
        state = service.guidance.state(old)
        assert state is not None
        assert state.phase in ("lost", "done")

    result = run(act, service)
    assert (result.counters.errors, result.counters.wrong, result.unanswered) == (0, 0, 0)
    assert result.refused == ()
    assert len(result.lost) == 1
