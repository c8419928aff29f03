# SPDX-License-Identifier: BSD-2-Clause
"""livedma load --driven: orders on standard input, an answer to each."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from livedma.errors import LabError
from livedma.lab.driver import Driver
from livedma.nfs.server.config import Config
from livedma.nfs.server.service import NfsService, ServiceOptions
from needs import needs

pytestmark = pytest.mark.slow

_NET = f"127.{1 + os.getpid() // 250 % 250}.{1 + os.getpid() % 250}"
SERVER = f"{_NET}.41"


@pytest.fixture(scope="module")
def export(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    needs(os.geteuid() == 0, "a server that acts for several users needs root")
    directory = tmp_path_factory.mktemp("export")
    state = tmp_path_factory.mktemp("state")
    options = ServiceOptions([SERVER], tcp_port=None, state=state, config=Config(squash="none"))
    with NfsService(directory, options):
        yield directory


@pytest.fixture
def driver(export: Path) -> Iterator[Driver]:
    command = ["livedma", "load", SERVER, "--sessions=6", "--size=4096", "--driven", "--json"]
    with Driver([*command, "--seconds=60"]) as found:
        yield found


def test_sessions_are_added_to_those_that_run(driver: Driver, export: Path) -> None:
    for number in (1, 4, 6):
        assert driver.ask(f"sessions {number}") == {"sessions": number, "refused": 0}
        figures = driver.ask("interval")
        assert figures["sessions"] == number
        assert figures["errors"] == 0
    total = driver.finish()
    assert (total["errors"], total["wrong_data"], total["unanswered"]) == (0, 0, 0)
    assert len(total["sessions"]) == 6
    assert not list(export.iterdir())


def test_sessions_rest_and_go_on(driver: Driver) -> None:
    driver.ask("sessions 4")
    assert driver.ask("sessions 1") == {"sessions": 1, "refused": 0}
    assert driver.ask("interval")["sessions"] == 1
    assert driver.ask("sessions 6") == {"sessions": 6, "refused": 0}
    total = driver.finish()
    assert (total["errors"], total["wrong_data"], total["unanswered"]) == (0, 0, 0)


def test_intervals_are_all_of_the_run(driver: Driver) -> None:
    """Those between two orders count for the next interval, also what came while sessions did."""
    driver.ask("sessions 2")
    first = driver.ask("interval")
    driver.ask("sessions 5 20")
    second = driver.ask("interval")
    assert second["latency_us"]["max"] > 0
    operations = first["operations_per_s"] * first["at_s"]
    operations += second["operations_per_s"] * (second["at_s"] - first["at_s"])
    rest = driver.finish()
    assert 0 < operations <= rest["operations"] * 1.01  # rates are rounded
    assert rest["latency_us"]["max"] >= second["latency_us"]["max"]


@pytest.mark.parametrize(
    "order", ["sessions 7", "sessions -1", "sessions", "fly", "sessions 1 2 3"]
)
def test_a_wrong_order_is_answered_and_changes_nothing(driver: Driver, order: str) -> None:
    driver.ask("sessions 2")
    with pytest.raises(LabError, match=r"up to 6 sessions|no such order"):
        driver.ask(order)
    assert driver.ask("interval")["sessions"] == 2


def test_no_orders_are_no_sessions(driver: Driver) -> None:
    with pytest.raises(LabError, match="has ended with 1"):
        driver.finish()


@pytest.mark.parametrize("options", [("--driven",), ("--driven", "--json", "--ramp=1/s")])
def test_wrong_use(options: tuple[str, ...]) -> None:
    said = subprocess.run(["livedma", "load", SERVER, *options], capture_output=True, text=True)
    assert said.returncode == 2
    assert "--driven goes with --json" in said.stderr
