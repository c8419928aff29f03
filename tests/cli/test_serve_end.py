# SPDX-License-Identifier: BSD-2-Clause
"""How a server ends, and what a service manager is told meanwhile."""

from __future__ import annotations

import asyncio
import contextlib
import signal
import socket
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from live_server import LIMIT_S, LiveServer, live_server, wait_for

from livedma.cli.serve.notify import Notifier
from livedma.nfs.client import Client

pytestmark = pytest.mark.slow


class Manager:
    """What it was told, datagram by datagram."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._socket.bind(str(path))
        self._socket.settimeout(LIMIT_S)

    def hear(self, wanted: str) -> dict[str, str]:
        """The next that says this."""
        while True:
            lines = self._socket.recv(4096).decode().splitlines()
            found = dict(line.split("=", 1) for line in lines)
            if wanted in lines:
                return found

    def close(self) -> None:
        self._socket.close()


@pytest.fixture
def manager(tmp_path: Path) -> Iterator[Manager]:
    with contextlib.closing(Manager(tmp_path / "notify")) as ret:
        yield ret


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_it_ends_well_and_leaves_nothing(tmp_path: Path, number: signal.Signals) -> None:
    with live_server(tmp_path, "--rdma", "off", "--web", "127.0.0.1:0") as server:
        assert server.control.exists()
        server.signal(number)
        assert server.wait() == 0, server.said
        assert not server.control.exists()
        assert not Path(f"{server.control}.token").exists()
        assert "Traceback" not in server.said


def test_who_has_no_file_ends_with_its_terminal(tmp_path: Path) -> None:
    with live_server(tmp_path, "--rdma", "off") as server:
        server.signal(signal.SIGHUP)
        assert server.wait() == 0


def reading(server: LiveServer) -> None:
    """A client in the middle of a call that takes long: the server waits for it when it ends."""

    async def read() -> None:
        async with await Client.connect("127.0.0.1", server.port, patience_s=1.0) as client:
            file = await client.open("/slow", "r")
            is_open.set()
            await file.read(0, 100)

    def run() -> None:
        with contextlib.suppress(Exception):  # it is cut off
            asyncio.run(read())

    is_open = threading.Event()
    (server.export / "slow").write_bytes(b"x" * 100)
    threading.Thread(target=run, daemon=True).start()
    assert is_open.wait(LIMIT_S), server.said
    wait_for(
        lambda: any(one["outstanding"] for one in server.ask("connections")), lambda: server.said
    )


def test_the_second_signal_ends_it_at_once(tmp_path: Path) -> None:
    with live_server(tmp_path, "--rdma", "off", "--store-delay", "300s") as server:
        reading(server)
        server.signal(signal.SIGTERM)
        # It has begun to end, and cannot: the call takes five minutes.
        wait_for(lambda: not server.control.exists(), lambda: server.said)
        assert server.process.poll() is None
        # One that comes with the first is the first, so it may take several.
        wait_for(lambda: server.ends_by(signal.SIGTERM), lambda: server.said)
        assert server.wait() == 128 + signal.SIGTERM
        assert "SIGTERM again: it ends now" in server.said


def test_it_ends_in_any_case(tmp_path: Path) -> None:
    with live_server(tmp_path, "--rdma", "off", "--store-delay", "300s") as server:
        reading(server)
        server.signal(signal.SIGTERM)
        assert server.wait() == 1
        assert "it did not end in 10 s" in server.said and not server.control.exists()


def test_a_manager_is_told(tmp_path: Path, manager: Manager) -> None:
    environment = {"NOTIFY_SOCKET": str(manager.path), "WATCHDOG_USEC": "200000"}
    with live_server(tmp_path, environment=environment, rdma="off") as server:
        assert manager.hear("READY=1")["STATUS"] == f"serving {server.export}"
        manager.hear("WATCHDOG=1")
        server.signal(signal.SIGHUP)
        assert int(manager.hear("RELOADING=1")["MONOTONIC_USEC"]) > 0
        manager.hear("READY=1")
        manager.hear("WATCHDOG=1")
        server.signal(signal.SIGTERM)
        manager.hear("STOPPING=1")
        assert server.wait() == 0


def test_no_manager_is_no_problem(tmp_path: Path) -> None:
    Notifier({}).ready("there is none")
    gone = Notifier({"NOTIFY_SOCKET": str(tmp_path / "gone"), "WATCHDOG_USEC": "2000000"})
    gone.ready("it does not listen")
    assert gone.watchdog_s == 1.0
    assert Notifier({"WATCHDOG_USEC": "2000000"}).watchdog_s is None
    others = {"NOTIFY_SOCKET": "@x", "WATCHDOG_USEC": "2000000", "WATCHDOG_PID": "1"}
    assert Notifier(others).watchdog_s is None
