# SPDX-License-Identifier: BSD-2-Clause
"""The control API: what it answers, and what it makes of peers that do not speak it."""

from __future__ import annotations

import json
import os
import socket
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from livedma.nfs.control import CONNECTIONS_MOST, LINE_MOST, Control, ControlError, ControlServer


def add(one: int, other: int = 1) -> int:
    return one + other


def fail() -> None:
    raise ValueError("of no use")


@pytest.fixture
def server(tmp_path: Path) -> Iterator[ControlServer]:
    ret = ControlServer(tmp_path / "control", {"add": add, "fail": fail})
    yield ret
    ret.close()


def test_methods_are_called_with_what_the_request_says(server: ControlServer) -> None:
    with Control(server.path) as control:
        assert control.ask("add", one=1) == 2
        assert control.ask("add", one=1, other=5) == 6


@pytest.mark.parametrize(
    ("do", "parameters", "message"),
    [
        ("fly", {}, "there is no 'fly': one of add, fail"),
        ("add", {}, "add: missing a required argument: 'one'"),
        ("add", {"one": 1, "two": 2}, "unexpected keyword argument 'two'"),
        ("add", {"one": "a"}, "add: "),
        ("fail", {}, "fail: of no use"),
    ],
)
def test_what_cannot_be_done_is_said(
    server: ControlServer, do: str, parameters: dict[str, object], message: str
) -> None:
    with Control(server.path) as control:
        with pytest.raises(ControlError, match=message):
            control.ask(do, **parameters)
        assert control.ask("add", one=1) == 2


@pytest.mark.slow
@given(st.binary(max_size=200) | st.recursive(st.none() | st.text(), st.lists).map(json.dumps))
def test_no_line_is_anything_but_answered(line: bytes | str) -> None:
    server = ControlServer.__new__(ControlServer)
    server._methods = {"add": add}
    data = line.encode() if isinstance(line, str) else line
    assert set(server.answer(data)) == {"error"}


def test_a_line_has_an_end(server: ControlServer) -> None:
    with socket.socket(socket.AF_UNIX) as peer:
        peer.connect(str(server.path))
        peer.sendall(b"x" * LINE_MOST)
        answer = peer.makefile("rb").read()
        assert b"bytes at most" in answer


def test_there_is_room_for_so_many(server: ControlServer) -> None:
    many = [Control(server.path) for _ in range(CONNECTIONS_MOST)]
    for one in many:
        assert one.ask("add", one=1) == 2
    with Control(server.path) as late, pytest.raises(ControlError, match="connected already"):
        late.ask("add", one=1)
    for one in many:
        one.close()


def test_nobody_else_may_connect(server: ControlServer) -> None:
    assert stat.S_IMODE(server.path.stat().st_mode) == 0o600


def test_a_socket_of_the_dead_is_replaced_and_one_of_the_living_is_not(tmp_path: Path) -> None:
    path = tmp_path / "control"
    dead = socket.socket(socket.AF_UNIX)
    dead.bind(str(path))
    dead.close()
    server = ControlServer(path, {"add": add})
    with pytest.raises(ControlError, match="another server listens there"):
        ControlServer(path, {})
    with Control(path) as control:
        assert control.ask("add", one=1) == 2
    server.close()
    assert not path.exists()


def test_who_is_connected_hears_the_end(server: ControlServer) -> None:
    with Control(server.path) as control:
        assert control.ask("add", one=1) == 2
        server.close()
        with pytest.raises(ControlError, match="has ended"):
            control.ask("add", one=1)
    with pytest.raises(ControlError, match="no server answers"):
        Control(server.path)


def test_only_the_owner_may_connect_and_other_threads_keep_their_umask(tmp_path: Path) -> None:
    before = os.umask(0o022)
    try:
        server = ControlServer(tmp_path / "c", {"add": add})
        server.close()
        assert os.umask(0o022) == 0o022
    finally:
        os.umask(before)


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("missing/c", "there is no directory .*missing"),
        ("directory", "it is a directory; name a file in it"),
        ("file", "there is a file already"),
        ("x" * 200, "bytes, and a socket's has 107 at most"),
    ],
)
def test_why_a_socket_cannot_be_made_is_said(tmp_path: Path, name: str, why: str) -> None:
    (tmp_path / "directory").mkdir()
    (tmp_path / "file").touch()
    with pytest.raises(ControlError, match=why):
        ControlServer(tmp_path / name, {})
    assert not (tmp_path / "missing").exists()
    with pytest.raises(ControlError, match="no server answers at") as error:
        Control(tmp_path / name)
    assert "None" not in str(error.value)
