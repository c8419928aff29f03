# SPDX-License-Identifier: BSD-2-Clause
"""livedma watch and top --watch on a real terminal (tmux), and its metrics, beside a real load."""

from __future__ import annotations

import shutil
import subprocess
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from prometheus_client.metrics_core import Metric
from prometheus_client.openmetrics.parser import text_string_to_metric_families
from tests.cli.watching import driven, livedma, serving, wait_for
from tests.ui.test_top_tmux import Tmux

from livedma.lab.hosts import Host, two_hosts
from needs import needs

pytestmark = [pytest.mark.slow, pytest.mark.apart]


@pytest.fixture
def busy(bpf: None, tmp_path: Path) -> Iterator[Host]:
    """Where to watch: three sessions are at work."""
    with (
        two_hosts(mtu=9000) as (near, far),
        serving(near, tmp_path),
        driven(far, near.ipv4, 3) as load,
    ):
        load.ask("sessions 3")
        yield near


@contextmanager
def terminal(tmp_path: Path, host: Host, size: tuple[int, int], *words: str) -> Iterator[Tmux]:
    needs(shutil.which("tmux"), "tmux is not installed")
    it = Tmux(tmp_path / "tmux", *size, host.command(*livedma(*words)))
    try:
        yield it
    finally:
        it("kill-server")


@pytest.mark.parametrize("size", [(80, 24), (160, 40)])
def test_a_picture_that_is_drawn_anew(busy: Host, tmp_path: Path, size: tuple[int, int]) -> None:
    with terminal(tmp_path, busy, size, "watch", busy.iface, "--interval", "0.3s") as it:
        text = it.wait("livedma watch", "1 connection ", "3 sessions, by bandwidth", "10.80.0.2 qp")
        lines = text.splitlines()
        assert len(lines) == size[1] and max(map(len, lines)) <= size[0]
        assert ("client" in text.partition("by bandwidth")[2]) is (size[0] == 160)
        other = (120, 30)
        it("resize-window", "-x", str(other[0]), "-y", str(other[1]))
        it.wait(r"─{100}")
        it.press("q")
        text = it.wait("operations in", "at a time")
        assert "3 sessions, by bandwidth" in text  # the last picture stays
        wait_for(lambda: it.has_ended)


def test_ctrl_c_leaves_the_terminal_as_it_was(busy: Host, tmp_path: Path) -> None:
    with terminal(tmp_path, busy, (80, 24), "watch", busy.iface, "--ascii") as it:
        it.wait("3 sessions, by bandwidth v")
        it.press("x")  # is not shown
        assert it("display-message", "-p", "#{alternate_on}").strip() == "1"
        it.press("C-c")
        it.wait("operations in")
        wait_for(lambda: it.has_ended)
        assert it("display-message", "-p", "#{alternate_on}").strip() == "0"
        assert "livedma watch" in it.text  # the last picture


def test_top_over_the_same_source(busy: Host, tmp_path: Path) -> None:
    with terminal(tmp_path, busy, (120, 30), "top", "--watch", busy.iface) as it:
        it.wait("watching eth0, from outside", "3 sessions, by bandwidth", "server, seen since")
        it.press("+")
        it.wait("there are no levers here")
        it.press("Enter")
        it.wait("of the last", "the last minute")
        it.press("q", "q")
        wait_for(lambda: it.has_ended)


def test_metrics(busy: Host) -> None:
    """Nothing else is printed where they are asked for, and what ends it ends them."""
    words = ("watch", busy.iface, "--metrics", f"{busy.ipv4}:0", "--interval", "0.2s")
    with subprocess.Popen(
        busy.command(*livedma(*words)),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        try:
            assert process.stderr is not None
            url = process.stderr.readline().partition("http://")[2].strip()
            assert "watching" in process.stderr.readline()

            def is_counted() -> bool:
                found = scraped(busy, f"http://{url}").get("livedma_watch_session_operations")
                return found is not None and sum(one.value > 0 for one in found.samples) >= 3

            wait_for(is_counted)
            process.terminate()
            out, _ = process.communicate(timeout=60)
            assert (process.returncode, out) == (0, "")
        finally:
            process.kill()


def scraped(host: Host, url: str) -> dict[str, Metric]:
    accept = {"Accept": "application/openmetrics-text; version=1.0.0"}
    with (
        host.inside(),
        urllib.request.urlopen(urllib.request.Request(url, headers=accept), timeout=30) as answer,
    ):
        text = answer.read().decode()
    return {one.name: one for one in text_string_to_metric_families(text)}
