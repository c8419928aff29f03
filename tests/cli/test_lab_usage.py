# SPDX-License-Identifier: BSD-2-Clause
"""livedma lab where it cannot do what it is asked for. tests/lab has it with guests."""

from __future__ import annotations

import os

import pytest

from livedma.cli import main


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("sh", "the following arguments are required: guest"),
        ("sh c", "invalid choice: 'c'"),
        ("up --mtu 99", "'99' is no MTU from 1280 to 9000"),
        ("host", "a command is missing"),
        ("sideways", "there is no action 'sideways'"),
        ("--name ../etc down", "'../etc' is no name"),
    ],
)
def test_wrong_use(line: str, said: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["lab", *line.split()])
    assert ended.value.code == 2
    assert said in capsys.readouterr().err


@pytest.mark.parametrize("action", ["", "up", "down", "sh a true", "host true"])
def test_without_root(
    action: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    assert main(["lab", *action.split()]) == 1
    said = capsys.readouterr().err
    assert said.startswith("livedma: guests and their network need root: sudo ")
    assert said.rstrip().endswith(f"lab {action}".rstrip())


@pytest.mark.parametrize("action", ["up", "sh", "host", "down"])
def test_help_has_an_example(action: str, capsys: pytest.CaptureFixture[str]) -> None:
    for line in (["lab", "--help"], ["lab", action, "--help"]):
        with pytest.raises(SystemExit) as ended:
            main(line)
        assert ended.value.code == 0
        assert f"\n  livedma lab {action}" in capsys.readouterr().out


def test_guests_that_are_not_up(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    assert main(["lab", "--name", "nobody"]) == 0
    assert capsys.readouterr().out == "no guests are up: livedma lab up\n"
    for line in (["sh", "a", "true"], ["host", "true"]):
        assert main(["lab", "--name", "nobody", *line]) == 1
        assert capsys.readouterr().err.endswith(": livedma lab up\n")
