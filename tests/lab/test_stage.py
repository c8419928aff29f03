# SPDX-License-Identifier: BSD-2-Clause
"""A stage: whole runs on this machine, with and without privilege, of which nothing stays."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from urllib.request import urlopen

import pytest

from livedma.errors import LabError
from livedma.lab.stage import Stage
from needs import needs
from unprivileged import as_nobody

pytestmark = [pytest.mark.slow, pytest.mark.apart]

LIGHT = ("--sessions", "4", "--size", "4KiB", "--seconds", "1.5")

# Says where its stage is once everything runs, and then waits to be killed.
PLAY = """
import sys
from livedma.lab.stage import Stage
with Stage() as stage:
    server = stage.serve()
    load = stage.load("--sessions", "4", "--size", "4KiB", "--seconds", "600")
    next(iter(load))
    print(stage.directory, server.pid, load.pid, flush=True)
    sys.stdin.read()
"""


def namespaces(pid: int) -> list[Path]:
    """Those that a process has made."""
    return list(Path("/run/netns").glob(f"ldma-{pid}-*"))


def wait_until(is_so: Callable[[], bool], within_s: float = 30.0) -> None:
    end_s = time.monotonic() + within_s
    while not is_so():
        assert time.monotonic() < end_s
        time.sleep(0.02)


def is_alive(pid: str) -> bool:
    """And no zombie: in a container nobody may reap those whose parent is gone."""
    try:
        status = Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return False
    return "\nState:\tZ" not in status


@pytest.fixture(params=["isolated", "loopback"])
def stage(request: pytest.FixtureRequest) -> Iterator[Stage]:
    isolated = request.param == "isolated"
    if isolated:
        needs(os.geteuid() == 0, "namespaces need root")
    with Stage(isolated=isolated) as stage:
        yield stage
    assert not stage.directory.exists()
    assert not namespaces(os.getpid())


def test_a_server_and_load_against_it(stage: Stage) -> None:
    server = stage.serve("--window", "16MiB", "--credits", "32")
    assert "serving" in server.log
    load = stage.load(*LIGHT)
    seen = list(load)
    total = load.result()
    assert total["operations"] > 0
    assert total["errors"] == 0
    assert [each["sessions"] for each in seen] == [4] * len(seen)
    assert seen == load.intervals
    assert load.is_over
    assert load.began_s is not None
    assert load.began_s <= time.monotonic() - seen[-1]["at_s"]
    assert server.is_running
    assert server.control.ask("connections") == []  # the load's is gone


def test_one_server_after_the_other(stage: Stage) -> None:
    with stage.serve() as first:
        assert first.control.ask("server")["boot"] == 1
    assert not first.is_running
    with stage.serve() as second:
        assert second.control.ask("server")["boot"] == 1  # it has no past
        assert stage.load(*LIGHT).result()["errors"] == 0


def test_a_load_without_a_server_says_so(stage: Stage) -> None:
    load = stage.load(*LIGHT)
    assert list(load) == []
    with pytest.raises(LabError, match=r"the load failed: .*see if an NFS server listens"):
        load.result(30)


def test_a_load_that_takes_too_long(stage: Stage) -> None:
    stage.serve()
    load = stage.load("--seconds", "600")
    with pytest.raises(LabError, match=r"did not end in 0\.1 s"):
        load.result(0.1)


def test_a_server_that_cannot_be_says_why(stage: Stage) -> None:
    with pytest.raises(LabError, match=r"the server has ended: .*'elsewhere'"):
        stage.serve("--listen", "elsewhere")


def policy_shown(url: str) -> str:
    """By its page, which is asked for on this host."""
    with urlopen(url.partition("#")[0] + "frame", timeout=30) as answer:
        return str(json.load(answer)["policy"])


@pytest.mark.parametrize("kind", ["isolated", "loopback"])
def test_servers_are_shown_on_this_host_one_after_the_other(kind: str) -> None:
    if kind == "isolated":
        needs(os.geteuid() == 0, "namespaces need root")
    with Stage(isolated=kind == "isolated", page=True) as stage:
        assert stage.page_url is not None
        for policy in ("extend", "static"):
            with stage.serve("--policy", policy) as server:
                assert stage.page_url in server.log
                assert policy_shown(stage.page_url) == policy


def test_each_stage_has_a_page_of_its_own() -> None:
    """The second one finds the usual port taken."""
    with Stage(isolated=False, page=True) as first:
        first.serve("--policy", "static")
        with Stage(isolated=False, page=True) as second:
            second.serve("--policy", "spread")
            assert first.page_url is not None and second.page_url is not None
            shown = policy_shown(first.page_url), policy_shown(second.page_url)
    assert shown == ("static", "spread")


def test_two_stages_without_privilege_get_along() -> None:
    with Stage(isolated=False) as first:
        first.serve()
        with Stage(isolated=False) as second:
            assert {first.server_address, first.client_address}.isdisjoint(
                {second.server_address, second.client_address}
            )
            second.serve()
            assert second.load(*LIGHT).result()["errors"] == 0


def test_a_run_that_fails_leaves_nothing() -> None:
    stage = Stage()
    server, load = stage.serve(), stage.load("--seconds", "600")

    def fail() -> None:
        with stage:
            next(iter(load))
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()
    assert not server.is_running
    assert not load.is_running
    assert not stage.directory.exists()
    assert not namespaces(os.getpid())


@pytest.mark.parametrize("user", ["itself", "nobody"])
@pytest.mark.parametrize("blow", [signal.SIGKILL, signal.SIGINT, signal.SIGTERM])
def test_whoever_is_killed_leaves_nothing(user: str, blow: signal.Signals) -> None:
    command = [*(as_nobody() if user == "nobody" else []), sys.executable, "-c", PLAY]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as play:
        assert play.stdout is not None
        line = play.stdout.readline()
        assert line, play.communicate()[1]
        directory, *pids = line.split()
        assert len(pids) == 2
        assert all(map(is_alive, pids))
        play.send_signal(blow)
        play.communicate(timeout=60)
    wait_until(lambda: not any(map(is_alive, pids)))
    wait_until(lambda: not Path(directory).exists())
    wait_until(lambda: not namespaces(play.pid))
