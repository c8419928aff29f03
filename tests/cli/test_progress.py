# SPDX-License-Identifier: BSD-2-Clause
"""The line that says what a command waits for."""

from __future__ import annotations

import contextlib
import io
import os
import socket
import threading
import time
from collections.abc import Iterator

import pytest

from livedma.cli import main, progress
from livedma.cli.progress import Progress

LIMIT_S = 60.0


class Terminal(io.StringIO):
    """Remembers what was written to it."""

    def __init__(self, is_terminal: bool = True) -> None:
        super().__init__()
        self._is_terminal = is_terminal

    def isatty(self) -> bool:
        return self._is_terminal


def terminal_for(monkeypatch: pytest.MonkeyPatch) -> Terminal:
    """Not a fixture: pytest has its own standard error in each of a test's phases."""
    made = Terminal()
    monkeypatch.setattr("sys.stderr", made)
    monkeypatch.setattr(progress, "_TICK_S", 0.01)
    return made


def wait_for(terminal: Terminal, text: str) -> None:
    end_s = time.monotonic() + LIMIT_S
    while text not in terminal.getvalue():
        assert time.monotonic() < end_s, terminal.getvalue()
        time.sleep(0.005)


def test_seconds_are_counted_until_it_is_there(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = terminal_for(monkeypatch)
    line = Progress()
    with line.waiting("connecting to 10.0.0.1 port 20049"):
        wait_for(terminal, "connecting to 10.0.0.1 port 20049 … 0 s")
        line.tell("writing files: 1 of 2")
        wait_for(terminal, "writing files")
    assert terminal.getvalue().endswith("\r\x1b[K")
    assert not [one for one in threading.enumerate() if one.name == "progress"]


def test_what_was_shown_goes_before_something_else_comes(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = terminal_for(monkeypatch)
    line = Progress()
    with line.waiting("waiting"):
        wait_for(terminal, "waiting … ")
        line.clear()
        shown = terminal.getvalue()
    assert shown.endswith("\r\x1b[K")
    assert terminal.getvalue() == shown


def test_nothing_where_nobody_looks(monkeypatch: pytest.MonkeyPatch) -> None:
    quiet = Terminal(is_terminal=False)
    monkeypatch.setattr("sys.stderr", quiet)
    line = Progress()
    line.tell("nothing")
    line.clear()
    assert quiet.getvalue() == ""


@pytest.fixture
def silent() -> Iterator[str]:
    """An address at which nothing answers, since this test has the port of RoCE there."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as taken:
        for host in range(1, 250):
            address = f"127.{1 + os.getpid() // 250 % 250}.{1 + os.getpid() % 250}.{host}"
            with contextlib.suppress(OSError):
                taken.bind((address, 4791))
                break
        yield taken.getsockname()[0]


@pytest.mark.parametrize("command", [["rping", "-c", "-a"], ["perf", "send-lat"]])
def test_commands_tell_whom_they_wait_for(
    monkeypatch: pytest.MonkeyPatch, command: list[str], silent: str
) -> None:
    """Nobody answers: the command says so in the end, and meanwhile that it waits."""
    terminal = terminal_for(monkeypatch)
    where = "livedma.tools.perf_client" if command[0] == "perf" else "livedma.tools.rping"
    monkeypatch.setattr(f"{where}._CONNECT_S", 0.3)
    assert main([*command, silent]) == 1
    assert f"connecting to {silent} port " in terminal.getvalue()
    assert f"{silent} does not answer" in terminal.getvalue()
