# SPDX-License-Identifier: BSD-2-Clause
"""The demo, as it is run: it tells its story, ends by itself, and leaves nothing behind."""

from __future__ import annotations

import json
import os
import pty
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from bpf_links import links_of
from needs import needs
from unprivileged import as_nobody

pytestmark = pytest.mark.slow

ROOT = Path(__file__).resolve().parents[2]
DEMO = [sys.executable, "-m", "livedma.cli", "demo"]
SHORT = ("--seconds", "4")
ENOUGH = ("--seconds", "12")  # for the first extension, and its check
BLOCKS = str.maketrans("█▏▎▍▌▋▊▉░", "########.")
ROW = re.compile(
    r" +\d+ s +\d+ sessions +\S+ [MG]B/s  p99 +\S+ m?s  mapped \[[#|]+\.*\](  degraded)?"
)
USERS = ["root", "nobody"]


def command(user: str, *options: str) -> list[str]:
    if user == "root":
        needs(os.geteuid() == 0, "namespaces and BPF need root")
        return [*DEMO, *options]
    return [*as_nobody(), *DEMO, *options]


def run(user: str, *options: str) -> str:
    done = subprocess.run(command(user, *options), capture_output=True, text=True, timeout=150)
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    return done.stdout


@pytest.fixture(scope="module")
def seen() -> dict[str, Any]:
    """Returns what root's demo says to programs; one run serves all tests."""
    (line,) = run("root", "--json", *ENOUGH).splitlines()
    found: dict[str, Any] = json.loads(line)
    return found


def kinds(run: dict[str, Any]) -> list[str]:
    return [event["kind"] for event in run["events"]]


def actions(run: dict[str, Any]) -> set[str]:
    plans = [event for event in run["events"] if event["kind"] == "plan"]
    return {action["action"] for plan in plans for action in plan["data"]["actions"]}


@pytest.mark.alone
class TestForPrograms:
    def test_memory_was_short_and_more_was_mapped(self, seen: dict[str, Any]) -> None:
        extend, static = seen["runs"]
        assert (extend["policy"], static["policy"]) == ("extend", "static")
        story = kinds(extend)
        for earlier, later in (("degraded", "why"), ("plan", "done"), ("done", "check")):
            assert story.index(earlier) < story.index(later)
        assert "Extend" in actions(extend)
        assert any(
            event["data"]["limit"] == "DMA memory"
            for event in extend["events"]
            if event["kind"] == "why"
        )

    def test_static_does_nothing(self, seen: dict[str, Any]) -> None:
        _, static = seen["runs"]
        assert {"plan", "done"}.isdisjoint(kinds(static))
        assert len({tuple(moment["mapped"]) for moment in static["moments"]}) == 1

    def test_what_came_of_it(self, seen: dict[str, Any]) -> None:
        extend, static = seen["outcomes"]
        assert extend["mapped_bytes"] > extend["mapped_first_bytes"]
        assert extend["mapped_bytes"] > static["mapped_bytes"] == static["mapped_first_bytes"]
        assert extend["done"]["Extend"] >= 1
        for outcome in (extend, static):
            assert outcome["errors"] == outcome["reconnects"] == outcome["refused"] == 0
            assert outcome["connections"] == 1
            assert outcome["bytes_per_s"] > 0

    def test_every_byte_was_verified(self, seen: dict[str, Any]) -> None:
        for one in seen["runs"]:
            total = one["total"]
            assert total["plan"]["verify"]
            assert (total["errors"], total["wrong_data"], total["unanswered"]) == (0, 0, 0)

    def test_two_hosts(self, seen: dict[str, Any]) -> None:
        assert seen["stage"]["isolated"]


@pytest.mark.alone
@pytest.mark.parametrize("user", USERS)
def test_a_story_for_people_by_make(user: str) -> None:
    before = [] if user == "root" else as_nobody()
    argv = [*before, "make", "-s", "demo", f"OPTIONS={' '.join(ENOUGH)}"]
    done = subprocess.run(argv, cwd=ROOT, capture_output=True, text=True, timeout=150)
    assert (done.returncode, done.stderr) == (0, "")
    said = done.stdout
    lines = said.splitlines()
    assert max(map(len, lines)) <= 80
    assert "\x1b" not in said
    assert "\r" not in said
    assert lines[0].startswith("two hosts" if user == "root" else "on loopback")
    assert ("root would get" in said) == (user == "nobody")
    assert len([line for line in lines if ROW.fullmatch(line)]) >= 8
    where = lines.index(
        "in a browser on this machine, as long as this demo runs (longer with --keep):"
    )
    assert re.fullmatch(r"  http://127\.0\.0\.1:\d+/#token=\S{32}", lines[where + 1])
    story = [line.split()[0] for line in lines if line.startswith(" " * 8) and line[8] != " "]
    assert {"why", "plan", "done", "check"} <= set(story)
    assert "what happened under extend" in lines
    after = lines[lines.index("what happened under extend") :]
    facts = [line.split()[0] for line in after if re.match(r"  \S", line)]
    assert facts == ["degraded", "why", "done", "gave"]
    rows = {line.split()[0]: line for line in after if not line.startswith(" ") and line}
    assert rows["extend"].split()[-3:] == rows["static"].split()[-3:] == ["1", "0", "0"]


def test_static_alone() -> None:
    said = run("root", "--policy", "static", *SHORT)
    assert "the same ramp" not in said
    assert "gave" not in said
    assert "what happened under static" in said


# The end.


def processes(demo: int) -> dict[int, str]:
    """Those that a demo has started, and their command lines."""
    found = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal():
            try:
                parent = re.search(r"^PPid:\t(\d+)$", (entry / "status").read_text(), re.MULTILINE)
                line = (entry / "cmdline").read_bytes().decode().replace("\0", " ")
            except OSError:
                continue
            if parent is not None and int(parent[1]) == demo:
                found[int(entry.name)] = line
    return found


def all_links() -> set[int]:
    argv = ["bpftool", "--json", "link", "show"]
    shown = subprocess.run(argv, check=True, capture_output=True, text=True).stdout
    return {link["id"] for link in json.loads(shown)}


def namespaces(demo: int) -> list[str]:
    return [one.name for one in Path("/run/netns").glob(f"ldma-{demo}-*")]


def is_gone(pid: int) -> bool:
    try:
        return "\nState:\tZ" in Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return True


def wait_until(is_so: Callable[[], bool], within_s: float = 60.0) -> None:
    end_s = time.monotonic() + within_s
    while not is_so():
        assert time.monotonic() < end_s
        time.sleep(0.05)


@contextmanager
def in_the_middle(user: str, *options: str) -> Iterator[tuple[subprocess.Popen[str], list[str]]]:
    """A demo whose sessions pile up, with what it has said; when it is over nothing is left."""
    with subprocess.Popen(
        command(user, *options), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as demo:
        try:
            assert demo.stdout is not None
            said = []
            for line in demo.stdout:
                said.append(line.rstrip("\n"))
                if ROW.fullmatch(said[-1]):
                    break
            there = processes(demo.pid)
            assert len([line for line in there.values() if "livedma.cli" in line]) == 2
            held = set().union(*map(links_of, there))
            assert held or not any("watched by BPF" in line for line in said)
            assert len(namespaces(demo.pid)) == (2 if user == "root" else 0)
            yield demo, said
        finally:
            demo.kill()
    wait_until(lambda: all(map(is_gone, there)))
    wait_until(lambda: not namespaces(demo.pid))
    assert held.isdisjoint(all_links() if held else ())
    directories = re.findall(r"\S*livedma-stage-\w+", " ".join(there.values()))
    assert directories
    wait_until(lambda: not any(Path(one).exists() for one in directories))


@pytest.mark.parametrize("user", USERS)
@pytest.mark.parametrize(
    ("blow", "status"), [(signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGKILL, -9)]
)
def test_whoever_ends_it_finds_nothing_left(user: str, blow: signal.Signals, status: int) -> None:
    with in_the_middle(user) as (demo, _):
        demo.send_signal(blow)
        _, errors = demo.communicate(timeout=60)
        assert demo.returncode == status
        assert errors == ""


def test_what_is_kept_ends_with_ctrl_c() -> None:
    with in_the_middle("root", "--keep", *SHORT) as (demo, said):
        assert demo.stdout is not None
        while not said[-1].startswith("  livedma why --control "):
            line = demo.stdout.readline()
            assert line
            said.append(line.rstrip("\n"))
        order = [line.split()[1] for line in said if line.startswith(("sessions pile", "the same"))]
        assert len(order) == 2
        assert len([p for p in processes(demo.pid).values() if "livedma.cli" in p]) == 2
        assert Path(said[-1].split()[-1]).is_socket()
        demo.send_signal(signal.SIGINT)
        demo.communicate(timeout=60)
        assert demo.returncode == 0


def test_on_a_terminal_the_last_row_is_that_of_now() -> None:
    ours, its = pty.openpty()
    with subprocess.Popen(
        command("root"), stdin=its, stdout=its, stderr=its, start_new_session=True
    ) as demo:
        os.close(its)
        said = b""
        while said.count(b"\r\x1b[K") < 10:  # it was drawn again and again
            said += os.read(ours, 4096)
        there = processes(demo.pid)
        os.kill(demo.pid, signal.SIGINT)
        while True:
            try:
                said += os.read(ours, 4096)
            except OSError:  # the other end is closed
                break
        assert demo.wait(60) == 130
    os.close(ours)
    plain = re.sub(r"\x1b\[[0-9;]*m", "", said.decode()).translate(BLOCKS)
    rows = [line for line in re.split(r"[\r\n]|\x1b\[K", plain) if " sessions " in line]
    assert all(ROW.fullmatch(row) for row in rows if " MB/s" in row)
    assert max(len(row) for row in rows) <= 80
    assert b"Traceback" not in said
    wait_until(lambda: all(map(is_gone, there)))


@pytest.mark.parametrize("wrong", [["--seconds", "1"], ["--policy", "hope"], ["--seconds", "x"]])
def test_wrong_use(wrong: list[str]) -> None:
    done = subprocess.run([*DEMO, *wrong], capture_output=True, text=True)
    assert done.returncode == 2
    assert "livedma demo: " in done.stderr
