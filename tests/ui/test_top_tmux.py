# SPDX-License-Identifier: BSD-2-Clause
"""livedma top on a real terminal (tmux), against real servers under load."""

from __future__ import annotations

import contextlib
import itertools
import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from tests.control.live import SERVER, DrivenLoad, running, serve, wait_for

from livedma.control.running import Options
from needs import needs

pytestmark = pytest.mark.slow

SESSIONS = 32
ALL = f"{SESSIONS} sessions"
LOADED = (ALL, r"\d 127\.", r"\d:\d\d \w+ +connection \d+: ")  # and something was decided
LAST_LINE = r"q quit[^\n]*\n*\Z"
PATIENCE_S = 60.0
_NUMBERS = itertools.count()  # one that ends still has its socket for a while


class Tmux:
    """A tmux of its own with one window."""

    def __init__(self, socket: Path, width: int, height: int, command: list[str]) -> None:
        self._socket = socket
        environ = {"LC_ALL": "C.UTF-8", "PATH": os.environ["PATH"], "TERM": "xterm-256color"}
        self._environ = environ
        self("-f", "/dev/null", "new-session", "-d", "-x", str(width), "-y", str(height))
        self("set-option", "-g", "remain-on-exit", "on")
        self("respawn-pane", "-k", shlex.join(command))

    def __call__(self, *command: str) -> str:
        return subprocess.run(
            ["tmux", "-u", "-S", str(self._socket), *command],
            check=True,
            capture_output=True,
            text=True,
            timeout=PATIENCE_S,
            env=self._environ,
        ).stdout

    def press(self, *keys: str) -> None:
        self("send-keys", *keys)

    @property
    def text(self) -> str:
        return self("capture-pane", "-p")

    def wait(self, *patterns: str) -> str:
        """For a picture with all of them."""
        found = ""

        def is_there() -> bool:
            nonlocal found
            found = self.text
            return all(re.search(one, found) for one in patterns)

        try:
            wait_for(is_there)
        except AssertionError:
            raise AssertionError(f"{patterns} never came; last was:\n{found}") from None
        return found

    @property
    def has_ended(self) -> bool:
        return self("display-message", "-p", "#{pane_dead}").strip() == "1"


@contextmanager
def tmux(
    tmp_path: Path, size: tuple[int, int], *options: str, environ: tuple[str, ...] = ()
) -> Iterator[Tmux]:
    needs(shutil.which("tmux"), "tmux is not installed")
    command = ["env", *environ, sys.executable, "-m", "livedma.cli", "top", *options]
    it = Tmux(tmp_path / f"tmux{next(_NUMBERS)}", *size, command)
    try:
        yield it
    finally:
        it("kill-server")


@contextmanager
def load() -> Iterator[None]:
    """For as long as it is looked at."""
    with DrivenLoad(SESSIONS) as it:
        it.sessions(SESSIONS)
        yield


@pytest.mark.parametrize("size", [(80, 24), (200, 60)])
def test_a_server_under_load(size: tuple[int, int], tmp_path: Path) -> None:
    control = tmp_path / "control"
    with (
        running(tmp_path, Options("extend")) as _,
        tmux(tmp_path, size, "--control", str(control)) as it,
    ):
        it.wait("no session yet", "policy extend")
        with load():
            text = it.wait(*LOADED, "█", r"\d/16 MiB", r">[0-9a-f]{8}", LAST_LINE)
            lines = text.splitlines()
            assert len(lines) == size[1] and max(map(len, lines)) <= size[0]
            it.press("Enter")
            it.wait("of the last", "the last minute", "most")
            it.press("q")
            it.press("Space")
            it.wait("PAUSED since")
            it.press("Space")
            other = (120, 30)
            it("resize-window", "-x", str(other[0]), "-y", str(other[1]))
            lines = it.wait(r"\A[^\n]{100}", "in flight", LAST_LINE).splitlines()
            assert len(lines) == other[1]
        it.press("q")
        wait_for(lambda: it.has_ended)


def test_without_colours_there_is_none(tmp_path: Path) -> None:
    """Bold and reverse are there, and words for what colours say."""
    control = tmp_path / "control"
    with running(tmp_path, Options("static")) as _, load():
        with tmux(tmp_path, (80, 24), "--control", str(control), environ=("NO_COLOR=1",)) as it:
            it.wait("slow, limited by DMA memory")
            codes = _codes(it("capture-pane", "-e", "-p"))
            assert codes and not [one for one in codes if _is_colour(one)]
        with tmux(tmp_path, (80, 24), "--control", str(control)) as it:
            it.wait("slow, limited by DMA memory")
            wait_for(lambda: any(map(_is_colour, _codes(it("capture-pane", "-e", "-p")))))


def _codes(text: str) -> set[int]:
    found = re.findall(r"\x1b\[([0-9;]*)m", text)
    return {int(code or 0) for one in found for code in one.split(";")}


def _is_colour(code: int) -> bool:
    return 30 <= code <= 38 or 40 <= code <= 48 or 90 <= code <= 107


def test_a_server_that_ends_and_comes_again(tmp_path: Path) -> None:
    now = tmp_path / "now"
    places = tmp_path / "first", tmp_path / "second"
    for one in places:
        one.mkdir()
    now.symlink_to(places[0])
    with contextlib.ExitStack() as stack:
        with serve(places[0]):
            options = ("--control", str(now / "control"))
            it = stack.enter_context(tmux(tmp_path, (80, 24), *options))
            it.wait(r" live \d\d:", "no session yet")
        it.wait("NO SERVER since", "trying again")
        now.unlink()
        now.symlink_to(places[1])
        with serve(places[1]):
            it.wait(r" live \d\d:", "no session yet")


def test_a_server_afar(tmp_path: Path) -> None:
    """By its page; the same figures, and the same decisions."""
    address = f"{SERVER}:20080"
    with (
        serve(tmp_path, "--web", address),
        load(),
        tmux(tmp_path, (80, 24), SERVER) as it,
    ):
        text = it.wait(*LOADED, "watched by")
        assert "NO SERVER" not in text
