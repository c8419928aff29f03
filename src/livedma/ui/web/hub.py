# SPDX-License-Identifier: BSD-2-Clause
"""Passes frames and events to all readers of the stream, each encoded once.

Nothing is queued for a reader: whenever it is ready for more, it takes the newest frame and the
events that it has not had. All of this belongs to the event loop's thread.
"""

from __future__ import annotations

import asyncio
import secrets
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.metadata import version

import orjson

from livedma.control.events import Event
from livedma.control.show.feed import Feed
from livedma.control.show.frame import Frame
from livedma.ui import sse

__all__ = ["Hub", "Reader"]

_EVENTS_MOST = 500


class Reader:
    """Keeps the position of one reader of the stream. news: there may be something to take."""

    def __init__(self, hub: Hub) -> None:
        self._hub = hub
        self._frame = self._event = 0
        self.news = asyncio.Event()

    def hello(self) -> bytes:
        """Returns the beginning of a stream."""
        self._frame, self._event = self._hub.number, self._hub.last_event
        return self._hub.hello()

    def take(self) -> bytes:
        """Returns what is new since the last call; decisions precede the frame with them."""
        self.news.clear()
        found = self._hub.events_after(self._event)
        self._event = self._hub.last_event
        if self._hub.number > self._frame:
            self._frame = self._hub.number
            found.append(self._hub.frame_message())
        return b"".join(found)


class Hub:
    def __init__(self, feed: Feed) -> None:
        self._feed = feed
        self._run = secrets.token_hex(8)  # tells this server's run from the one before
        self._version = version("livedma")
        self._frame: Frame | None = None
        self._json: bytes | None = None
        self._message: bytes | None = None
        self._events: deque[tuple[int, bytes]] = deque(maxlen=_EVENTS_MOST)
        self._hello: tuple[tuple[int, int], bytes] | None = None
        self._readers: set[Reader] = set()
        self._arrived = asyncio.Event()
        self.last_event = 0
        self.is_closed = False

    @property
    def number(self) -> int:
        """Returns the number of the newest frame; 0: there is none yet."""
        return 0 if self._frame is None else self._frame.number

    @property
    def readers(self) -> int:
        return len(self._readers)

    @contextmanager
    def reader(self) -> Iterator[Reader]:
        reader = Reader(self)
        self._readers.add(reader)
        try:
            yield reader
        finally:
            self._readers.discard(reader)

    def see(self, frame: Frame) -> None:
        """Takes the newest frame, and all events that came before it."""
        self._collect()
        self._frame, self._json, self._message = frame, None, None
        self._arrived.set()
        self._wake()

    def events_came(self) -> None:
        if self._collect():
            self._wake()

    def _collect(self) -> bool:
        # Threads that tell at the same time may call in any order: the numbers give the order.
        new = self._feed.events.after(self.last_event)
        self._events += ((one.number, _encoded(one)) for one in new[-_EVENTS_MOST:])
        if new:
            self.last_event = new[-1].number
        return bool(new)

    def _wake(self) -> None:
        for reader in self._readers:
            reader.news.set()

    async def frame(self, wait_s: float) -> Frame | None:
        """Returns the newest frame; waits so long for the first."""
        try:
            async with asyncio.timeout(wait_s):
                await self._arrived.wait()
        except TimeoutError:
            return None
        return self._frame

    def frame_json(self) -> bytes:
        """Returns the newest frame as JSON."""
        if self._json is None:
            self._json = orjson.dumps(self._frame, default=dict)
        return self._json

    def frame_message(self) -> bytes:
        if self._message is None:
            self._message = sse.message("frame", self.frame_json())
        return self._message

    def events_after(self, number: int) -> list[bytes]:
        return [sse.message("decision", data) for at, data in self._events if at > number]

    def hello(self) -> bytes:
        key = (self.number, self.last_event)
        if self._hello is None or self._hello[0] != key:
            self._hello = (key, self._make_hello())
        return self._hello[1]

    def _make_hello(self) -> bytes:
        return sse.message(
            "hello",
            orjson.dumps(
                {
                    "version": self._version,
                    "run": self._run,
                    "history": self._feed.history.as_json(),
                    "events": [orjson.Fragment(data) for _, data in self._events],
                    "frame": orjson.Fragment(self.frame_json()),
                }
            ),
        )

    def close(self) -> None:
        """Ends the streams."""
        self.is_closed = True
        self._wake()


def _encoded(event: Event) -> bytes:
    return orjson.dumps(event.as_json(), option=orjson.OPT_NON_STR_KEYS, default=str)
