# SPDX-License-Identifier: BSD-2-Clause
"""livedma watch, as it is run: exactly what a load did, from when it says that it sees."""

from __future__ import annotations

import shlex
import signal
import subprocess
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.cli.watching import LIMIT_S, driven, livedma, serving, wait_for, watching

from bpf_links import links_of
from livedma.lab.hosts import Host, two_hosts
from livedma.monitor import Monitor
from livedma.monitor.snapshot import Connection
from unprivileged import as_nobody
from xdp import attached_tcx

pytestmark = [pytest.mark.slow, pytest.mark.apart]


@pytest.fixture
def hosts(bpf: None, tmp_path: Path) -> Iterator[tuple[Host, Host]]:
    """Where it is watched, with a server; and another one for clients."""
    with two_hosts(mtu=9000) as (near, far), serving(near, tmp_path):
        yield near, far


def done(total: dict[str, Any]) -> dict[str, tuple[int, int, int]]:
    """What the load itself counted of each session, those WRITEs included that made its file."""
    return {
        one["id"]: (
            one["operations"] + one["filled"],
            one["bytes_read"],
            one["bytes_written"] + one["bytes_filled"],
        )
        for one in total["sessions"]
    }


def test_a_load_that_begins_later_is_seen_as_a_whole(hosts: tuple[Host, Host]) -> None:
    near, far = hosts
    with watching(near, near.iface) as watch:
        with driven(far, near.ipv4, 3) as load:
            load.ask("sessions 3")
            seen = watch.wait_for(lambda seen: seen["sessions"])
            assert [one["learnt_s"] for one in seen["connections"]] == [None]
            assert seen["unseen"] == []
            total = load.finish()
        watch.end()
    expected = done(total)
    assert {id_: one for id_, one in watch.sessions().items() if id_ in expected} == expected
    assert "operations in" in watch.said[-1]


def test_from_the_middle_of_a_load_on(hosts: tuple[Host, Host]) -> None:
    """The connection was there before. Two sessions come to it when the watch says since when."""
    near, far = hosts
    with driven(far, near.ipv4, 4) as load:
        load.ask("sessions 2")
        began_s = time.time()
        with watching(near, near.iface) as watch:
            seen = watch.wait_for(lambda seen: seen["connections"])
            (connection,) = seen["connections"]
            assert connection["learnt_s"] >= began_s - 1
            assert (connection["server"], connection["client"]) == (near.ipv4, far.ipv4)
            load.ask("sessions 4")
            total = load.finish()
            watch.end()
    expected, found = done(total), watch.sessions()
    ids = list(expected)
    assert [found[id_] for id_ in ids[2:]] == [expected[id_] for id_ in ids[2:]]
    for id_ in ids[:2]:
        assert 0 < found[id_][0] < expected[id_][0]


def test_each_begin_on_loopback_is_exact(bpf: None, tmp_path: Path) -> None:
    """Both ends are here: calls and replies count at different hooks of lo, where programs attach
    one after the other amid a fast load. No call is left over from between.
    """
    with two_hosts() as (here, _):
        local = replace(here, iface="lo", ipv4="127.0.0.1")
        with serving(local, tmp_path), driven(local, local.ipv4, 4) as load:
            for _ in range(10):
                load.ask("sessions 4")
                with local.inside():
                    monitor = Monitor([local.iface])
                with monitor:
                    wait_for(lambda at=monitor: any(one.operations for one in look(at)))
                    load.ask("sessions 0")
                    # Calls without a reply would be given up after half a minute.
                    wait_for(lambda at=monitor: [one.in_flight for one in look(at)] == [0])
                    losses = monitor.snapshot().losses
                    assert (losses.calls, losses.replies) == (0, 0)
            load.finish()


def look(monitor: Monitor) -> Sequence[Connection]:
    connections = monitor.snapshot().connections
    assert not any(one.unanswered for one in connections)
    return connections


def test_another_port_and_several_servers(hosts: tuple[Host, Host], tmp_path: Path) -> None:
    """One at a port that nobody named is learnt; one that was named is seen from its start."""
    near, far = hosts
    (tmp_path / "other").mkdir()
    with (
        serving(far, tmp_path / "other", port=20055),
        watching(near, near.iface, "--port", "20055") as watch,
    ):
        with driven(far, near.ipv4, 1) as one, driven(near, far.ipv4, 1, "--port", "20055") as two:
            one.ask("sessions 1")
            two.ask("sessions 1")
            seen = watch.wait_for(lambda seen: len(seen["connections"]) == 2)
            since = {found["server"]: found["learnt_s"] for found in seen["connections"]}
            assert since[far.ipv4] is None and since[near.ipv4] is not None
            expected = {**done(two.finish())}
            one.finish()
        watch.end()
    assert {id_: one for id_, one in watch.sessions().items() if id_ in expected} == expected


def test_lines_of_text(hosts: tuple[Host, Host]) -> None:
    near, far = hosts
    with driven(far, near.ipv4, 2) as load:
        load.ask("sessions 2")
        words = ("watch", near.iface, "--interval", "0.3s", "--count", "4")
        text = subprocess.run(
            near.command(*livedma(*words)),
            capture_output=True,
            text=True,
            timeout=LIMIT_S,
            check=True,
        )
        ids = [one["id"] for one in load.finish()["sessions"]]
    header, *lines = text.stdout.splitlines()
    assert header.split()[:3] == ["time", "what", "op/s"]
    assert f"connection 1: {far.ipv4} qp" in text.stdout and ", since " in text.stdout
    for id_ in ids:
        assert sum(f"{id_} on 1" in line for line in lines) >= 2
    assert text.stderr.count("\n") == 2 and "at most 1 connection" in text.stderr
    assert "\x1b" not in text.stdout + text.stderr


@contextmanager
def started(host: Host, *words: str) -> Iterator[subprocess.Popen[str]]:
    command = host.command(*livedma("watch", *words))
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        try:
            yield process
        finally:
            process.kill()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_signals_end_it_and_nothing_stays(bpf: None, number: signal.Signals) -> None:
    with two_hosts() as (near, _), started(near, near.iface) as process:
        assert process.stderr is not None and process.stdout is not None
        assert process.stderr.readline().startswith(f"livedma: watching {near.iface};")
        process.stdout.readline()
        assert "waiting for NFS/RDMA traffic at eth0" in process.stdout.readline()
        assert attached_tcx(near) == 2
        process.send_signal(number)
        _, said = process.communicate(timeout=LIMIT_S)
        assert process.returncode == 0
        assert said.startswith("livedma: no NFS/RDMA traffic in ")
        assert attached_tcx(near) == 0


def test_programs_that_others_detach_are_attached_again(hosts: tuple[Host, Host]) -> None:
    near, far = hosts
    with watching(near, near.iface) as watch:
        for link in links_of(watch.process.pid):
            subprocess.run(["bpftool", "link", "detach", "id", str(link)], check=True)
        watch.wait_for(lambda seen: any("detached by another" in one for one in seen["unseen"]))
        with driven(far, near.ipv4, 1) as load:
            load.ask("sessions 1")
            watch.wait_for(lambda seen: seen["sessions"] and not seen["unseen"])
            load.finish()
        watch.end()


@pytest.mark.parametrize(
    ("words", "status", "sentence"),
    [
        (("watch", "nosuch0"), 1, "there is no interface nosuch0"),
        (("watch", "lo", "--interval", "99s"), 2, "--interval is 0.1s to 60s"),
        (("watch", "lo", "--port", "0"), 2, "'0' is no port"),
        (("watch", "lo", *(f"--port={port}" for port in range(1, 10))), 2, "8 ports at most"),
        (("watch", "lo", "--metrics", "eth0/24"), 2, "is no address"),
        (("top", "--watch", "--control", "x"), 2, "it goes without ADDR and --control"),
        (("top", "--port", "1"), 2, "--port goes with --watch"),
    ],
)
def test_mistakes_get_one_sentence(
    bpf: None, words: tuple[str, ...], status: int, sentence: str
) -> None:
    text = subprocess.run(
        livedma(*words), capture_output=True, text=True, timeout=LIMIT_S, check=False
    )
    assert text.returncode == status
    assert sentence in text.stderr.splitlines()[0]
    assert "Traceback" not in text.stderr


@pytest.mark.parametrize(
    ("place", "status", "said"),
    [
        ("/dev/full", 1, "livedma: cannot write standard output: No space left"),
        ("", 0, ""),
    ],
)
def test_output_that_cannot_be_written(bpf: None, place: str, status: int, said: str) -> None:
    """Or that nobody reads any more, as with `| head`: that is no failure."""
    words = livedma("watch", "lo", "--interval", "0.1s", "--json")
    where = f"> {place}" if place else "| head -1 > /dev/null"
    done = subprocess.run(
        ["bash", "-c", f"{shlex.join(words)} {where}; exit ${{PIPESTATUS[0]}}"],
        stderr=subprocess.PIPE,
        text=True,
        timeout=LIMIT_S,
        check=False,
    )
    assert done.returncode == status
    assert done.stderr.splitlines()[-1].startswith(said) and "Traceback" not in done.stderr


@pytest.mark.parametrize("words", [("watch", "lo"), ("top", "--watch", "lo", "--once")])
def test_a_plain_user_is_told_what_it_needs(words: tuple[str, ...]) -> None:
    text = subprocess.run(
        [*as_nobody(), *livedma(*words)],
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
        check=False,
    )
    assert text.returncode == 1
    assert text.stderr.count("\n") == 1
    assert "which needs root (CAP_BPF" in text.stderr and "sudo" in text.stderr


def test_top_shows_it_once(hosts: tuple[Host, Host]) -> None:
    near, far = hosts
    with driven(far, near.ipv4, 2) as load:
        load.ask("sessions 2")

        def shown() -> str:
            text = subprocess.run(
                near.command(*livedma("top", "--watch", near.iface, "--once", "--ascii")),
                capture_output=True,
                text=True,
                timeout=LIMIT_S,
                check=True,
            )
            return text.stdout if "2 sessions" in text.stdout else ""

        text = wait_for(shown)
        load.finish()
    assert f"watching {near.iface}, from outside" in text
    assert "server, seen since" in text and near.ipv4 in text
