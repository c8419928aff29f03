"""Sessions under load go to another connection because the server wants it: nothing is lost."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from livedma.nfs.config import Config
from livedma.nfs.levers import Levers
from livedma.nfs.load import Plan, Result, Runner
from livedma.nfs.service import NfsService, Wishes
from livedma.rdma import Device
from livedma.rpc.rdma_server import Options
from needs import needs

pytestmark = pytest.mark.slow

_NET = f"127.{1 + os.getpid() // 250 % 250}.{1 + os.getpid() % 250}"
SERVER, CLIENT, PORT = f"{_NET}.50", f"{_NET}.51", 20049
LIMIT_S = 60.0
MAPPED = 2 << 20

Act = Callable[[Levers], Awaitable[None]]


@pytest.fixture
def service(tmp_path: Path) -> Iterator[NfsService]:
    needs(os.geteuid() == 0, "a server that acts for several users needs root")
    export = tmp_path / "export"
    export.mkdir()
    wishes = Wishes(
        addresses=[SERVER],
        tcp_port=None,
        rdma_port=PORT,
        state=tmp_path / "state",
        config=Config(squash="none", store_delay_s=0.002),
        rdma=Options(window_bytes=4 * MAPPED, mapped_bytes=MAPPED, buffer_bytes=16 << 10),
    )
    with NfsService(export, wishes) as service:
        yield service


async def until(condition: Callable[[], object]) -> None:
    async with asyncio.timeout(LIMIT_S):
        while not condition():
            await asyncio.sleep(0.01)


def run(act: Act, service: NfsService, **plan: Any) -> Result:
    """The result of a load during which something is done."""
    levers = Levers(service)
    wanted = {"sessions": 12, "depth": 3, "size": 16384, "rw": "mix", "seconds": 600.0, **plan}

    async def both(device: Device) -> Result:
        runner = Runner(Plan(**wanted), SERVER, PORT, device=device)
        load = asyncio.create_task(runner.run())
        try:
            await act(levers)
        finally:
            runner.stop()
        return await load

    async def bounded() -> Result:
        with Device(CLIENT) as device:
            async with asyncio.timeout(2 * LIMIT_S):
                return await both(device)

    return asyncio.run(bounded())


def served(levers: Levers) -> int:
    """Operations of all sessions, so far."""
    return sum(one["counters"]["requests"] for one in levers.sessions())


async def is_busy(levers: Levers, sessions: int = 12) -> int:
    """Until all sessions work, on one connection, whose number it returns."""
    await until(lambda: len(levers.sessions()) > sessions)  # and that of the client itself
    await works_on(levers)
    (connection,) = levers.connections()
    return int(connection["number"])


async def works_on(levers: Levers) -> None:
    """Until much more was done than was under way."""
    before = sum(one["calls"] for one in levers.connections())
    await until(lambda: sum(one["calls"] for one in levers.connections()) > before + 500)


def numbers(levers: Levers) -> list[int]:
    return [one["number"] for one in levers.connections()]


def check(result: Result) -> None:
    assert result.is_clean, result.as_json()
    assert result.counters.reads > 0
    assert result.counters.writes > 0
    assert result.counters.wrong == 0


def test_all_sessions_move_under_load(service: NfsService) -> None:
    ids: set[str] = set()

    async def act(levers: Levers) -> None:
        old = await is_busy(levers)
        ids.update(one["id"] for one in levers.sessions())
        assert levers.guidance(old)["follows"]
        service.guidance.migrate(old, mapped_bytes=3 * MAPPED, credits=100)
        await until(lambda: numbers(levers) not in ([old], []) and old not in numbers(levers))
        state = service.guidance.state(old)
        assert state is not None
        assert (state.phase, state.moved, state.sessions) == ("done", 12, 12)
        (new,) = levers.connections()
        assert state.successor == new["number"]
        assert (new["window"], new["credits"]) == (4 * MAPPED, 100)
        assert 2 * MAPPED < new["mapped"] <= 3 * MAPPED
        await works_on(levers)
        assert {one["id"] for one in levers.sessions()} == ids  # none was made anew
        assert all(one["connections"] == (new["number"],) for one in levers.sessions())

    result = run(act, service)
    check(result)
    assert (result.connections, len(result.moved), result.counters.repeats) == (2, 12, 0)
    assert all(one.figures.moves == 1 and one.figures.pause_ns > 0 for one in result.sessions)
    assert {one.id.hex() for one in result.sessions} < ids
    said = result.as_json()
    assert said["reconnects"] == 0
    assert said["moved"]["sessions"] == 12
    assert 0 < said["moved"]["pause_us"]["median"] <= said["moved"]["pause_us"]["max"]


def test_a_window_grows_with_what_is_mapped(service: NfsService) -> None:
    async def act(levers: Levers) -> None:
        old = await is_busy(levers)
        service.guidance.migrate(old, mapped_bytes=6 * MAPPED, credits=64)
        await until(lambda: old not in numbers(levers))
        (new,) = levers.connections()
        assert new["window"] == 6 * MAPPED

    check(run(act, service))


def test_new_sessions_spread_and_old_ones_stay(service: NfsService) -> None:
    async def act(levers: Levers) -> None:
        await until(lambda: len(levers.sessions()) > 4)
        (old,) = numbers(levers)
        service.guidance.spread(old)
        await until(lambda: len(levers.sessions()) > 24)
        state = service.guidance.state(old)
        assert state is not None
        assert (state.phase, state.is_over) == ("opened", True)
        bound = [one["connections"] for one in levers.sessions()]
        assert (old,) in bound
        assert (state.successor,) in bound
        assert len(bound) == bound.count((old,)) + bound.count((state.successor,))
        await works_on(levers)

    result = run(act, service, sessions=24, ramp=40)
    check(result)
    assert (result.connections, len(result.moved)) == (2, 0)


def test_again_and_again(service: NfsService) -> None:
    """More often than there may be connections at a time."""

    async def act(levers: Levers) -> None:
        for _ in range(10):
            old = await is_busy(levers)
            service.guidance.migrate(old, mapped_bytes=MAPPED, credits=64)
            await until(lambda old=old: old not in numbers(levers))  # type: ignore[misc]

    result = run(act, service)
    check(result)
    assert result.connections == 11
    assert all(one.figures.moves == 10 for one in result.sessions)


def test_it_stays_without_memory_for_the_new_connection(service: NfsService) -> None:
    async def act(levers: Levers) -> None:
        old = await is_busy(levers)
        service.guidance.migrate(old, mapped_bytes=1 << 50, credits=64)
        await until(lambda: (state := service.guidance.state(old)) and state.is_over)
        state = service.guidance.state(old)
        assert state is not None
        assert state.phase == "refused"
        assert state.words
        assert numbers(levers) == [old]
        await works_on(levers)
        service.guidance.migrate(old, mapped_bytes=MAPPED, credits=64)  # it still listens
        await until(lambda: old not in numbers(levers))

    result = run(act, service)
    check(result)
    assert (result.connections, len(result.moved)) == (2, 12)


def test_who_does_not_follow_is_left_alone(service: NfsService) -> None:
    async def act(levers: Levers) -> None:
        old = await is_busy(levers)
        service.guidance.migrate(old, mapped_bytes=MAPPED, credits=64)
        await works_on(levers)
        state = service.guidance.state(old)
        assert state is not None
        assert (state.phase, state.is_over) == ("asked", False)
        assert levers.guidance(old)["follows"] is False
        assert numbers(levers) == [old]

    check(run(act, service, follow=False))
