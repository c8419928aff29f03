# SPDX-License-Identifier: BSD-2-Clause
"""The page of a real server under load: what it shows is so, and what is done there happens."""

from __future__ import annotations

import asyncio
import json
import os
import re
import signal
import socket
import stat
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from http.client import HTTPConnection
from pathlib import Path
from typing import Any

import pytest
from tests.control.live import HEAVY, MIB, SERVER, loaded, running, serve, wait_for
from tests.ui.web_site import LIMIT_S, StreamReader

from livedma.control.events import Event
from livedma.control.running import Options
from livedma.control.show.frame import Frame
from livedma.ui.feeds import remote
from livedma.ui.web.server import Web
from needs import needs

pytestmark = pytest.mark.slow

TOKEN = "the-token-of-a-live-server"


def ask(port: int, method: str, path: str, body: Any = None, token: str = TOKEN) -> tuple[int, Any]:
    connection = HTTPConnection("127.0.0.1", port, timeout=LIMIT_S)
    headers = {"Content-Type": "application/json", "Authorization": f"Bearer {token}"}
    try:
        connection.request(method, path, None if body is None else json.dumps(body), headers)
        answer = connection.getresponse()
        return answer.status, json.loads(answer.read())
    finally:
        connection.close()


@contextmanager
def stream(port: int) -> Iterator[StreamReader]:
    with socket.create_connection(("127.0.0.1", port), LIMIT_S) as sock:
        sock.sendall(b"GET /stream HTTP/1.0\r\nHost: localhost\r\n\r\n")
        yield StreamReader(sock)


def is_busy(event: str, data: Any) -> bool:
    """A frame in which all sessions work."""
    sessions = data["snapshot"]["sessions"] if event == "frame" else []
    return sum(one["operations"] > 0 for one in sessions) == HEAVY.sessions


def test_more_memory_by_hand(tmp_path: Path) -> None:
    options = Options("static", history=True)
    sock = socket.create_server(("127.0.0.1", 0))
    port = sock.getsockname()[1]
    with (
        running(tmp_path, options) as (it, _),
        Web(it, sock, TOKEN),
        stream(port) as seen,
        loaded(),
    ):
        *_, (_, before) = seen.until(is_busy)
        (window,) = before["windows"]
        extend = {"connection": window["connection"], "bytes": 2 * MIB}
        assert ask(port, "POST", "/do/extend", extend, "wrong") == (
            401,
            {"error": "this needs the token of the server"},
        )
        status, answer = ask(port, "POST", "/do/extend", extend)
        assert (status, answer["ok"][:16]) == (200, "mapped 4 MiB -> ")
        *_, (_, told) = seen.until(lambda event, data: event == "decision")
        assert (told["kind"], told["text"]) == ("hand", answer["ok"])
        *_, (_, after) = seen.until(lambda event, data: event == "frame")
        assert after["last_event"] >= told["number"]
        assert after["windows"][0]["mapped_bytes"] >= window["mapped_bytes"] + 2 * MIB
        too_much = {**extend, "bytes": 64 * MIB}
        status, answer = ask(port, "POST", "/do/extend", too_much)
        assert status == 409 and "its window has room for" in answer["error"]
        status, answer = ask(port, "POST", "/do/extend", {"connection": 99, "bytes": MIB})
        assert (status, answer["error"]) == (409, "there is no connection 99 over RDMA")
        status, answer = ask(port, "POST", "/do/shrink", {"connection": "1", "bytes": 1.5})
        assert status == 400 and "positive number" in answer["error"]
        status, answer = ask(port, "GET", f"/why?session={before['snapshot']['sessions'][0]['id']}")
        assert status == 200 and answer["lines"]


def test_a_policy_by_hand_then_decisions_of_its_own(tmp_path: Path) -> None:
    """And somebody watches from afar."""

    async def watch() -> list[Frame | Event]:
        found: list[Frame | Event] = []
        async with asyncio.timeout(LIMIT_S):
            async for item in remote(f"127.0.0.1:{port}"):
                assert isinstance(item, Frame | Event), item
                found.append(item)
                kind = item.kind if isinstance(item, Event) else None
                if kind == "degraded" and not changed:
                    changed.append(ask(port, "POST", "/do/policy", {"name": "extend"})[0])
                if kind == "done":
                    return found
        raise AssertionError("the stream has ended")

    changed: list[int] = []
    sock = socket.create_server(("127.0.0.1", 0))
    port = sock.getsockname()[1]
    with (
        running(tmp_path, Options("static", history=True)) as (it, _),
        Web(it, sock, TOKEN),
        loaded(),
    ):
        found = asyncio.run(watch())
        told = it.feed.events.after(0)
        status, answer = ask(port, "POST", "/do/policy", {"name": "none"})
    assert changed == [200]
    assert (status, "there is no policy 'none'" in answer["error"]) == (409, True)
    events = [one for one in found if isinstance(one, Event)]
    assert events == told[: len(events)]
    kinds = [one.kind for one in events]
    assert kinds.index("degraded") < kinds.index("policy") < kinds.index("done")
    frames = [one for one in found if isinstance(one, Frame)]
    assert [one.number for one in frames] == sorted({one.number for one in frames})
    assert all(one.last_event <= events[-1].number for one in frames)


def page_of(log: Path) -> tuple[int, str]:
    """Port and token, as they were printed."""
    match = re.search(r"^  web page http://127\.0\.0\.1:(\d+)/#token=(\S+)$", log.read_text(), re.M)
    assert match, log.read_text()
    return int(match[1]), match[2]


def test_the_command_says_where_it_is_and_cleans_up(tmp_path: Path) -> None:
    file = tmp_path / "control.token"
    with serve(tmp_path, "--web", "127.0.0.1:0") as server:
        port, token = page_of(server.log)
        assert file.read_text().strip() == token
        assert stat.S_IMODE(file.stat().st_mode) == 0o600
        assert ask(port, "POST", "/do/policy", {"name": "static"}, token)[0] == 200
        assert ask(port, "GET", "/healthz")[0] == 200
        with stream(port) as open_at_the_end:
            open_at_the_end.next()
            os.kill(server.pid, signal.SIGTERM)
            assert all(event in ("frame", "decision") for event, _ in open_at_the_end._messages)
        # A second signal would be to end it at once.
        wait_for(lambda: "\nState:\tZ" in Path(f"/proc/{server.pid}/status").read_text())
    assert not file.exists()


def test_a_token_that_is_kept(tmp_path: Path) -> None:
    file = tmp_path / "mine"
    with serve(tmp_path, "--web=127.0.0.1:0", "--web-token", str(file)) as server:
        _, token = page_of(server.log)
        assert file.read_text().strip() == token
    assert file.exists()


def test_a_page_for_everybody_is_said_to_be_one(tmp_path: Path) -> None:
    with serve(tmp_path, "--web", "0.0.0.0:0") as server:
        said = server.log.read_text()
    assert "warning: anyone at this address can read the page" in said


def command(tmp_path: Path, *options: str, **how: Any) -> subprocess.CompletedProcess[str]:
    needs(os.geteuid() == 0, "a server that acts for several users needs root")
    argv = [sys.executable, "-m", "livedma.cli", "serve", str(tmp_path), "--listen", SERVER]
    argv += ["--tcp", "off", "--control", str(tmp_path / "control"), *options]
    return subprocess.run(argv, capture_output=True, text=True, timeout=LIMIT_S, **how)


def test_a_port_that_is_taken_is_one_sentence(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        where = f"127.0.0.1:{other.getsockname()[1]}"
        done = command(tmp_path, "--web", where)
    assert (done.returncode, done.stderr) == (
        1,
        f"livedma: another program listens at {where}: put the page elsewhere by --web ADDR:PORT\n",
    )


@pytest.mark.parametrize(
    ("options", "status", "words"),
    [
        (("--web", "/srv/data"), 2, "'/srv/data' is no address: write 127.0.0.1:20080"),
        (("--web", "fd:2"), 1, "fd:2 is no socket that listens for TCP"),
        (("--web", "127.0.0.1:0", "--web-token", "/dev/null"), 1, "is no token file"),
    ],
)
def test_a_page_that_cannot_be(
    options: tuple[str, ...], status: int, words: str, tmp_path: Path
) -> None:
    done = command(tmp_path, *options)
    assert (done.returncode, words in done.stderr) == (status, True), done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("how", ["as the journal's stream", "--log-format=json"])
def test_a_log_that_is_kept_does_not_get_the_token(how: str, tmp_path: Path) -> None:
    """More people may read it than may act."""
    needs(os.geteuid() == 0, "a server that acts for several users needs root")
    export, control, said = tmp_path / "export", tmp_path / "control", tmp_path / "log"
    export.mkdir()
    argv = [sys.executable, "-m", "livedma.cli", "serve", str(export), "--listen", SERVER]
    argv += ["--tcp", "off", "--control", str(control), "--state", str(tmp_path / "state")]
    with socket.create_server(("127.0.0.1", 0)) as sock, said.open("w") as log:
        found = os.fstat(log.fileno())
        if how.startswith("--"):
            argv, stream_of = [*argv, how], ""
        else:
            stream_of = f"{found.st_dev}:{found.st_ino}"
        process = subprocess.Popen(
            [*argv, f"--web=fd:{sock.fileno()}"],
            stderr=log,
            pass_fds=[sock.fileno()],
            env={**os.environ, "JOURNAL_STREAM": stream_of},
        )
        try:
            wait_for(lambda: "control socket" in said.read_text())
            token = Path(f"{control}.token").read_text().strip()
        finally:
            process.terminate()
            assert process.wait(LIMIT_S) == 0, said.read_text()
    assert token not in said.read_text()
    assert f"its token is in {control}.token" in said.read_text()
