# SPDX-License-Identifier: BSD-2-Clause
"""Where a page is: addresses as people write them, and sockets that are handed down."""

from __future__ import annotations

import os
import socket
import tempfile

import pytest

from livedma.errors import LivedmaError, PortInUseError
from livedma.ui.web.where import Where, is_local, listening, url_of


@pytest.mark.parametrize(
    ("text", "host", "port"),
    [
        ("127.0.0.1:8080", "127.0.0.1", 8080),
        ("10.0.0.1", "10.0.0.1", 20080),
        (":8080", "127.0.0.1", 8080),
        ("localhost:1", "localhost", 1),
        ("storage-1.example", "storage-1.example", 20080),
        ("[::1]:8080", "::1", 8080),
        ("[::]", "::", 20080),
        ("::1", "::1", 20080),
        ("127.0.0.1:0", "127.0.0.1", 0),
    ],
)
def test_addresses(text: str, host: str, port: int) -> None:
    where = Where.parse(text)
    assert where == Where(host, port)
    assert Where.parse(str(where)) == where


@pytest.mark.parametrize(
    "text", ["", "/srv/data", "a b", "host:", "host:x", "host:65536", "host:1:2", "fd:", "fd:x"]
)
def test_what_is_no_address(text: str) -> None:
    with pytest.raises(ValueError, match="is no address"):
        Where.parse(text)


def test_a_port_that_is_taken() -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        with pytest.raises(PortInUseError, match=rf"listens at 127\.0\.0\.1:{port}: .*--web"):
            listening(Where("127.0.0.1", port))


def test_an_address_of_somebody_else() -> None:
    with pytest.raises(LivedmaError, match="no page at"):
        listening(Where("192.0.2.1", 0))
    with pytest.raises(LivedmaError, match="is no address of a page"):
        listening(Where("no-such-host.invalid", 0))


def test_a_socket_that_was_handed_down() -> None:
    with socket.create_server(("127.0.0.1", 0)) as own:
        with listening(Where.parse(f"fd:{own.fileno()}")) as given:
            assert given.getsockname() == own.getsockname()
            assert url_of(given, "t") == f"http://127.0.0.1:{own.getsockname()[1]}/#token=t"
        with socket.create_connection(own.getsockname()):
            own.accept()[0].close()  # it was only a copy that was closed


def test_what_is_no_socket_to_listen_at() -> None:
    with tempfile.TemporaryFile() as file, socket.socket() as quiet, socket.socket() as closed:
        gone = os.dup(closed.fileno())
        os.close(gone)
        for fd, why in (
            (file.fileno(), "no socket that listens"),
            (quiet.fileno(), "no socket that listens"),
            (gone, "Bad file descriptor"),
        ):
            with pytest.raises(LivedmaError, match=why):
                listening(Where(fd=fd))
    left, right = socket.socketpair()
    with left, right, pytest.raises(LivedmaError, match="no socket that listens"):
        listening(Where(fd=left.fileno()))


def test_who_can_reach_it() -> None:
    with socket.create_server(("127.0.0.1", 0)) as near, socket.create_server(("", 0)) as far:
        assert is_local(near)
        assert not is_local(far)
        assert url_of(far).startswith(f"http://{socket.gethostname()}:")
