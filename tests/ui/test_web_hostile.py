# SPDX-License-Identifier: BSD-2-Clause
"""Clients that mean harm, or are broken: they are cut off, and nobody else notices."""

from __future__ import annotations

import socket
import time
from collections.abc import Iterator
from contextlib import ExitStack

import pytest
from tests.ui.web_site import LIMIT_S, TOKEN, Site, frame, site, wait_for

HEAD = f"POST /do/extend HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {TOKEN}\r\n"
JSON = "Content-Type: application/json\r\n"


@pytest.fixture(scope="module")
def impatient() -> Iterator[Site]:
    """A page that waits for nobody."""
    with site(first=frame(1, sessions=5000), idle_s=0.5, request_s=0.5, stuck_s=0.5) as it:
        yield it


def said(sock: socket.socket) -> bytes:
    """All until the other end closes."""
    found = b""
    try:
        while chunk := sock.recv(1 << 16):
            found += chunk
    except ConnectionResetError:
        pass
    return found


def answers(it: Site) -> bool:
    return it.ask("/healthz").status == 200


@pytest.mark.parametrize(
    "begun",
    [
        "",
        "GET",
        "GET / HTTP/1.1\r\n",
        "GET / HTTP/1.1\r\nHost: localhost\r\nX-Slow: ",
        "GET / HTTP/1.1\r\nHost: localhost\r\n",
    ],
)
def test_half_a_request_that_never_ends(impatient: Site, begun: str) -> None:
    with impatient.dialled() as sock:
        sock.sendall(begun.encode())
        assert said(sock) == b""
    assert answers(impatient)


def test_headers_that_come_byte_by_byte(impatient: Site) -> None:
    """Each byte is no reason to wait for longer."""
    with impatient.dialled() as sock:
        sock.settimeout(0.1)
        sock.sendall(b"GET / HTTP/1.1\r\nX-Slow: ")
        for _ in range(100):
            try:
                sock.sendall(b"x")
                if not sock.recv(1):
                    return
            except TimeoutError:
                continue
            except OSError:
                return
    pytest.fail("it was still listened to after a hundred bytes")


def test_half_a_request_after_a_whole_one(impatient: Site) -> None:
    with impatient.dialled() as sock:
        sock.sendall(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\nGET / HT")
        assert said(sock).startswith(b"HTTP/1.1 200 ")


@pytest.mark.parametrize("length", ["Content-Length: 40\r\n", "Transfer-Encoding: chunked\r\n"])
def test_half_a_body_that_never_ends(impatient: Site, length: str) -> None:
    with impatient.dialled() as sock:
        sock.sendall((HEAD + JSON + length + "\r\n").encode() + b"1")
        assert b"200 OK" not in said(sock)
    assert impatient.acts.done == []
    assert answers(impatient)


def test_a_body_for_nobody(impatient: Site) -> None:
    """Refused before it was read: its rest is not waited for."""
    with impatient.dialled() as sock:
        sock.sendall(b"POST /do/extend HTTP/1.1\r\nHost: localhost\r\nContent-Length: 9999\r\n\r\n")
        assert said(sock).startswith(b"HTTP/1.1 401 ")


def pour(sock: socket.socket) -> None:
    """A body without end, for as long as somebody listens."""
    end_s = time.monotonic() + LIMIT_S
    while time.monotonic() < end_s:
        sock.sendall(b"1000\r\n" + b" " * 0x1000 + b"\r\n")


def test_a_body_of_chunks_without_end(impatient: Site) -> None:
    with impatient.dialled() as sock:
        sock.sendall((HEAD + JSON + "Transfer-Encoding: chunked\r\n\r\n").encode())
        with pytest.raises(ConnectionError):
            pour(sock)
    assert answers(impatient)


@pytest.mark.parametrize(
    "lines",
    [
        "X-Long: " + "x" * (1 << 20),
        "\r\n".join(f"X-{number}: x" for number in range(10_000)),
        "Cookie: " + "a=b; " * 5000,
    ],
)
def test_headers_that_are_too_much(impatient: Site, lines: str) -> None:
    with impatient.dialled() as sock:
        try:
            sock.sendall(f"GET / HTTP/1.1\r\nHost: localhost\r\n{lines}\r\n\r\n".encode())
        except OSError:
            return  # it did not even want to hear all of it
        assert not said(sock).startswith(b"HTTP/1.1 200 ")
    assert answers(impatient)


@pytest.mark.parametrize(
    "words",
    [
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",  # TLS
        b"NONSENSE / HTTP/1.1\r\nHost: localhost\r\n\r\n",
        b"GET / HTTP/9.9\r\nHost: localhost\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: localhost\r\nHost: evil.example\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: localhost\r\nBroken\r\n\r\n",
        b"GET /" + b"x" * 10_000 + b" HTTP/1.1\r\nHost: localhost\r\n\r\n",
        b"GET http://evil.example/ HTTP/1.1\r\nHost: evil.example\r\n\r\n",
        b"POST /do/extend HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1\r\n"
        b"Transfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        b"\0" * 10_000,
    ],
)
def test_what_is_no_request(impatient: Site, words: bytes) -> None:
    with impatient.dialled() as sock:
        sock.sendall(words)
        found = said(sock)
    assert not found or found.split()[1] in (b"400", b"401", b"421"), found
    assert answers(impatient)


def test_an_answer_that_nobody_takes(impatient: Site) -> None:
    with ExitStack() as stack:
        for _ in range(5):
            sock = stack.enter_context(impatient.dialled(receive_bytes=4096))
            sock.sendall(b"GET /frame HTTP/1.1\r\nHost: localhost\r\n\r\n" * 20)
        wait_for(lambda: len(impatient.web._server.connections) >= 5)
        assert answers(impatient)
        wait_for(lambda: not impatient.web._server.connections)


def test_more_connections_than_allowed() -> None:
    with site(first=frame(1), connections=8) as it:
        with ExitStack() as stack:
            for _ in range(8):
                stack.enter_context(it.dialled())
            wait_for(lambda: len(it.web._server.connections) == 8)
            for _ in range(20):
                with it.dialled() as more:
                    assert b" 503 " in said(more)
        wait_for(lambda: answers(it))


def test_it_ends_while_clients_hang() -> None:
    with site(first=frame(1, sessions=5000)) as it, ExitStack() as stack:
        for words in (
            b"",
            b"GET / HT",
            (HEAD + JSON + "Content-Length: 40\r\n\r\n1").encode(),
            b"GET /frame HTTP/1.1\r\nHost: localhost\r\n\r\n",
            b"GET /stream HTTP/1.1\r\nHost: localhost\r\n\r\n",
        ):
            sock = stack.enter_context(it.dialled(receive_bytes=4096))
            sock.sendall(words)
        wait_for(lambda: len(it.web._server.connections) == 5 and it.web._hub.readers)
        it.web.close()
        assert not it.web._thread.is_alive()
        with pytest.raises(OSError):
            it.ask("/")
