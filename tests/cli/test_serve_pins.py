# SPDX-License-Identifier: BSD-2-Clause
"""What a server maps is pinned: as root, as its unit says, without privilege, and to its limits."""

from __future__ import annotations

import asyncio
import ctypes
import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from as_service import CLIENT, SERVER, Service, capabilities, open_directory, service
from live_server import LiveServer, live_server, wait_for

from kept import MIB, needs_pins, pinned
from livedma.errors import LivedmaError
from livedma.lab.experiment.huge_pages import reserved
from livedma.nfs import Client
from livedma.rdma import Device
from livedma.rpc import rdma_client
from livedma.rpc.client import Transport
from needs import needs

pytestmark = pytest.mark.slow

HUGE = 2 << 20
_PR_SET_THP_DISABLE = 41
QUIET = ("--policy", "static", "--monitor", "server")
#: It fits in 8 MiB, the limit where these tests may not raise it.
SMALL = (*QUIET, "--window", "6MiB", "--mapped", "2/3")


@pytest.fixture(autouse=True)
def _pins() -> None:
    needs_pins()


@pytest.fixture
def directory() -> Iterator[Path]:
    with open_directory() as ret:
        yield ret


def huge(pid: int) -> int:
    """Bytes of pages that were set aside, in its memory."""
    status = Path(f"/proc/{pid}/status").read_text()
    return int(status.partition("HugetlbPages:")[2].split()[0]) << 10


@contextmanager
def loaded(server: Service, connections: int) -> Iterator[None]:
    """With a load that has so many connections, from one address."""
    words = [*("--source", CLIENT), *("--connections", str(connections)), *("--rw", "mix")]
    words += [*("--sessions", str(2 * connections)), *("--seconds", "600")]
    load = subprocess.Popen(
        server.within(sys.executable, "-m", "livedma.cli", "load", SERVER, *words),
        stdout=subprocess.DEVNULL,
    )
    try:
        wait_for(lambda: len(insides(server)) == connections, lambda: server.said)
        yield
        assert load.poll() is None, "it is served"
    finally:
        load.terminate()
        load.wait(60)
    wait_for(lambda: not server.ask("connections"), lambda: server.said)


def insides(server: Service | LiveServer) -> list[dict[str, Any]]:
    """What the snapshot shows of connections that serve their load."""
    return [one["inside"] for one in server.ask("snapshot")["connections"] if one["operations"]]


def entries(pid: int) -> list[dict[str, Any]]:
    """What `livedma mem` says of the process."""
    done = subprocess.run(
        [sys.executable, "-m", "livedma.cli", "mem", str(pid), "--json"],
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr
    (process,) = json.loads(done.stdout)["processes"]
    found: list[dict[str, Any]] = process["entries"]
    return found


def wait_until_all_agree(server: Service, pages: str) -> int:
    """The kernel, `livedma mem`, the control socket and the page have one figure: it is returned.

    A connection may map a few replies' buffers more between two looks.
    """
    pid = server.process.pid

    def agreed() -> int:
        found, inside = entries(pid), server.ask("snapshot")["connections"][0]["inside"]
        (window,) = (one for one in found if one["kind"] == "window")
        (said,) = server.ask("connections")
        assert window["tenant"] == CLIENT
        mapped = window["mapped"]
        figures = {window["pinned"], inside["mapped_bytes"], inside["pinned_bytes"]}
        figures |= {said["mapped"], said["pinned"]}
        figures.add(pinned(pid) - sum(one["pinned"] for one in found if one != window))
        figures.add(huge(pid) if pages == "2MiB" else mapped)
        return mapped if figures == {mapped} else 0

    return int(wait_for(agreed, lambda: f"{entries(pid)} {pinned(pid)} {server.said}"))


@pytest.mark.parametrize("pages", ["4KiB", "2MiB"])
def test_the_unit_pins_all_that_is_mapped(pages: str, directory: Path) -> None:
    options = (*SMALL, "--pages", pages)
    with (
        reserved(16 * HUGE if pages == "2MiB" else 0) as there,
        service(*options, held=capabilities(), directory=directory) as server,
    ):
        needs(pages == "4KiB" or there >= 16 * HUGE, "memory is in pieces too small for huge pages")
        pid = server.process.pid
        before = pinned(pid)
        with loaded(server, 1):
            mapped = wait_until_all_agree(server, pages)
            (connection,) = server.ask("connections")
            more = 2 * MIB if pages == "2MiB" else MIB
            server.ask("extend", connection=connection["number"], bytes=more)
            assert wait_until_all_agree(server, pages) >= mapped + more
        assert (pinned(pid), huge(pid)) == (before, 0)
        assert "pinned" not in server.said
        server.stop()


@contextmanager
def clients(address: str) -> Iterator[Callable[[], None]]:
    """A function that makes one more connection from the address each time it is called."""

    async def over_rdma(server: str, port: int) -> Transport:
        return await rdma_client.connect(server, port, device=device)

    made: list[Client] = []
    with Device(address) as device, asyncio.Runner() as runner:

        def connect() -> None:
            made.append(runner.run(Client.connect(SERVER, 20049, over_rdma)))

        yield connect
        for one in made:
            runner.run(one.close())


def test_large_pages_that_are_not_there_are_told(tmp_path: Path) -> None:
    """To a server that may have no transparent ones, either."""
    free = Path("/sys/kernel/mm/hugepages/hugepages-2048kB/free_hugepages")
    needs(free.exists() and free.read_text() == "0\n", "huge pages are set aside")
    libc = ctypes.CDLL(None)
    assert libc.prctl(_PR_SET_THP_DISABLE, 1, 0, 0, 0) == 0
    try:
        with (
            live_server(tmp_path, "--listen", SERVER, "--pages", "2MiB", *QUIET) as server,
            clients(CLIENT) as connect,
        ):
            connect()
            connect()
            (line,) = (one for one in server.said.splitlines() if "not 2 MiB" in one)
            assert "DMA memory is in pages of 4 KiB" in line and "sysctl vm.nr_hugepages" in line
    finally:
        libc.prctl(_PR_SET_THP_DISABLE, 0, 0, 0, 0)


def test_root_pins_all_that_is_mapped(tmp_path: Path) -> None:
    needs(os.geteuid() == 0, "this is about root")
    with live_server(tmp_path, "--listen", SERVER, "--window", "16MiB", *QUIET) as server:
        pid = server.process.pid
        before = pinned(pid)
        with clients(CLIENT) as connect:
            connect()
            connect()
            mapped = sum(one["mapped"] for one in server.ask("connections"))
            assert mapped == 8 * MIB and pinned(pid) == before + mapped
            shown = {"mapped_bytes": mapped, "pinned_bytes": mapped}
            wait_for(
                lambda: server.ask("snapshot")["host"].items() >= shown.items(),
                lambda: server.said,
            )
        wait_for(lambda: pinned(pid) == before, lambda: server.said)
        assert "pinned" not in server.said


def test_without_privilege_it_says_so_once_and_serves(directory: Path) -> None:
    with service("--monitor", "server", held=(), directory=directory, memlock=8 * MIB) as server:
        with loaded(server, 2):
            assert {one["pinned_bytes"] for one in insides(server)} == {0}
            assert pinned(server.process.pid) < MIB
        (line,) = (one for one in server.said.splitlines() if "pinned" in one)
        assert "DMA memory is not pinned: a connection may get 64 MiB" in line
        assert "RLIMIT_MEMLOCK is 8 MiB" in line and "the kernel may page it out" in line
        assert "LimitMEMLOCK=" in line and "CAP_IPC_LOCK" in line and "--memlock=" in line
        server.stop()


def test_a_limit_that_is_reached_is_one_line_and_all_are_served(directory: Path) -> None:
    limit = 5 * MIB
    options = (*QUIET, "--window", "4MiB", "--mapped", "1/2")
    with service(*options, held=capabilities(), directory=directory, memlock=limit) as server:
        with loaded(server, 4):
            windows = [one for one in entries(server.process.pid) if one["kind"] == "window"]
            assert sum(one["mapped"] for one in windows) >= 8 * MIB
            kept = sum(one["pinned"] for one in windows)
            assert limit - 2 * MIB < kept < limit
            assert kept < pinned(server.process.pid) <= limit
        lines = [one for one in server.said.splitlines() if "mapped, but not pinned" in one]
        assert len(lines) == 1 and f"of DMA memory for {CLIENT} is" in lines[0]
        assert "RLIMIT_MEMLOCK is 5 MiB" in lines[0]
        server.stop()


def test_what_one_address_may_have(tmp_path: Path) -> None:
    """Two connections begin with all of it: a third is refused, and so is an extension."""
    options = {"pin-limit": "8MiB", "window": "16MiB", "policy": "static", "monitor": "server"}
    with (
        live_server(tmp_path, "--listen", SERVER, **options) as server,
        clients(CLIENT) as connect,
        clients("127.0.0.3") as connect_other,
    ):
        connect()
        connect()
        connect_other()
        wait_for(lambda: len(server.ask("snapshot")["connections"]) == 3, lambda: server.said)
        with pytest.raises(LivedmaError, match=r"4 MiB more would exceed what 127\.0\.0\.2 may"):
            connect()
        (line,) = (one for one in server.said.splitlines() if " refused " in one)
        assert "8 MiB of 8 MiB are taken (--pin-limit)" in line
        there = {one["number"]: one["peer"] for one in server.ask("connections")}
        number = next(one for one, peer in there.items() if peer == CLIENT)
        other = next(one for one, peer in there.items() if peer != CLIENT)
        with pytest.raises(LivedmaError, match=r"are taken \(--pin-limit\)"):
            server.ask("extend", connection=number, bytes=MIB)
        (event,) = server.events("failed")
        assert event["connection"] == number and "(--pin-limit)" in event["text"]
        server.ask("extend", connection=other, bytes=MIB)
        server.write(**{**options, "pin-limit": "10MiB"})
        assert server.ask("reload")["changed"] == {"pin-limit": ["8 MiB", "10 MiB"]}
        server.ask("extend", connection=number, bytes=MIB)
        mapped = {one["number"]: one["mapped"] for one in server.ask("connections")}
        assert mapped[number] >= 5 * MIB and mapped[other] >= 5 * MIB  # and Receives for credits
        connect_other()
