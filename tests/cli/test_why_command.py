# SPDX-License-Identifier: BSD-2-Clause
"""livedma why: finds the server, asks it, prints the answer."""

from __future__ import annotations

import json
import os
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from control_places import own_places
from livedma.cli import main
from livedma.nfs.control import ControlServer
from needs import needs

ANSWER = {"session": None, "is_slow": True, "limit": "CPU", "lines": ["one", "two"], "evidence": {}}


def why(session: str | None = None) -> dict[str, object]:
    return {**ANSWER, "session": session}


@pytest.fixture
def directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    return own_places(monkeypatch, tmp_path)


@pytest.fixture
def server(directory: Path) -> Iterator[ControlServer]:
    made = ControlServer(directory / "serve-1", {"why": why})
    yield made
    made.close()


def test_the_one_server_is_found(server: ControlServer, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["why"]) == 0
    assert capsys.readouterr().out == "one\ntwo\n"


def test_a_session_is_passed_on_and_json_printed(
    server: ControlServer, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["why", "5f0c", "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == {**ANSWER, "session": "5f0c"}


def test_sockets_left_behind_are_no_servers(
    server: ControlServer, directory: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    dead = socket.socket(socket.AF_UNIX)
    dead.bind(str(directory / "serve-2"))
    dead.close()
    (directory / "serve-3").touch()
    assert main(["why"]) == 0
    assert capsys.readouterr().out == "one\ntwo\n"


def test_of_two_servers_one_has_to_be_named(
    server: ControlServer, directory: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    other = ControlServer(directory / "serve-2", {"why": why})
    try:
        assert main(["why"]) == 1
        assert "2 servers run here: use --control with one of" in capsys.readouterr().err
        assert main(["why", "--control", str(other.path)]) == 0
    finally:
        other.close()


def test_there_is_no_server(directory: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["why"]) == 1
    assert "no server has its control socket in" in capsys.readouterr().err


def test_a_server_that_cannot_tell_says_so(
    directory: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    without = ControlServer(directory / "serve-1", {})
    try:
        assert main(["why"]) == 1
        assert "there is no 'why'" in capsys.readouterr().err
    finally:
        without.close()


@pytest.mark.parametrize(
    "place", ["run/livedma/serve", "run/user/64123/livedma/serve-1", "tmp/livedma-64123/serve-1"]
)
def test_root_finds_the_server_of_another_user(
    directory: Path, tmp_path: Path, place: str, capsys: pytest.CaptureFixture[str]
) -> None:
    needs(os.geteuid() == 0, "only root asks servers of others")
    user = 64123
    path = tmp_path / place
    path.parent.mkdir(parents=True)
    made = ControlServer(path, {"why": why})
    try:
        os.chown(path, user, user)
        assert main(["why"]) == 1  # in root's directory, a socket of another user
        os.chown(path.parent, user, user)
        assert main(["why"]) == 0
        assert capsys.readouterr().out == "one\ntwo\n"
    finally:
        made.close()


def test_root_asks_its_own_server_first(
    server: ControlServer, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    needs(os.geteuid() == 0, "only root asks servers of others")
    path = tmp_path / "tmp" / "livedma-64123" / "serve-1"
    path.parent.mkdir(parents=True)
    os.chown(path.parent, 64123, 64123)
    made = ControlServer(path, {})
    try:
        assert main(["why"]) == 0
        assert capsys.readouterr().out == "one\ntwo\n"
    finally:
        made.close()
