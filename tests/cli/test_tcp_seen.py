# SPDX-License-Identifier: BSD-2-Clause
"""Clients over TCP, alone and beside those over RDMA, by the commands that people use."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from tests.cli.live_server import LIMIT_S, LiveServer, live_server, wait_for

from livedma.ui import sse

pytestmark = pytest.mark.slow


def livedma(*words: str) -> str:
    command = [sys.executable, "-m", "livedma.cli", *words]
    done = subprocess.run(command, capture_output=True, text=True, timeout=LIMIT_S, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


@contextmanager
def load(*words: str) -> Iterator[None]:
    """As long as the block lasts. It ends in order: a server notices late that an idle peer over
    RDMA was killed.
    """
    command = [sys.executable, "-m", "livedma.cli", "load", "127.0.0.1", "--seconds", "60", *words]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
        try:
            yield
        finally:
            process.terminate()


@pytest.fixture
def server(tmp_path: Path) -> Iterator[LiveServer]:
    words = ("--listen", "127.0.0.1", "--web", "127.0.0.1:0", "--monitor", "server")
    with live_server(tmp_path, *words) as made:
        yield made


def page_of(server: LiveServer) -> str:
    lines = (one for one in server.said.splitlines() if "web page http://" in one)
    return next(lines).partition("http://")[2].partition("/")[0]


def first_frame(address: str) -> dict[str, Any]:
    """Of the page's stream."""
    parser = sse.Parser()
    with urllib.request.urlopen(f"http://{address}/stream", timeout=LIMIT_S) as stream:
        while chunk := stream.read1():
            for name, data in parser.feed(chunk):
                found = json.loads(data)
                frame = found["frame"] if name == "hello" else found
                if name in ("hello", "frame") and frame is not None:
                    return dict(frame)
    raise AssertionError("the stream has ended")


def busy(server: LiveServer, transport: str) -> dict[str, Any] | None:
    found = server.ask("snapshot")["connections"]
    return next((one for one in found if one["transport"] == transport and one["read_bytes"]), None)


def test_clients_over_tcp_are_seen_by_everybody(server: LiveServer) -> None:
    with load("--proto", "tcp", "--port", str(server.port), "--sessions", "3"):
        one = wait_for(lambda: busy(server, "tcp"), lambda: server.said)
        end = f"127.0.0.1:{one['client_port']}"
        said = livedma("why", "--control", str(server.control))
        assert said.startswith(f"connection {one['number']} of {end} (")
        assert " over TCP: " in said and "memory of TCP connections is not managed" in said
        picture = livedma("top", "--once", "--ascii", "--control", str(server.control))
        assert end in picture and "1 connection " in picture and "3 sessions" in picture
        frame = json.loads(livedma("top", "--once", "--json", "--control", str(server.control)))
        shown = first_frame(page_of(server))
        for snapshot in (frame["snapshot"], shown["snapshot"]):
            (connection,) = snapshot["connections"]
            assert (connection["transport"], connection["inside"]) == ("tcp", None)
            assert connection["client_port"] == one["client_port"] and connection["client_name"]
            assert len(snapshot["sessions"]) == 3
        session = frame["snapshot"]["sessions"][0]["id"]
        assert livedma("why", session[:12], "--control", str(server.control))


def test_both_transports_at_once(server: LiveServer) -> None:
    with (
        load("--proto", "tcp", "--port", str(server.port), "--sessions", "2"),
        load("--sessions", "2"),
    ):
        wait_for(lambda: busy(server, "tcp") and busy(server, "rdma"), lambda: server.said)
        said = livedma("why", "--control", str(server.control)).splitlines()
        # Under a connection over RDMA there may be how many more sessions it takes.
        headed = [line for line in said if re.match(r"connection \d+ of ", line)]
        assert len(headed) == 2 and sum(" over TCP: " in line for line in headed) == 1
        assert sum(line.startswith("memory of TCP connections") for line in said) == 1
        picture = livedma("top", "--once", "--ascii", "--control", str(server.control))
        assert "2 connections " in picture and "4 sessions" in picture
    wait_for(lambda: not server.ask("connections"), lambda: server.said)
    wait_for(lambda: not server.ask("snapshot")["connections"], lambda: server.said)
    url = f"http://{page_of(server)}/metrics"
    with urllib.request.urlopen(url, timeout=LIMIT_S) as answer:
        lines = [line.rpartition(" ") for line in answer.read().decode().splitlines()]
    counted = {name: float(value) for name, _, value in lines if not name.startswith("#")}
    for what in ("read_bytes", "written_bytes"):
        of_all = counted[f"livedma_{what}_total"]
        assert of_all == counted[f"livedma_sessions_{what}_total"] > 0
        each = [
            value
            for name, value in counted.items()
            if name.startswith(f"livedma_connection_{what}_total{{")
        ]
        assert sum(each) == of_all
