# SPDX-License-Identifier: BSD-2-Clause
"""Real servers with a controller, in this process or in one of their own, and load for them."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

from livedma.control.running import Controlled, Options, controlled
from livedma.nfs.control import Control
from livedma.nfs.load import Plan, Result, Runner
from livedma.nfs.server.config import Config
from livedma.rdma import Device
from livedma.rpc.rdma_server import Options as RdmaOptions
from needs import needs
from served import served

_NET = f"127.{1 + os.getpid() // 250 % 250}.{1 + os.getpid() % 250}"
SERVER, CLIENT, PORT = f"{_NET}.60", f"{_NET}.61", 20052
MIB = 1 << 20
LIMIT_S = 60.0
HEAVY = Plan(sessions=32, depth=4, size=65536, seconds=LIMIT_S)  # 128 calls want 56 buffers


@contextmanager
def serving(tmp_path: Path, options: Options, **config: Any) -> Iterator[Control]:
    with running(tmp_path, options, **config) as (_, control):
        yield control


@contextmanager
def running(
    tmp_path: Path, options: Options, **config: Any
) -> Iterator[tuple[Controlled, Control]]:
    with (
        served(
            tmp_path,
            SERVER,
            PORT,
            control=tmp_path / "control",
            config=Config(squash="none", **{"store_delay_s": 0.02, **config}),
            rdma=RdmaOptions(window_bytes=16 * MIB, mapped_bytes=4 * MIB),
        ) as service,
        controlled(service, options) as it,
        Control(tmp_path / "control") as control,
    ):
        it.start()
        yield it, control


@contextmanager
def loaded(plan: Plan = HEAVY) -> Iterator[list[Result]]:
    """While a load runs, which ends with the block; its result is there afterwards."""
    results: list[Result] = []
    with Device(CLIENT) as device, ThreadPoolExecutor(1) as thread:
        runner = Runner(plan, SERVER, PORT, device=device)
        loop: Future[asyncio.AbstractEventLoop] = Future()

        async def run() -> Result:
            loop.set_result(asyncio.get_running_loop())
            return await runner.run()

        running = thread.submit(asyncio.run, run())
        try:
            yield results
        finally:
            with suppress(RuntimeError):  # its time was up, and the loop is closed
                loop.result(LIMIT_S).call_soon_threadsafe(runner.stop)
        results.append(_flawless(running.result(LIMIT_S)))


def ran(plan: Plan) -> Result:
    """A load, to its end."""
    with Device(CLIENT) as device:
        return _flawless(asyncio.run(Runner(plan, SERVER, PORT, device=device).run()))


def _flawless(result: Result) -> Result:
    counters = result.counters
    assert (counters.errors, counters.wrong, result.unanswered, result.lost) == (0, 0, 0, ())
    return result


class DrivenLoad:
    """livedma load --driven, in a process of its own. result: what it printed at its end."""

    def __init__(self, sessions: int) -> None:
        command = (sys.executable, "-m", "livedma.cli", "load", SERVER, "--port", str(PORT))
        shape = ("--sessions", str(sessions), "--depth", "4", "--size", "64KiB")
        how = ("--seconds", str(2 * LIMIT_S), "--driven", "--json", "-I", CLIENT)
        self.process = subprocess.Popen(
            [*command, *shape, *how], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        self.result: dict[str, Any] = {}
        self._answer()

    def _answer(self) -> dict[str, Any]:
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        assert line, "the load has ended"
        found: dict[str, Any] = json.loads(line)
        return found

    def sessions(self, count: int) -> None:
        """So many are active from now on."""
        assert self.process.stdin is not None
        self.process.stdin.write(f"sessions {count}\n")
        self.process.stdin.flush()
        self._answer()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: object, *_: object) -> None:
        if kind is not None:
            self.process.kill()
        out, _ = self.process.communicate(timeout=LIMIT_S)
        if kind is None:
            assert self.process.returncode == 0
            self.result = json.loads(out.splitlines()[-1])


def wait_for(condition: Callable[[], Any], within_s: float = LIMIT_S) -> Any:
    end_s = time.monotonic() + within_s
    while not (found := condition()):
        assert time.monotonic() < end_s, "it did not happen"
        time.sleep(0.05)
    return found


def told(control: Control, kind: str) -> list[dict[str, Any]]:
    return [one for one in control.ask("decisions")["events"] if one["kind"] == kind]


def mapped(control: Control) -> int:
    found = control.ask("snapshot", sessions=False)["connections"]
    return max((one["inside"]["mapped_bytes"] for one in found), default=0)


@dataclass(frozen=True)
class Served:
    """A server in a process of its own."""

    pid: int
    control: Control
    log: Path


@contextmanager
def serve(tmp_path: Path, *options: str) -> Iterator[Served]:
    """livedma serve, in a process of its own: a budget would bind the client, too."""
    needs(os.geteuid() == 0, "a server that acts for several users needs root")
    export, socket, log = tmp_path / "export", tmp_path / "control", tmp_path / "log"
    export.mkdir()
    command = (sys.executable, "-m", "livedma.cli", "serve", str(export), "--listen", SERVER)
    where = ("--tcp", "off", "--rdma", str(PORT), "--state", str(tmp_path / "state"))
    memory = ("--window", "16MiB", "--store-delay", "20ms", "--squash", "none")
    with log.open("wb") as stderr:
        process = subprocess.Popen(
            [*command, *where, *memory, "--control", str(socket), *options], stderr=stderr
        )
    try:
        wait_for(lambda: "control socket" in log.read_text() or process.poll() is not None)
        assert process.poll() is None, log.read_text()
        with Control(socket) as control:
            yield Served(process.pid, control, log)
    finally:
        process.terminate()
        assert process.wait(LIMIT_S) == 0
