# SPDX-License-Identifier: BSD-2-Clause
"""Commands in a guest, whose agent is here a socket that says what the test wants."""

from __future__ import annotations

import base64
import json
import select
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from livedma.lab.channel import Command, port_path


@pytest.fixture
def agent(tmp_path: Path) -> Iterator[socket.socket]:
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(str(port_path(tmp_path, "a", 0)))
        listening.listen()
        yield listening


def said(command: Command, **message: object) -> bytes:
    return json.dumps({"id": command._id, **message}).encode() + b"\n"


def out(text: str) -> str:
    return base64.b64encode(text.encode()).decode()


def test_pieces_that_come_together_are_read_together(tmp_path: Path, agent: socket.socket) -> None:
    with Command(tmp_path, "a", "sh") as command, agent.accept()[0] as guest:
        guest.sendall(
            said(command, out=out("42.")) + said(command, out=out("\r\n# "), err=out("!"))
        )
        assert select.select([command], [], [], 10)[0]
        assert command.read(10) == (b"42.\r\n# ", b"!")
        assert not select.select([command], [], [], 0)[0]
        guest.sendall(said(command, out=out("bye")) + said(command, status=9))
        assert command.read(10) == (b"bye", b"")
        assert command.status == 9
        assert command.read(10) == (b"", b"")


def test_what_was_said_to_an_earlier_command_is_passed_over(
    tmp_path: Path, agent: socket.socket
) -> None:
    with Command(tmp_path, "a", "sh") as command, agent.accept()[0] as guest:
        guest.sendall(b'{"id": "other", "status": 1}\nno JSON\n' + said(command, status=0))
        assert command.read(10) == (b"", b"")
        assert command.status == 0
