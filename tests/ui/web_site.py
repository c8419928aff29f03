# SPDX-License-Identifier: BSD-2-Clause
"""A page over frames that a test makes up, and ways to ask for it, polite and otherwise."""

from __future__ import annotations

import json
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.client import HTTPConnection
from types import SimpleNamespace
from typing import Any

from livedma.control.diagnose.limits import Diagnosis, Limit
from livedma.control.events import Events
from livedma.control.show.frame import Frame, Part, WindowMap
from livedma.control.show.history import History
from livedma.errors import LivedmaError
from livedma.monitor.snapshot import (
    Connection,
    Host,
    Inside,
    InsideSession,
    Session,
    Snapshot,
    Times,
)
from livedma.ui.sse import Parser
from livedma.ui.web.server import Limits, Web

TOKEN = "a-token-of-32-characters-or-more"
LIMIT_S = 30.0
MIB = 1 << 20
TIMES = Times(100, 5_000_000, 40_000, 90_000, 120_000)


def frame(number: int, sessions: int = 3, last_event: int = 0) -> Frame:
    inside = Inside(
        16 * MIB, 4 * MIB, 11 * MIB, 4 * MIB, 65536, 56, 40, 2, 64, 512, 64, 0, 42, *(TIMES,) * 4
    )
    counts = (100, 6_553_600, 0, TIMES, 4)
    connection = Connection(
        1, "10.0.0.1", 17, "10.0.0.2", 18, sessions, *counts, 64, 64, 0, 0, 0, 0, inside
    )
    shown = tuple(
        Session(f"{one:032x}", (1,), *counts, InsideSession(64, 64, 4, 1_000, 2_000, 64))
        for one in range(sessions)
    )
    now_s = time.monotonic()
    host = Host(0.25, 4 * MIB, None)
    snapshot = Snapshot(now_s, time.time(), 0.5, "server", (connection,), shown, host)
    diagnosis = Diagnosis(1, now_s, True, Limit.MEMORY, "requests wait", {"wait_ms": 5.0})
    window = WindowMap(1, 16 * MIB, 4 * MIB, (Part(0, 4 * MIB, "data", 56, 40),))
    return Frame(
        number,
        "/srv",
        1.0,
        "server",
        "extend",
        False,
        snapshot,
        (diagnosis,),
        (window,),
        last_event,
    )


class ShownFeed:
    """Stands for a `Feed`, with the frames that a test shows."""

    def __init__(self, events: Events) -> None:
        self.events = events
        self.history = History()
        self._frame: Frame | None = None
        self._changed = threading.Condition()

    def show(self, frame: Frame) -> None:
        self.history.add(frame)
        with self._changed:
            self._frame = frame
            self._changed.notify_all()

    def next(self, after: int = 0, wait_s: float = 1.0) -> Frame | None:
        def is_new() -> bool:
            return self._frame is not None and self._frame.number > after

        with self._changed:  # for less than was asked: a page ends when this returns
            return self._frame if self._changed.wait_for(is_new, min(wait_s, 0.05)) else None


@dataclass
class Acts:
    """As `ByHand`: notes what it is asked for, and refuses what it is told to."""

    done: list[tuple[Any, ...]] = field(default_factory=list)
    refusal: Exception | None = None
    may_go_on: threading.Event | None = None

    def _do(self, *what: Any) -> str:
        if self.may_go_on is not None:
            self.may_go_on.wait(LIMIT_S)
        if self.refusal is not None:
            raise self.refusal
        self.done.append(what)
        return f"done: {what[0]}"

    def extend(self, connection: int, length: int) -> str:
        return self._do("extend", connection, length)

    def shrink(self, connection: int, length: int) -> str:
        return self._do("shrink", connection, length)

    def set_policy(self, name: str) -> str:
        if name not in ("static", "extend"):
            raise LivedmaError(f"there is no policy {name!r}")
        return self._do("policy", name)


@dataclass
class Answer:
    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)


class Site:
    def __init__(self, web: Web, port: int, feed: ShownFeed, acts: Acts) -> None:
        self.web, self.port, self.feed, self.acts = web, port, feed, acts
        self.events = feed.events

    def ask(
        self, path: str, method: str = "GET", body: bytes | None = None, **headers: str
    ) -> Answer:
        """headers: with _ for -."""
        connection = HTTPConnection("127.0.0.1", self.port, timeout=LIMIT_S)
        try:
            named = {name.replace("_", "-"): value for name, value in headers.items()}
            connection.request(method, path, body, named)
            found = connection.getresponse()
            return Answer(found.status, dict(found.getheaders()), found.read())
        finally:
            connection.close()

    def do(self, name: str, body: Any, **headers: str) -> Answer:
        """With the token, unless headers say otherwise."""
        sent = body if isinstance(body, bytes) else json.dumps(body).encode()
        usual = {"Authorization": f"Bearer {TOKEN}", "Content_Type": "application/json"}
        return self.ask(f"/do/{name}", "POST", sent, **{**usual, **headers})

    @contextmanager
    def dialled(self, receive_bytes: int | None = None) -> Iterator[socket.socket]:
        """A connection over which anything may be said."""
        with socket.socket() as sock:
            if receive_bytes is not None:
                sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_bytes)
            sock.settimeout(LIMIT_S)
            sock.connect(("127.0.0.1", self.port))
            yield sock

    @contextmanager
    def stream(self) -> Iterator[StreamReader]:
        with self.dialled() as sock:
            sock.sendall(b"GET /stream HTTP/1.0\r\nHost: localhost\r\n\r\n")
            yield StreamReader(sock)


class StreamReader:
    """Messages of a stream (HTTP/1.0: without chunks), one after the other."""

    def __init__(self, sock: socket.socket) -> None:
        self.sock = sock
        self.comments = 0
        self._parser = Parser()
        self._messages = self._read()
        head = b""
        while not head.endswith(b"\r\n\r\n"):
            byte = sock.recv(1)
            assert byte, head
            head += byte
        self.status = int(head.split()[1])
        self.head = head.decode()

    def _read(self) -> Iterator[tuple[str, Any]]:
        while chunk := self.sock.recv(1 << 16):
            self.comments += chunk.count(b": still here")
            for event, data in self._parser.feed(chunk):
                yield event, json.loads(data)

    def next(self) -> tuple[str, Any]:
        return next(self._messages)

    def until(self, is_it: Callable[[str, Any], bool]) -> list[tuple[str, Any]]:
        """All that came, the last of which is it."""
        found = []
        for message in self._messages:
            found.append(message)
            if is_it(*message):
                return found
        raise AssertionError("the stream has ended")


def wait_for(condition: Callable[[], Any]) -> Any:
    end_s = time.monotonic() + LIMIT_S
    while not (found := condition()):
        assert time.monotonic() < end_s, "it did not happen"
        time.sleep(0.02)
    return found


@contextmanager
def site(
    *, first: Frame | None = None, metrics: Any = None, port: int = 0, **limits: Any
) -> Iterator[Site]:
    """first: the frame that the page has from the beginning. port: 0: any."""
    events, acts = Events(), Acts()
    feed = ShownFeed(events)
    view = None
    if first is not None:
        feed.show(first)
        view = SimpleNamespace(snapshot=first.snapshot, diagnoses=first.diagnoses)
    it: Any = SimpleNamespace(
        feed=feed, by_hand=acts, controller=SimpleNamespace(view=lambda: view, events=events)
    )
    sock = socket.create_server(("127.0.0.1", port))
    port = sock.getsockname()[1]
    with Web(
        it, sock, TOKEN, names=["storage.example"], metrics=metrics, limits=Limits(**limits)
    ) as web:
        it = Site(web, port, feed, acts)
        if first is not None:  # the page's thread looks for it at its own time
            wait_for(lambda: it.ask("/frame").status == 200)
        yield it
