"""What views take: frames and events of a server as they come, for as long as somebody looks."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

import aiohttp
import orjson

from livedma.control.events import Event
from livedma.control.frame import Frame
from livedma.errors import LivedmaError
from livedma.ui import sse
from livedma.ui.web.where import DEFAULT_PORT, Where

__all__ = ["Item", "Lost", "Watching", "event_from_json", "remote"]

_AGAIN_S = 1.0
_AGAIN_MOST_S = 10.0
_CONNECT_S = 5.0
_SILENCE_S = 30.0  # twice as long as the server is ever silent


@dataclass(frozen=True, slots=True)
class Lost:
    """Nothing comes at the moment, and why; another attempt is made after so many seconds."""

    reason: str
    again_s: float


Item = Frame | Event | Lost


class Watching(Protocol):
    """Ends only when whoever looks has seen enough.

    First the events of the last while, then frames, and events before the frame that counts them
    in. After a `Lost` it goes on with what is new; a server that has begun anew is shown from its
    beginning (`Frame.started_s` differs).
    """

    def __call__(self) -> AsyncIterator[Item]: ...


def event_from_json(found: Mapping[str, Any]) -> Event:
    """As the control socket and the stream have it."""
    return Event(**{name: value for name, value in found.items() if name != "line"})


async def remote(address: str) -> AsyncIterator[Item]:
    """A server's by its page: HOST[:PORT] of `livedma serve --web`."""
    url = _stream_of(address)
    seen = _Seen()
    again_s = _AGAIN_S
    timeout = aiohttp.ClientTimeout(total=None, sock_connect=_CONNECT_S, sock_read=_SILENCE_S)
    async with aiohttp.ClientSession(timeout=timeout, auto_decompress=False) as session:
        while True:
            reason = "the server has ended"
            try:
                async for item in _stream(session, url, seen):
                    again_s = _AGAIN_S
                    yield item
            except TimeoutError:
                reason = f"{address} does not answer"
            except (aiohttp.ClientError, OSError, LivedmaError) as error:
                reason = f"{address}: {_words(error)}"
            except (ValueError, TypeError, KeyError) as error:
                reason = f"{address} says what this program does not understand: {error}"
            yield Lost(reason, again_s)
            await asyncio.sleep(again_s)
            again_s = min(2 * again_s, _AGAIN_MOST_S)


class _Seen:
    """What was handed on already, of which server."""

    def __init__(self) -> None:
        self._run = ""
        self._event = 0

    def server(self, run: str) -> None:
        if run != self._run:
            self._run, self._event = run, 0

    def is_new(self, event: Event) -> bool:
        if event.number <= self._event:
            return False
        self._event = event.number
        return True


def _stream_of(address: str) -> str:
    try:
        where = Where.parse(address, port=DEFAULT_PORT)
    except ValueError as error:
        raise LivedmaError(str(error)) from None
    if where.fd is not None:
        raise LivedmaError(f"{address!r} is no address")
    return f"http://{where.authority}/stream"


def _words(error: BaseException) -> str:
    if isinstance(error, aiohttp.ClientConnectorError):
        return error.os_error.strerror or str(error.os_error)
    return str(error) or type(error).__name__


async def _stream(
    session: aiohttp.ClientSession, url: str, seen: _Seen
) -> AsyncIterator[Frame | Event]:
    async with session.get(url, headers={"Accept": sse.TYPE}, allow_redirects=False) as answer:
        if answer.status != 200 or answer.content_type != sse.TYPE:
            raise LivedmaError(f"there is no page of livedma ({answer.status} {answer.reason})")
        parser = sse.Parser()
        async for chunk in answer.content.iter_any():
            for name, data in parser.feed(chunk):
                for item in _items(name, data, seen):
                    yield item


def _items(name: str, data: bytes, seen: _Seen) -> list[Frame | Event]:
    if name == "hello":
        hello = orjson.loads(data)
        seen.server(hello["run"])
        told = [event_from_json(one) for one in hello["events"]]
        frame = hello["frame"]
        new: list[Frame | Event] = [one for one in told if seen.is_new(one)]
        return [*new, *([] if frame is None else [Frame.from_json(frame)])]
    if name == "frame":
        return [Frame.from_json(orjson.loads(data))]
    if name == "decision":
        event = event_from_json(orjson.loads(data))
        return [event] if seen.is_new(event) else []
    return []  # of a newer server
