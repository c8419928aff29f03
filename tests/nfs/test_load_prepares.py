# SPDX-License-Identifier: BSD-2-Clause
"""A load whose server restarts, dies or is in its grace period before anything is measured."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from killed_server import PORTS, Killed

from livedma.nfs.client import Client
from livedma.nfs.load import LoadError, Plan, Runner
from livedma.nfs.server.config import Config
from livedma.nfs.server.service import NfsService, ServiceOptions
from livedma.rdma import Device
from needs import needs

pytestmark = pytest.mark.slow

_NET = f"127.{1 + os.getpid() // 250 % 250}.{1 + os.getpid() % 250}"
SERVER, CLIENT = f"{_NET}.64", f"{_NET}.65"
LIMIT_S = 60.0

Act = Callable[[Runner, list[str]], Awaitable[None]]


@pytest.fixture
def export(tmp_path: Path) -> Path:
    needs(os.geteuid() == 0, "a server that acts for several users needs root")
    (tmp_path / "export").mkdir()
    return tmp_path / "export"


@pytest.fixture
def servers(export: Path) -> Iterator[list[Killed]]:
    """One that runs; the last of the list is killed at the end."""
    made = [Killed(export.parent, SERVER)]
    yield made
    made[-1].kill()


async def until(condition: Callable[[], object]) -> None:
    async with asyncio.timeout(LIMIT_S):
        while not condition():
            await asyncio.sleep(0.01)


def is_filling(runner: Runner, since: int = 0) -> bool:
    """Whether the files of all sessions are being written."""
    load = getattr(runner, "_load", None)
    if load is None or len(load.places()) < runner.plan.sessions:
        return False
    numbers = range(runner.plan.sessions)
    return all(load.session(number).counters.fills > since for number in numbers)


def is_silent(told: list[str], proto: str) -> bool:
    """Whether the user was told that the server is silent."""
    return any(text.startswith(f"{SERVER} port {PORTS[proto]} has not answered") for text in told)


async def watched(
    proto: str, act: Act, device: Device | None = None, *, away_s: float = LIMIT_S, **options: int
) -> Runner:
    """Runs a load, unless told otherwise with files that take long, until what is done to it ends;
    returns it. Raises what the run raises."""
    wanted = {"sessions": 3, "depth": 1, "size": 4096, "file_bytes": 1 << 30, **options}
    told: list[str] = []
    runner = Runner(
        Plan(proto=proto, **wanted),  # type: ignore[arg-type]
        SERVER,
        PORTS[proto],
        device=device,
        tell=told.append,
        away_s=away_s,
    )
    tasks = {asyncio.create_task(runner.run()), asyncio.create_task(act(runner, told))}
    try:
        done, _ = await asyncio.wait(
            tasks, timeout=2 * LIMIT_S, return_when=asyncio.FIRST_COMPLETED
        )
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
    assert done
    for task in done:
        task.result()
    return runner


def run(proto: str, act: Act, **options: Any) -> Runner:
    """Does the same in an event loop of its own, over RDMA with a device."""
    if proto == "tcp":
        return asyncio.run(watched(proto, act, **options))
    with Device(CLIENT) as device:
        return asyncio.run(watched(proto, act, device, **options))


@pytest.mark.parametrize("proto", PORTS)
def test_a_server_that_comes_back_while_files_are_written(
    proto: str, export: Path, servers: list[Killed]
) -> None:
    async def act(runner: Runner, told: list[str]) -> None:
        await until(lambda: is_filling(runner))
        servers[-1].kill()
        await until(lambda: is_silent(told, proto))
        before = runner._load.figures().counters.fills
        servers.append(await asyncio.to_thread(Killed, export.parent, SERVER))
        await until(lambda: is_filling(runner, before))

    runner = run(proto, act)
    assert not runner.left
    assert not list(export.iterdir())


@pytest.mark.parametrize("proto", PORTS)
def test_a_server_that_stays_away_while_files_are_written(
    proto: str, export: Path, servers: list[Killed]
) -> None:
    made: list[Runner] = []

    async def act(runner: Runner, told: list[str]) -> None:
        made.append(runner)
        await until(lambda: is_filling(runner))
        servers[-1].kill()
        await asyncio.Event().wait()

    with pytest.raises(LoadError, match=r"the server did not come back in 0\.5 s: ."):
        run(proto, act, away_s=0.5)
    assert len(made[0].left) == len(list(export.iterdir())) == 3


@pytest.mark.parametrize("proto", PORTS)
def test_an_end_without_the_server(proto: str, export: Path, servers: list[Killed]) -> None:
    """It is not waited for, and what stays there is named."""
    where = ["load", SERVER, "--proto", proto, "--port", str(PORTS[proto]), "--sessions", "40"]
    options = ["--depth", "1", "--size", "4KiB", "--file-size", "64MiB"]
    if proto == "rdma":
        options += ["--source", CLIENT]
    with subprocess.Popen(
        [sys.executable, "-m", "livedma.cli", *where, *options],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    ) as load:
        try:
            asyncio.run(until(lambda: len(list(export.iterdir())) == 40))
            servers[-1].kill()
            load.send_signal(signal.SIGTERM)
            _, said = load.communicate(timeout=LIMIT_S)
        finally:
            load.kill()
    assert load.returncode == 128 + signal.SIGTERM
    left, end = said.splitlines()
    assert left.startswith("livedma: 40 files could not be removed and may still be at the server")
    assert end == "livedma: interrupted by SIGTERM before anything was measured"


def test_a_server_that_comes_back_while_sessions_are_made(
    export: Path, servers: list[Killed]
) -> None:
    """All that were asked for are made in the end."""

    async def act(runner: Runner, told: list[str]) -> None:
        await until(lambda: hasattr(runner, "_load") and runner._load.places())
        servers[-1].kill()
        assert len(runner._load.places()) < runner.plan.sessions
        await until(lambda: is_silent(told, "tcp"))
        servers.append(await asyncio.to_thread(Killed, export.parent, SERVER))
        await until(lambda: len(runner._load.places()) == runner.plan.sessions)
        await until(lambda: runner._load.figures().lost == 0)
        assert not runner._sessions.refused

    run("tcp", act, sessions=100, file_bytes=1 << 16)
    assert not list(export.iterdir())


def test_a_grace_period_is_told_and_waited_for(export: Path) -> None:
    """It ends when the client that the server knew before has come back."""
    service_options = ServiceOptions(
        addresses=[SERVER],
        tcp_port=PORTS["tcp"],
        rdma_port=None,
        state=export.parent / "state",
        config=Config(squash="none", grace_s=600),
    )
    services = [NfsService(export, service_options)]

    async def act(runner: Runner, told: list[str]) -> None:
        await until(lambda: any("grace period" in text for text in told))
        assert not list(export.glob("livedma-load-*"))
        restarted.set()
        await until(lambda: is_filling(runner))

    restarted = asyncio.Event()

    async def known() -> None:
        async with Client.connect(SERVER, PORTS["tcp"]) as client:
            await client.open("/file", "rw", create=True)
            await asyncio.to_thread(services[-1].close)
            services.append(await asyncio.to_thread(NfsService, export, service_options))
            loading = asyncio.create_task(watched("tcp", act))
            try:
                async with asyncio.timeout(LIMIT_S):
                    await restarted.wait()
                await client.stat("/file")
                await loading
            finally:
                loading.cancel()
                await asyncio.gather(loading, return_exceptions=True)

    try:
        asyncio.run(known())
    finally:
        services[-1].close()
