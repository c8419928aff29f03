# SPDX-License-Identifier: BSD-2-Clause
"""Names that clients give themselves: anybody may send anything."""

from __future__ import annotations

import os
import socket

import pytest

from livedma.control.observe.client_names import NAME_MOST, name_of


@pytest.mark.parametrize(
    ("owner", "name"),
    [
        (b"Linux NFSv4.1 alpha.example.net", "alpha.example.net"),
        (b"Linux NFSv4.2 0f3a-77/alpha", "alpha"),
        (b"livedma beta 4711 " + bytes(range(128, 136)), "beta"),
        (b"some other client 7", "some other client 7"),
        (b"", ""),
        (bytes(8), ""),
        (b"\xff\xfe\x00\x01", ""),
    ],
)
def test_the_host_is_found_in_an_owner(owner: bytes, name: str) -> None:
    assert name_of(owner) == name


@pytest.mark.parametrize(
    "owner",
    [
        b"Linux NFSv4.1 \x1b[2Jalpha\x07",
        "Linux NFSv4.2 \N{RIGHT-TO-LEFT OVERRIDE}alpha\N{ZERO WIDTH SPACE}".encode(),
        b"a\nb\tc\rd\x9be",
        b"x" * 1024,
        os.urandom(1024),
    ],
)
def test_nothing_that_acts_on_a_terminal_is_left(owner: bytes) -> None:
    name = name_of(owner)
    assert name.isprintable() and len(name) <= NAME_MOST


def test_our_own_client_is_known_by_its_host() -> None:
    from livedma.nfs.client.client import _new_owner

    assert name_of(_new_owner()) == socket.gethostname()
