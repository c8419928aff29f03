# SPDX-License-Identifier: BSD-2-Clause
"""livedma extend, shrink, migrate and policy: on a real server with a connection."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from tests.cli.live_server import LiveServer, live_server, wait_for

from livedma.cli import main
from livedma.nfs import Client
from livedma.nfs.control import ControlServer
from livedma.rdma import Device
from livedma.rpc import rdma_client, tcp_client
from livedma.rpc.client import Transport

MIB = 1 << 20
SERVER, CLIENT = "127.0.0.1", "127.0.0.2"


def livedma(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, str, str]:
    status = main(words)
    said = capsys.readouterr()
    return status, said.out, said.err


@contextmanager
def connected(server: LiveServer) -> Iterator[tuple[int, int]]:
    """Numbers of a connection over RDMA, and of one over TCP."""

    async def over_rdma(address: str, port: int) -> Transport:
        return await rdma_client.connect(address, port, device=device)

    with Device(CLIENT) as device, asyncio.Runner() as runner:
        rdma = runner.run(Client.connect(SERVER, 20049, over_rdma))
        tcp = runner.run(Client.connect(SERVER, server.port, tcp_client.connect))

        def numbers() -> dict[str, int]:
            found = server.ask("snapshot")["connections"]
            return {one["transport"]: one["number"] for one in found}

        found = wait_for(lambda: numbers() if len(numbers()) == 2 else None, lambda: server.said)
        yield found["rdma"], found["tcp"]
        runner.run(tcp.close())
        runner.run(rdma.close())


@pytest.mark.slow
def test_memory_by_the_command_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ("--listen", SERVER, "--window", "16MiB", "--budget", "10MiB", "--monitor", "server")
    with live_server(tmp_path, *words) as server, connected(server) as (rdma, tcp):
        here = ("--control", str(server.control))
        status, out, err = livedma(capsys, "extend", str(rdma), "2MiB", *here)
        assert (status, err) == (0, "") and out.startswith(f"connection {rdma}: mapped 4 MiB -> 6")
        (told,) = server.events("hand")
        assert told["connection"] == rdma and out.strip().endswith(told["text"])
        status, out, err = livedma(capsys, "extend", str(rdma), "8MiB", *here)
        assert (status, out) == (1, "") and "exceed the budget" in err and err.count("\n") == 1
        status, out, err = livedma(capsys, "extend", str(rdma), "64MiB", *here)
        assert (status, out) == (1, "") and "its window has room for" in err
        for command in ("extend", "shrink", "migrate"):
            status, _, err = livedma(capsys, command, str(tcp), "1MiB", *here)
            assert status == 1 and f"connection {tcp} is over TCP: memory of TCP" in err
            status, _, err = livedma(capsys, command, "99", "1MiB", *here)
            assert status == 1 and "there is no connection 99 over RDMA" in err
        status, out, err = livedma(capsys, "migrate", str(rdma), "64MiB", *here)
        assert (status, out) == (1, "") and "exceed the budget" in err
        assert len(server.events("hand")) == 1
        status, out, _ = livedma(capsys, "shrink", str(rdma), "2MiB", "--json", *here)
        assert status == 0 and json.loads(out)["done"].startswith("2 MiB go as they become free")
        with pytest.raises(Exception, match="exceed the budget"):
            server.ask("set_credits", connection=rdma, credits=1000)
        assert len(server.events("hand")) == 2


@pytest.mark.slow
def test_the_policy_by_the_command_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with live_server(tmp_path, "--listen", SERVER, "--monitor", "server") as server:
        here = ("--control", str(server.control))
        assert livedma(capsys, "policy", *here) == (0, "extend\n", "")
        assert livedma(capsys, "policy", "static", *here) == (0, "static\n", "")
        status, out, _ = livedma(capsys, "policy", "--json", *here)
        assert (status, json.loads(out)) == (0, {"policy": "static", "dry_run": False})
        status, out, err = livedma(capsys, "policy", "magic", *here)
        assert (status, out) == (1, "") and "magic" in err and err.count("\n") == 1
        assert [one["text"] for one in server.events("policy")] == ["extend -> static"]


@pytest.mark.parametrize(
    "words",
    [
        ("extend", "1"),
        ("extend", "x", "1MiB"),
        ("shrink", "1", "lots"),
        ("shrink", "0", "1MiB"),
        ("migrate", "1"),
        ("migrate", "1", "1MiB", "--credits", "0"),
    ],
)
def test_wrong_use_is_said_before_anybody_is_asked(
    words: tuple[str, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as error:
        main(words)
    assert error.value.code == 2
    assert f"try 'livedma {words[0]} --help'" in capsys.readouterr().err


@pytest.mark.parametrize(
    "words",
    [("extend", "1", "1MiB"), ("shrink", "1", "1MiB"), ("migrate", "1", "1MiB"), ("policy",)],
)
def test_a_server_that_cannot_says_so(
    words: tuple[str, ...], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    control = ControlServer(tmp_path / "control", {})
    try:
        status, out, err = livedma(capsys, *words, "--control", str(tmp_path / "control"))
    finally:
        control.close()
    assert (status, out) == (1, "") and f"there is no '{words[0]}'" in err
    assert livedma(capsys, *words, "--control", str(tmp_path / "control"))[0] == 1
