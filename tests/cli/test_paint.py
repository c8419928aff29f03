# SPDX-License-Identifier: BSD-2-Clause
"""Colours, bars and line breaks: on terminals, and nowhere else."""

from __future__ import annotations

import fcntl
import io
import logging
import os
import pty
import re
import struct
import subprocess
import sys
import termios
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest

import captures
from livedma.cli import logs
from livedma.cli.load_shades import Shades
from livedma.cli.paint import Paint
from livedma.cli.shades import event_color
from livedma.cli.summary_page import page

LIVEDMA = [sys.executable, "-m", "livedma"]
RPING = captures.BUNDLED / "rping_rc.pcap"
LOSSY = captures.BUNDLED / "loss_atomic_response.pcap"
TEXT = "requests wait 5.4 ms for DMA memory: all 56 buffers are taken, 6 more are wanted"


class Terminal(io.TextIOWrapper):
    """A stream that is a terminal of some width, as far as anybody can tell."""

    def __init__(self, columns: int, encoding: str = "utf-8") -> None:
        self.ours, its = pty.openpty()
        fcntl.ioctl(its, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
        super().__init__(os.fdopen(its, "wb"), encoding)

    def close(self) -> None:
        if not self.closed:
            os.close(self.ours)
        super().close()


@pytest.fixture(autouse=True)
def _able(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.delenv("COLUMNS", raising=False)
    monkeypatch.setenv("TERM", "xterm-256color")


@pytest.fixture
def terminal() -> Iterator[Terminal]:
    with Terminal(60) as found:
        yield found


def plain(text: str) -> str:
    return re.sub(r"\x1b\[[0-9;]*m", "", text)


class TestPaint:
    def test_of_a_file_changes_nothing(self) -> None:
        paint = Paint.plain()
        assert (paint.width, paint.red("x"), paint.bar([0.5], 4)) == (80, "x", "##..")
        assert paint.spark([1, 2], 4) == ""

    def test_of_a_terminal(self, terminal: Terminal) -> None:
        paint = Paint(terminal)
        assert (paint.width, paint.red("x"), paint.color("", "x")) == (60, "\x1b[31mx\x1b[0m", "x")
        assert plain(paint.bar([0.5], 4)) == "██░░"
        assert plain(paint.bar([0.3], 4)) == "█▎░░"
        assert plain(paint.bar([0.25, 0.5], 4)) == "█▏██"
        assert plain(paint.bar([2.0], 4)) == "████"
        assert paint.spark([0, 4, 8], 8) == "▁▅█"
        assert paint.spark([0, 0, 8, 8], 2) == "▁█"
        assert paint.spark([], 8) == paint.spark([0, 0], 8) == ""

    def test_columns_that_are_asked_for(
        self, terminal: Terminal, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("COLUMNS", "100")
        assert (Paint(terminal).width, Paint.plain().width) == (100, 80)

    def test_no_color(self, terminal: Terminal, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("NO_COLOR", "1")
        paint = Paint(terminal)
        assert (paint.red("x"), paint.bar([0.5], 4)) == ("x", "██░░")

    def test_a_dumb_terminal(self, terminal: Terminal, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("TERM", "dumb")
        paint = Paint(terminal)
        monkeypatch.delenv("TERM")
        assert not Paint(terminal).has_colors
        assert (paint.red("x"), paint.bar([0.5], 4), paint.width) == ("x", "##..", 60)

    def test_an_encoding_without_blocks(self) -> None:
        with Terminal(80, "ascii") as terminal:
            paint = Paint(terminal)
            assert paint.bar([0.5], 4) == "##.."
            assert paint.has_colors

    def test_lines_end_at_words_below_their_beginning(self, terminal: Terminal) -> None:
        first, *more = Paint(terminal).wrapped(TEXT, "  why   ", first_color="amber", color="dim")
        assert first.startswith("  \x1b[33mwhy\x1b[0m   \x1b[2mrequests wait")
        assert more
        assert all(plain(line).startswith(" " * 8) and plain(line)[8] != " " for line in more)
        assert " ".join(plain(line)[8:] for line in (first, *more)) == TEXT
        assert all(len(plain(line)) <= 60 for line in (first, *more))

    def test_long_lines_are_folded_on_terminals_alone(self, terminal: Terminal) -> None:
        first, second = Paint(terminal).folded([f"  {TEXT}"])
        assert first.startswith("  requests")
        assert second.startswith("    ")
        assert f"{first.strip()} {second.strip()}" == TEXT
        assert Paint.plain().folded([f"  {TEXT}"]) == [f"  {TEXT}"]

    def test_a_word_that_is_too_long_stays_whole(self, terminal: Terminal) -> None:
        path = "/" + "x" * 100
        assert Paint(terminal).wrapped(f"see {path}") == ["see", path]
        assert Paint(terminal).wrapped("", "head ", first_color="") == ["head"]


class TestLogs:
    def line(self, paint: Paint, name: str, message: str) -> str:
        record = logging.LogRecord(name, logging.WARNING, "", 0, message, None, None)
        return logs._Line(paint).format(record)

    def test_in_a_file_nothing_is_wrapped(self) -> None:
        said = self.line(Paint.plain(), "livedma.decisions", f"why       {TEXT}")
        assert re.fullmatch(rf"\d\d:\d\d:\d\d\.\d{{3}} why       {TEXT}", said)
        said = self.line(Paint.plain(), "livedma.nfs", TEXT)
        assert re.fullmatch(rf"\d\d:\d\d:\d\d\.\d{{3}} warning   {TEXT}", said)

    def test_on_a_terminal(self, terminal: Terminal) -> None:
        said = self.line(Paint(terminal), "livedma.decisions", f"why       {TEXT}")
        first, *more = said.splitlines()
        assert re.match(r"\x1b\[2m\d\d:\d\d:\d\d\.\d{3} \x1b\[0m\x1b\[33mwhy\x1b\[0m {7}req", first)
        assert more
        assert all(line.startswith(" " * 23) for line in more)
        said = self.line(Paint(terminal), "livedma.nfs", "no journal")
        assert "\x1b[33mwarning\x1b[0m   no journal" in said


@pytest.mark.parametrize(
    ("kind", "text", "color"),
    [
        ("check", "p99 5 -> 4 ms: keep", "green"),
        ("check", "p99 5 -> 9 ms: take it back", "amber"),
        ("check", "it has ended before it could be judged", "dim"),
        ("degraded", "", "red"),
        ("source", "", "dim"),
    ],
)
def test_events(kind: str, text: str, color: str) -> None:
    assert event_color(kind, text) == color


class TestLoad:
    def interval(self, rate: float, *, sessions: int = 8, **more: Any) -> Any:
        usual = {"errors": 0, "waited": 0, "operations": 100, "length_s": 1.0}
        return SimpleNamespace(bytes=rate, sessions=sessions, **{**usual, **more})

    def test_a_run_is_judged_by_its_own_best(self, terminal: Terminal) -> None:
        shades = Shades(Paint(terminal))
        first = shades.colors(self.interval(8e6), {"p99": 100.0})
        assert (first.get("MB/s", ""), first["p99"], first["errors"]) == ("", "", "dim")
        assert shades.colors(self.interval(5e6), {"p99": 250.0})["p99"] == "amber"
        bad = shades.colors(self.interval(1e6, errors=1, waited=60), {"p99": 500.0})
        assert bad == {
            "time": "dim", "MB/s": "red", "p99": "red", "waited": "amber", "errors": "red"
        }  # fmt: skip

    def test_fewer_sessions_may_have_less(self, terminal: Terminal) -> None:
        shades = Shades(Paint(terminal))
        shades.colors(self.interval(8e6, sessions=8), {"p99": 1.0})
        assert shades.colors(self.interval(1e6, sessions=1), {"p99": 1.0}).get("MB/s", "") == ""
        assert shades.colors(self.interval(2e6, sessions=9), {"p99": 1.0})["MB/s"] == "red"

    def test_rows_fit_80_columns(self) -> None:
        with Terminal(80) as narrow:
            shades = Shades(Paint(narrow))
            widths = (8, 9, 10, 9, 9, 9, 9, 7, 8)
            names = tuple("abcdefghi")
            assert len(plain(shades.header(names, widths))) <= 80
            assert shades.header(names, widths) != Shades(Paint.plain()).header(names, widths)

    def test_the_curve_comes_with_its_ends(self) -> None:
        with Terminal(80) as found:
            shades = Shades(Paint(found))
            for rate in (1e6, 8e6):
                shades.colors(self.interval(rate), {"p99": 1.0})
            lines = [plain(line) for line in shades.totals(["errors      none"])]
            assert lines == ["bandwidth   ▂█ 1.0 to 8.0 MB/s", "errors      none"]
        assert list(Shades(Paint.plain()).totals(["errors      none"])) == ["errors      none"]


def on_a_terminal(*words: object, columns: int = 80, **environ: str) -> str:
    """What a command prints there, on both streams."""
    with Terminal(columns) as it:
        child = subprocess.Popen(
            [*LIVEDMA, *map(str, words)],
            stdin=subprocess.DEVNULL,
            stdout=it,
            stderr=it,
            env={**os.environ, "LC_ALL": "C.UTF-8", **environ},
        )
        ours = os.dup(it.ours)
    with open(ours, "rb", buffering=0) as leader, child:
        said = b""
        while True:
            try:
                data = leader.read(65536)
            except OSError:  # all that wrote to it are gone
                break
            if not data:
                break
            said += data
    return said.decode().replace("\r\n", "\n")


class TestCommands:
    def test_a_summary(self) -> None:
        said = on_a_terminal("decode", LOSSY, "--summary")
        assert re.search(r"\x1b\[2mverdict\x1b\[0m +\x1b\[33m1 atomic response lost", said)
        shared = plain(on_a_terminal("decode", RPING, "--summary"))
        assert "█░" in shared or re.search(r"█[▏▎▍▌▋▊▉]░", shared)
        assert "of all bytes" in shared
        in_a_pipe = subprocess.run(
            [*LIVEDMA, "decode", str(LOSSY), "--summary"], capture_output=True, text=True
        ).stdout
        assert plain(said) == in_a_pipe  # one connection: no bar

    def test_a_summary_in_ascii_without_colours(self) -> None:
        said = on_a_terminal("decode", RPING, "--summary", LC_ALL="C", PYTHONUTF8="0", NO_COLOR="1",
                             PYTHONCOERCECLOCALE="0")  # fmt: skip
        assert said.isascii()
        assert "\x1b" not in said
        assert "##############.." in said

    def test_packets(self) -> None:
        assert "\x1b[" in on_a_terminal("decode", RPING)
        assert "\x1b[" not in on_a_terminal("decode", RPING, NO_COLOR="1")
        assert "\x1b[" not in on_a_terminal("decode", RPING, TERM="dumb")

    def test_complaints(self) -> None:
        said = on_a_terminal("decode", "/nowhere/" + "x" * 20, columns=50)
        assert said.startswith("\x1b[31mlivedma:\x1b[0m /nowhere/")
        assert all(len(plain(line)) <= 50 for line in said.splitlines())
        said = on_a_terminal("load", "--sesions", "4")
        assert said.startswith("\x1b[31mlivedma load:\x1b[0m ")


def test_a_summary_has_all_that_the_plain_one_has(terminal: Terminal) -> None:
    summary: dict[str, Any] = {
        "connections": [], "packets": 0, "bytes": 0, "not_roce": 3, "errors": 0,
        "icrc_errors": 0, "not_tracked": 0, "duration_s": 0.0,
    }  # fmt: skip
    assert plain(page(summary, Paint(terminal))) == page(summary, Paint.plain())
