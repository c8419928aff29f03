# SPDX-License-Identifier: BSD-2-Clause
"""Puts the page of a server in the lab's network where a browser of this host finds it.

Only processes of the lab's network reach a loopback address of that network. The socket is made in
this host's network instead, and handed down to the server.
"""

from __future__ import annotations

import ipaddress
import itertools
import os
import socket
from collections.abc import Sequence

from livedma.ui.web.where import Where, listening

__all__ = ["with_page_here"]


def with_page_here(command: Sequence[str]) -> tuple[list[str], socket.socket | None]:
    """Returns the command to run in the lab's network, and the page's socket, which the caller
    keeps open until the command runs.

    Any command but `livedma serve … --web` at a loopback address is returned unchanged, with no
    socket. Raises LivedmaError if the page's address is taken.
    """
    words = list(command)
    place = _web_option(words) if _is_serve(words) else None
    if place is None:
        return words, None
    at, length, text = place
    try:
        where = Where.parse(text) if text else Where()
    except ValueError:  # the server says what is wrong with it
        return words, None
    if where.fd is not None or not _is_loopback(where.host):
        return words, None
    sock = listening(where)
    os.set_inheritable(sock.fileno(), True)
    words[at : at + length] = ["--web", f"fd:{sock.fileno()}"]
    return words, sock


def _is_serve(words: Sequence[str]) -> bool:
    return any(
        os.path.basename(before) in ("livedma", "livedma.cli") and word == "serve"
        for before, word in itertools.pairwise(words)
    )


def _web_option(words: Sequence[str]) -> tuple[int, int, str] | None:
    """Returns the option's index, the number of its words, and its value ("" if it has none)."""
    for at, word in enumerate(words):
        if word.startswith("--web="):
            return at, 1, word.removeprefix("--web=")
        if word == "--web":
            following = words[at + 1] if at + 1 < len(words) else "-"
            return (at, 1, "") if following.startswith("-") else (at, 2, following)
    return None


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
