"""A controller on a real server under real load: memory is mapped, and everything is told."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from livedma.control.running import Options, controlled
from livedma.nfs.config import Config
from livedma.nfs.control import Control, ControlError
from livedma.nfs.load import Plan, Result, Runner
from livedma.nfs.service import NfsService, Wishes
from livedma.rdma import Device
from livedma.rpc.rdma_server import Options as RdmaOptions
from needs import needs

pytestmark = pytest.mark.slow

_NET = f"127.{1 + os.getpid() // 250 % 250}.{1 + os.getpid() % 250}"
SERVER, CLIENT, PORT = f"{_NET}.60", f"{_NET}.61", 20052
MIB = 1 << 20
LIMIT_S = 60.0
HEAVY = Plan(sessions=32, depth=4, size=65536, seconds=6)  # 128 calls want 56 buffers


@contextmanager
def serving(tmp_path: Path, options: Options, **config: Any) -> Iterator[Control]:
    needs(os.geteuid() == 0, "a server that acts for several users needs root")
    export = tmp_path / "export"
    export.mkdir()
    wishes = Wishes(
        addresses=[SERVER],
        tcp_port=None,
        rdma_port=PORT,
        state=tmp_path / "state",
        control=tmp_path / "control",
        config=Config(squash="none", **{"store_delay_s": 0.02, **config}),
        rdma=RdmaOptions(window_bytes=16 * MIB, mapped_bytes=4 * MIB),
    )
    with (
        NfsService(export, wishes) as service,
        controlled(service, options),
        Control(tmp_path / "control") as control,
    ):
        yield control


@contextmanager
def loaded(plan: Plan = HEAVY) -> Iterator[list[Result]]:
    """While a load runs; its result is there afterwards, and what went wrong is raised."""
    results: list[Result] = []
    errors: list[BaseException] = []

    def run() -> None:
        try:
            with Device(CLIENT) as device:
                results.append(asyncio.run(Runner(plan, SERVER, PORT, device=device).run()))
        except BaseException as error:
            errors.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    try:
        yield results
    finally:
        thread.join(LIMIT_S)
    assert not errors, errors
    (result,) = results
    counters = result.counters
    assert (counters.errors, counters.wrong, result.unanswered, result.lost) == (0, 0, 0, ())


def wait_for(condition: Callable[[], Any]) -> Any:
    end_s = time.monotonic() + LIMIT_S
    while not (found := condition()):
        assert time.monotonic() < end_s, "it did not happen"
        time.sleep(0.05)
    return found


def told(control: Control, kind: str) -> list[dict[str, Any]]:
    return [one for one in control.ask("decisions")["events"] if one["kind"] == kind]


def mapped(control: Control) -> int:
    found = control.ask("snapshot", sessions=False)["connections"]
    return max((one["inside"]["mapped_bytes"] for one in found), default=0)


def test_memory_is_mapped_while_everything_goes_on(tmp_path: Path) -> None:
    with serving(tmp_path, Options()) as control:
        with loaded() as results:
            wait_for(lambda: mapped(control) > 7 * MIB)
            snapshot = control.ask("snapshot")
            assert len(snapshot["sessions"]) > 30
            (connection,) = snapshot["connections"]
            inside = connection["inside"]
            assert inside["credits"] > inside["buffers"] > 100
            wait_for(lambda: told(control, "check"))
        (result,) = results
        assert not result.refused
        kinds = [one["kind"] for one in control.ask("decisions")["events"]]
        story = [kind for kind in kinds if kind not in ("source", "recovered")]
        assert story[:5] == ["degraded", "why", "plan", "done", "check"]
        (why, *_) = told(control, "why")
        assert why["data"]["limit"] == "DMA memory"
        assert told(control, "check")[0]["line"].endswith(": keep")
        wait_for(lambda: not control.ask("snapshot")["connections"])


def test_static_only_tells(tmp_path: Path) -> None:
    with serving(tmp_path, Options(policy="static")) as control:
        with loaded():
            wait_for(lambda: told(control, "why"))
            assert mapped(control) <= 4 * MIB
            assert control.ask("policy") == {"policy": "static", "dry_run": False}
            assert control.ask("policy", name="extend")["policy"] == "extend"
            wait_for(lambda: told(control, "done"))
        assert not told(control, "undo")


def test_a_dry_run_only_says_it(tmp_path: Path) -> None:
    with serving(tmp_path, Options(dry_run=True)) as control, loaded():
        plan = wait_for(lambda: told(control, "plan"))[0]
        assert plan["dry"] and plan["line"].endswith("(dry run)")
        assert mapped(control) <= 4 * MIB


@contextmanager
def serve(tmp_path: Path, *options: str) -> Iterator[Control]:
    """livedma serve, in a process of its own: a budget would bind the client, too."""
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
            yield control
    finally:
        process.terminate()
        assert process.wait(LIMIT_S) == 0


def test_without_budget_sessions_are_refused_and_others_go_on(tmp_path: Path) -> None:
    needs(os.geteuid() == 0, "a server that acts for several users needs root")
    with serve(tmp_path, "--budget", "6MiB", "--objective-p99", "1s") as control:
        with loaded(Plan(sessions=64, depth=4, size=65536, seconds=6)):
            wait_for(lambda: told(control, "refuse"))
            snapshot = control.ask("snapshot", sessions=False)
            assert snapshot["host"]["budget_bytes"] == 6 * MIB
            assert snapshot["host"]["mapped_bytes"] <= 6 * MIB
            assert control.ask("sessions")
        wait_for(lambda: told(control, "admit"))
        lines = [one["line"] for one in control.ask("decisions")["events"]]
    log = (tmp_path / "log").read_text()
    assert all(line in log for line in lines)


def test_what_makes_no_sense_is_said(tmp_path: Path) -> None:
    with serving(tmp_path, Options()) as control:
        for do, parameters in (
            ("policy", {"name": "magic"}),
            ("policy", {"name": 5}),
            ("decisions", {"after": "x"}),
            ("decisions", {"wait": -1}),
            ("decisions", {"wait": float("nan")}),
        ):
            with pytest.raises(ControlError):
                control.ask(do, **parameters)
        assert control.ask("decisions", after=10**9, wait=0.1) == {"events": []}
