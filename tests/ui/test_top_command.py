# SPDX-License-Identifier: BSD-2-Clause
"""livedma top, as a command: what it prints, and what it says when it cannot."""

from __future__ import annotations

import json
import os
import pty
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest
from tests.ui.made_frames import EVENTS, frame

from control_places import own_places
from livedma.cli import main
from livedma.control.show.frame import Frame
from livedma.nfs.control import ControlServer

LIMIT_S = 60.0


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Path]:
    """A control socket that has one frame, and its events."""
    shown = {**frame(1).as_json(), "last_event": len(EVENTS)}

    def next_frame(after: int = 0, wait: float = 0.0) -> dict[str, Any] | None:
        return None if after else shown

    def decisions(after: int = 0, wait: float = 0.0) -> dict[str, Any]:
        return {"events": [{**asdict(one), "line": one.line} for one in EVENTS[after:]]}

    methods = {"frame": next_frame, "decisions": decisions}
    control = ControlServer(tmp_path / "control", methods)
    yield tmp_path / "control"
    control.close()


def top(*options: str, **environ: str) -> tuple[int, str, str]:
    found = subprocess.run(
        [sys.executable, "-m", "livedma.cli", "top", *options],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
        env={**os.environ, "TZ": "UTC", "COLUMNS": "80", "LC_ALL": "C.UTF-8", **environ},
    )
    return found.returncode, found.stdout, found.stderr


def test_once_prints_the_picture(server: Path) -> None:
    status, out, err = top("--once", "--control", str(server))
    assert (status, err) == (0, "")
    lines = out.splitlines()
    assert lines[0].startswith(" livedma top  policy extend  watched by bpf+server  /srv/data")
    assert lines[0].endswith(" live 22:13:20")
    assert "! 1 10.80.0.2" in out and "█" in out and "0003c0ff" in out
    assert lines[-1].endswith("buffers, 200 credits") and max(map(len, lines)) <= 80


@pytest.mark.parametrize(("option", "locale"), [("--ascii", "C.UTF-8"), ("--once", "C")])
def test_once_in_ascii(option: str, locale: str, server: Path) -> None:
    status, out, _ = top("--once", option, "--control", str(server), LC_ALL=locale)
    assert status == 0 and out.isascii() and "[##########====..]" in out


def test_once_as_an_object_is_the_frame(server: Path) -> None:
    status, out, err = top("--once", "--json", "--control", str(server))
    assert (status, err) == (0, "")
    found = Frame.from_json(json.loads(out))
    assert found.snapshot == frame(1).snapshot and found.last_event == len(EVENTS)


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        (("--once", "--control", "/nowhere"), "no server answers at /nowhere: No such file or "),
        (("--once", "127.0.0.1:1"), "127.0.0.1:1: Connection refused\n"),
        (("--once", "localhost:1"), "localhost:1: Connection refused\n"),
        (("--once", "no address"), "'no address' is no address"),
        ((), "this is no terminal: `livedma top --once` prints the picture as text"),
    ],
)
def test_what_cannot_be_is_said_in_a_sentence(
    options: tuple[str, ...], sentence: str, tmp_path: Path
) -> None:
    status, out, err = top(*options, XDG_RUNTIME_DIR=str(tmp_path))
    assert (status, out) == (1, "") and err.count("\n") == 1
    assert err.startswith(f"livedma: {sentence}")


def test_there_is_no_server(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    own_places(monkeypatch, tmp_path)
    assert main(["top", "--once"]) == 1
    out, err = capsys.readouterr()
    assert out == "" and err.count("\n") == 1
    assert err.startswith("livedma: no server has its control socket in ")


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        (("--json",), "--json goes with --once"),
        (("host", "--control", "path"), "two servers"),
        (("--interval", "0.01s"), "--interval is 0.1s to 60s"),
    ],
)
def test_wrong_use(options: tuple[str, ...], sentence: str) -> None:
    status, _, err = top(*options)
    assert status == 2 and sentence in err


@pytest.mark.parametrize("term", ["dumb", ""])
def test_a_terminal_that_cannot_move_its_cursor_is_told_what_to_use(term: str) -> None:
    main, terminal = pty.openpty()
    process = subprocess.Popen(
        [sys.executable, "-m", "livedma.cli", "top"],
        stdin=terminal,
        stdout=terminal,
        stderr=terminal,
        env={**os.environ, "TERM": term},
    )
    os.close(terminal)
    try:
        assert process.wait(LIMIT_S) == 1
        said = os.read(main, 4096).decode()
    finally:
        process.kill()
        os.close(main)
    assert "cannot move its cursor" in said and "livedma top --once" in said
    assert "\x1b" not in said


def test_other_commands_do_not_wait_for_textual() -> None:
    """Nor does the picture as text, nor for what only a server afar needs."""
    code = (
        "import sys, livedma.cli, livedma.ui.top.plain\n"
        "try: livedma.cli.main(['--help'])\n"
        "except SystemExit: pass\n"
        "print(sorted({'textual', 'rich', 'aiohttp'} & set(sys.modules)), file=sys.stderr)"
    )
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stderr == "[]\n"
