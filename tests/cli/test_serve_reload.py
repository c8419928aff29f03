# SPDX-License-Identifier: BSD-2-Clause
"""A server that reads its file again: what changes, what does not, and no session is dropped."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from live_server import LIMIT_S, LiveServer, live_server, wait_for

from livedma.nfs.client import Client
from livedma.nfs.control import ControlError
from livedma.rdma import Device
from livedma.rpc import rdma_client
from livedma.rpc.client import ConnectionRefusedByServer

pytestmark = pytest.mark.slow

SERVER, CLIENT = "127.0.0.61", "127.0.0.62"
PORT = 20061
WHERE = {"listen": [SERVER], "rdma": PORT, "monitor": "server"}
FIRST = {**WHERE, "window": "4MiB", "credits": 16, "slots": 16}
THEN = {
    **WHERE,
    "window": "8MiB",
    "mapped": "1/2",
    "credits": 32,
    "slots": 8,
    "policy": "static",
    "ahead": "0s",
    "dry-run": True,
    "budget": "64MiB",
    "objective-p99": "10ms",
    "squash": "all",
    "anonymous": "4711:4712",
    "threads": 3,
}


def reloaded(server: LiveServer, count: int = 1) -> dict[str, Any]:
    """Hangs up, and waits until the file was read so many times in all."""
    server.signal(signal.SIGHUP)
    found = wait_for(lambda: server.events("reload", "failed")[count - 1 :], lambda: server.said)
    ret: dict[str, Any] = found[0]
    return ret


def rdma(server: LiveServer) -> list[dict[str, Any]]:
    return [one for one in server.ask("connections") if one["kind"] == "rdma"]


def test_a_session_lives_through_it_and_new_ones_get_what_is_new(tmp_path: Path) -> None:
    async def through() -> None:
        with Device(CLIENT) as device:
            connect = partial(rdma_client.connect, device=device)
            async with await Client.connect(SERVER, PORT, transport=connect) as old:
                file = await old.open("/old", "rw", create=True)
                await file.write(0, b"before")
                (before,) = rdma(server)
                event = await asyncio.to_thread(reloaded, server)
                assert await file.read(0, 6) == b"before"
                await file.write(0, b"after!")
                (still,) = rdma(server)
                same = ("number", "window", "buffers", "credits")
                assert [still[key] for key in same] == [before[key] for key in same]
                async with await Client.connect(SERVER, PORT, transport=connect) as new:
                    await (await new.open("/new", "w", create=True)).close()
                    latest = max(rdma(server), key=lambda one: one["number"])
                    assert (latest["window"], latest["credits"]) == (8 << 20, 32)
                    assert latest["mapped"] >= 4 << 20
                await file.close()
        assert event["kind"] == "reload"
        assert "policy extend -> static" in event["text"]
        assert "window 4 MiB -> 8 MiB" in event["text"]
        assert event["text"].endswith("needs a restart: threads 8 -> 3")
        assert set(event["data"]["needs_restart"]) == {"threads"}
        assert set(event["data"]["changed"]) == set(THEN) - set(WHERE) - {"threads"}

    with live_server(tmp_path, **FIRST) as server:
        server.write(**THEN)
        asyncio.run(through())
        assert server.ask("policy") == {"policy": "static", "dry_run": True}
        # The last snapshot may be from before.
        budget = wait_for(
            lambda: server.ask("snapshot")["host"]["budget_bytes"], lambda: server.said
        )
        assert budget == 64 << 20
        if os.geteuid() == 0:
            assert (server.export / "new").stat().st_uid == 4711
        # What waits for a restart is named each time; what was changed is not changed again.
        again = server.ask("reload")
        assert again["text"] == "nothing has changed; needs a restart: threads 8 -> 3"


def test_new_sessions_get_other_slots(tmp_path: Path) -> None:
    async def slots() -> int:
        async with await Client.connect("127.0.0.1", server.port, slots=64) as client:
            return client.through.slots

    with live_server(tmp_path, listen=["127.0.0.1"], rdma="off", slots=16) as server:
        assert asyncio.run(slots()) == 16
        server.write(listen=["127.0.0.1"], rdma="off", slots=8)
        assert server.ask("reload")["changed"] == {"slots": ["16", "8"]}
        assert asyncio.run(slots()) == 8


def test_others_may_connect(tmp_path: Path) -> None:
    async def connect() -> None:
        client = await Client.connect("127.0.0.1", server.port, patience_s=1.0)
        await client.close()

    where = {"listen": ["127.0.0.1"], "rdma": "off"}
    with live_server(tmp_path, **where, allow=["127.0.0.0/8"]) as server:
        asyncio.run(connect())
        server.write(**where, allow=["10.0.0.0/8"])
        server.ask("reload")
        with pytest.raises(ConnectionRefusedByServer):
            asyncio.run(connect())


@pytest.mark.parametrize("broken", ["policy = 'best'\n", "policy = \n", "lease = 9\ngrace = 8\n"])
def test_a_broken_file_changes_nothing(tmp_path: Path, broken: str) -> None:
    with live_server(tmp_path, rdma="off", policy="extend") as server:
        file = tmp_path / "livedma.toml"
        file.write_text(f"dry-run = true\n{broken}")
        event = reloaded(server)
        assert event["kind"] == "failed" and event["text"].endswith("; nothing was changed")
        assert server.ask("policy") == {"policy": "extend", "dry_run": False}
        with pytest.raises(ControlError):
            server.ask("reload")
        file.unlink()
        with pytest.raises(ControlError, match="No such file"):
            server.ask("reload")
        file.write_text("policy = 'static'\n")
        assert server.ask("reload")["changed"]["policy"] == ["extend", "static"]


def test_what_was_set_by_hand_stays_unless_the_file_says_another(tmp_path: Path) -> None:
    with live_server(tmp_path, rdma="off", policy="extend") as server:
        server.ask("policy", name="static")
        server.write(rdma="off", policy="extend", budget="1GiB")
        server.ask("reload")
        assert server.ask("policy")["policy"] == "static"


def test_levels_of_the_log(tmp_path: Path) -> None:
    with live_server(tmp_path, rdma="off", log_level="error") as server:
        server.write(rdma="off", log_level="error", policy="static")
        server.ask("reload")
        server.write(rdma="off", log_level="info", policy="extend")
        server.ask("reload")
        assert "-> static" not in server.said
        assert "log-level error -> info" in server.said


def test_the_command(tmp_path: Path) -> None:
    def reload() -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "livedma.cli", "reload", "--control", str(server.control)]
        return subprocess.run(command, capture_output=True, text=True, timeout=LIMIT_S)

    with live_server(tmp_path, rdma="off", policy="extend") as server:
        server.write(rdma="off", policy="migrate")
        assert reload().stdout == "policy extend -> migrate\n"
        server.write(rdma="off", polcy="migrate")
        done = reload()
        assert done.returncode == 1 and "did you mean policy?" in done.stderr
    with live_server(tmp_path / "export", "--rdma", "off") as server:
        done = reload()
        assert done.returncode == 1 and "it runs without --config" in done.stderr
