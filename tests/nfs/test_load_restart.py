# SPDX-License-Identifier: BSD-2-Clause
"""The load outlives what happens to its server: restarts, and connections that are cut."""

from __future__ import annotations

import asyncio
import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from killed_server import PORTS, Killed

from livedma.nfs.load import Interval, Plan, Result, Runner
from livedma.nfs.server.config import Config
from livedma.nfs.server.facts import Facts
from livedma.nfs.server.service import NfsService, ServiceOptions
from livedma.rdma import Device
from needs import needs
from unprivileged import as_user

pytestmark = pytest.mark.slow

_NET = f"127.{1 + os.getpid() // 250 % 250}.{1 + os.getpid() % 250}"
SERVER, CLIENT = f"{_NET}.60", f"{_NET}.61"
LIMIT_S = 60.0
# Fewer calls than credits: the lease is renewed also while all wait for their replies.
PLAIN = ("--sessions", "8", "--size", "128KiB", "--seconds", "90", "--json")

Act = Callable[[Runner], Awaitable[None]]


def settings(directory: Path) -> ServiceOptions:
    return ServiceOptions(
        addresses=[SERVER],
        tcp_port=PORTS["tcp"],
        rdma_port=PORTS["rdma"],
        state=directory / "state",
        config=Config(squash="none"),
    )


@pytest.fixture
def export(tmp_path: Path) -> Path:
    needs(os.geteuid() == 0, "a server that acts for several users needs root")
    (tmp_path / "export").mkdir()
    return tmp_path / "export"


async def until(condition: Callable[[], object]) -> None:
    async with asyncio.timeout(LIMIT_S):
        while not condition():
            await asyncio.sleep(0.01)


@contextmanager
def device_for(proto: str) -> Iterator[Device | None]:
    if proto == "tcp":
        yield None
        return
    with Device(CLIENT) as device:
        yield device


def run(proto: str, act: Act, seen: list[Interval] | None = None, **options: Any) -> Result:
    """The result of a load during which something is done."""
    away_s = options.pop("away_s", LIMIT_S)
    wanted = {"sessions": 6, "depth": 3, "size": 16384, "rw": "mix", "seconds": 600.0, **options}

    async def both(device: Device | None) -> Result:
        plan = Plan(proto=proto, **wanted)  # type: ignore[arg-type]
        show = (lambda _: None) if seen is None else seen.append
        runner = Runner(plan, SERVER, PORTS[proto], device=device, show=show, away_s=away_s)
        load = asyncio.create_task(runner.run())
        try:
            await act(runner)
        except BaseException:
            runner.stop()
            raise
        return await load

    async def bounded() -> Result:
        with device_for(proto) as device:
            async with asyncio.timeout(2 * LIMIT_S):
                return await both(device)

    return asyncio.run(bounded())


def has_worked(runner: Runner, since: int = 0) -> bool:
    """Whether all sessions have done something more than so much in all."""
    load = getattr(runner, "_load", None)
    if load is None or len(load.places()) < runner.plan.sessions:
        return False
    return all(
        sum(load.session(number).counters[:2]) > since for number in range(runner.plan.sessions)
    )


async def goes_on(runner: Runner, gaps: int) -> None:
    """Until so many gaps are over, and all sessions have done something since."""
    await until(lambda: len(runner._recovery.gaps_s) == gaps)
    numbers = range(runner.plan.sessions)
    before = max(sum(runner._load.session(number).counters[:2]) for number in numbers)
    await until(lambda: has_worked(runner, before))


def check(result: Result, gaps: int = 1) -> None:
    assert result.is_clean, result.as_json()
    assert len(result.gaps_s) == gaps
    assert min(result.gaps_s, default=1) > 0
    assert result.reconnects >= gaps
    assert (result.counters.errors, result.counters.wrong) == (0, 0)


@pytest.mark.parametrize("proto", PORTS)
def test_a_server_that_is_killed_and_comes_back(proto: str, export: Path) -> None:
    """Each session goes on, with a file that is as it should be."""
    servers = [Killed(export.parent, SERVER)]

    async def act(runner: Runner) -> None:
        await until(lambda: has_worked(runner))
        servers[-1].kill()
        servers.append(await asyncio.to_thread(Killed, export.parent, SERVER))
        await goes_on(runner, 1)
        runner.stop()

    try:
        result = run(proto, act)
        check(result)
        assert len({one.id for one in result.sessions}) == 6
        assert not list(export.iterdir())  # it leaves nothing behind
    finally:
        servers[-1].kill()


def test_a_plain_user_comes_back(export: Path) -> None:
    """The usual limit of pinned memory has no room for what two connections of this size need."""
    export.chmod(0o777)
    server = Killed(export.parent, SERVER)
    where = ["load", SERVER, "--source", CLIENT, "--port", str(PORTS["rdma"])]
    load = subprocess.Popen(
        [*as_user(8 << 20), sys.executable, "-m", "livedma.cli", *where, *PLAIN],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        assert load.stdout is not None
        rows = map(json.loads, load.stdout)
        assert next(row for row in rows if row["operations_per_s"])
        server.kill()
        assert next(row for row in rows if "away_s" in row)
        server = Killed(export.parent, SERVER)
        assert next(row for row in rows if row["operations_per_s"] and "away_s" not in row)
        load.send_signal(signal.SIGINT)
        said, wrong = load.communicate(timeout=LIMIT_S)
        total = json.loads(said.splitlines()[-1])
        assert (wrong, total["errors"], total["lost"]) == ("", 0, [])
        assert total["reconnects"] >= len(total["gaps_s"]) == 1
        assert not list(export.iterdir())
    finally:
        load.kill()
        load.communicate(timeout=LIMIT_S)
        server.kill()


def test_two_restarts_in_order(export: Path) -> None:
    """Connections are ended politely; each connection of several comes back."""
    services = [NfsService(export, settings(export.parent))]

    async def act(runner: Runner) -> None:
        await until(lambda: has_worked(runner))
        for gaps in (1, 2):
            await asyncio.to_thread(services[-1].close)
            services.append(await asyncio.to_thread(NfsService, export, settings(export.parent)))
            await goes_on(runner, gaps)
        runner.stop()

    try:
        check(run("tcp", act, connections=2), 2)
        assert not list(export.iterdir())
    finally:
        services[-1].close()


@pytest.mark.parametrize("proto", PORTS)
@pytest.mark.parametrize("rw", ["mix", "read"])
def test_a_connection_that_is_cut(proto: str, rw: str, export: Path) -> None:
    """The server keeps the sessions: what was under way is done once, also what it had done."""
    with NfsService(export, settings(export.parent)) as service:
        facts = Facts(service)

        async def act(runner: Runner) -> None:
            await until(lambda: has_worked(runner))
            ids = {one["id"] for one in facts.sessions()}
            for gaps in (1, 2, 3):
                await asyncio.to_thread(cut, service, proto)
                await goes_on(runner, gaps)
            await until(lambda: {one["id"] for one in facts.sessions()} == ids)
            runner.stop()

        result = run(proto, act, rw=rw)
    check(result, 3)
    assert result.counters.repeats > 0


def cut(service: NfsService, proto: str) -> None:
    if proto == "rdma":
        (connection,) = Facts(service).connections()
        service.cut(connection["number"])
        return
    needs(os.path.exists("/usr/bin/ss") or os.path.exists("/bin/ss"), "ss closes sockets")
    subprocess.run(["ss", "-K", "dst", SERVER], capture_output=True, check=True)


@pytest.mark.parametrize("proto", PORTS)
def test_a_server_that_ends_and_stays_away(proto: str, export: Path) -> None:
    """When its time is up, the load says since when there was no answer."""
    service = NfsService(export, settings(export.parent))
    seen: list[Interval] = []

    async def act(runner: Runner) -> None:
        await until(lambda: has_worked(runner))
        await asyncio.to_thread(service.close)
        await until(lambda: seen and seen[-1].away_s > 0)
        runner.stop()  # as when time is up

    try:
        result = run(proto, act, seen)
    finally:
        service.close()
    assert result.operations > 0
    assert len(result.lost) == len(result.gaps_s) == 1
    assert re.match(r"when time was up, the server had not answered for \S+ s: .", result.ended)
    assert not result.is_clean
    assert seen[-1].away_s > 0
    assert seen[-1].as_json()["away_s"] > 0


def test_a_server_that_stays_away_for_too_long(export: Path) -> None:
    service = NfsService(export, settings(export.parent))

    async def act(runner: Runner) -> None:
        await until(lambda: has_worked(runner))
        await asyncio.to_thread(service.close)

    try:
        result = run("tcp", act, away_s=0.5)
    finally:
        service.close()
    assert result.ended.startswith("the server did not come back in 0.5 s: ")
    assert "Connection refused" in result.ended
    assert result.operations > 0
    assert not result.is_clean


@pytest.mark.parametrize("ramp", [None, 100])
def test_as_many_sessions_as_were_asked_for(ramp: float | None, export: Path) -> None:
    """The session that opens the files is gone before anything is measured, and the lease is kept
    though no session has anything to do.
    """
    config = Config(squash="none", lease_s=1, grace_s=1)
    with NfsService(export, replace(settings(export.parent), config=config)) as service:
        facts = Facts(service)

        async def act(runner: Runner) -> None:
            await until(lambda: has_worked(runner))
            await until(lambda: len(facts.sessions()) == 6)
            runner.set_active(0)
            await until(lambda: len(facts.sessions()) == 7)  # whose SEQUENCE renews the lease
            await until(lambda: len(facts.sessions()) == 6)
            runner.set_active(6)
            await goes_on(runner, 0)
            runner.stop()

        result = run("tcp", act, ramp=ramp)
        assert result.is_clean, result.as_json()
        assert not facts.sessions()


def test_a_run_that_has_ended_is_not_waited_for(export: Path) -> None:
    """A server that ends right after it has no client on its disk: the next one has no grace."""

    async def stop(runner: Runner) -> None:
        await until(lambda: has_worked(runner))
        runner.stop()

    with NfsService(export, settings(export.parent)):
        check(run("tcp", stop, sessions=1), gaps=0)
    with NfsService(export, settings(export.parent)) as service:
        assert not service.server.recovery.in_grace(service.server.clock())
