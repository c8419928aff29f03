# SPDX-License-Identifier: BSD-2-Clause
"""Feeds views with frames and events of a server as they come, for as long as a view takes them."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import orjson

from livedma.control.events import Event
from livedma.control.show.frame import Frame
from livedma.errors import LivedmaError, reason
from livedma.ui import sse
from livedma.ui.web.where import DEFAULT_PORT, Where

if TYPE_CHECKING:
    import aiohttp  # takes 0.2 s to import, and a view of a server of this host needs none

__all__ = ["Item", "Lost", "Watching", "act", "local", "remote"]

_AGAIN_S = 1.0
_AGAIN_MOST_S = 10.0
_CONNECT_S = 5.0
_SILENCE_S = 30.0  # twice the longest silence of a server
_WAIT_S = 10.0  # the longest that a server is asked to wait for something new
_LINE_MOST = 64 << 20  # bytes of an answer: more than ten thousand sessions take


@dataclass(frozen=True, slots=True)
class Lost:
    """Says that nothing comes at the moment, and why; the next attempt is made after so many
    seconds."""

    reason: str
    again_s: float


Item = Frame | Event | Lost


class Watching(Protocol):
    """Ends only when the view stops taking items.

    It yields first the events of the last while, then frames, and events before the frame that
    counts them in. After a `Lost` it goes on with what is new; a server that has started again is
    shown from its beginning (`Frame.started_s` differs).
    """

    def __call__(self) -> AsyncIterator[Item]: ...


async def remote(address: str) -> AsyncGenerator[Item, None]:
    """Watches a server through its page: HOST[:PORT] of `livedma serve --web`."""
    import aiohttp

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
            except (ValueError, TypeError, KeyError, AttributeError) as error:
                reason = f"{address} says what this program does not understand: {error}"
            yield Lost(reason, again_s)
            await asyncio.sleep(again_s)
            again_s = min(2 * again_s, _AGAIN_MOST_S)


class _Seen:
    """Notes what was passed on already, and of which server."""

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
    import aiohttp

    if isinstance(error, aiohttp.ClientConnectorError):
        return reason(error.os_error)
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
        told = [Event.from_json(one) for one in hello["events"]]
        frame = hello["frame"]
        new: list[Frame | Event] = [one for one in told if seen.is_new(one)]
        return [*new, *([] if frame is None else [Frame.from_json(frame)])]
    if name == "frame":
        return [Frame.from_json(orjson.loads(data))]
    if name == "decision":
        event = Event.from_json(orjson.loads(data))
        return [event] if seen.is_new(event) else []
    return []  # an event of a newer server


async def local(path: Path | Callable[[], Path]) -> AsyncGenerator[Item, None]:
    """Watches a server through its control socket. A function returns the path anew each time: the
    next server may have another.
    """
    seen = _Seen()
    while True:
        try:
            where = path if isinstance(path, Path) else path()
            async with (
                _Asker.at(where) as frames,
                _Asker.at(where) as decisions,
                contextlib.aclosing(_told(frames, decisions, seen)) as items,
            ):
                async for item in items:
                    yield item
        except LivedmaError as error:
            reason = str(error)
        except (ValueError, TypeError, KeyError) as error:
            reason = f"the server says what this program does not understand: {error}"
        yield Lost(reason, _AGAIN_S)
        await asyncio.sleep(_AGAIN_S)


async def act(path: Path | Callable[[], Path], do: str, connection: int, length: int) -> str:
    """Extends or shrinks by a server's control socket; what was done. LivedmaError: why nothing."""
    async with _Asker.at(path if isinstance(path, Path) else path()) as asker:
        answer = await asker.ask(do, connection=connection, bytes=length)
        return str(answer["done"])


class _Asker:
    """Keeps a connection to a control socket, for one request at a time."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self._writer = reader, writer

    @classmethod
    @contextlib.asynccontextmanager
    async def at(cls, path: Path) -> AsyncIterator[_Asker]:
        try:
            reader, writer = await asyncio.open_unix_connection(path, limit=_LINE_MOST)
        except OSError as error:
            raise LivedmaError(f"no server answers at {path}: {error.strerror}") from None
        try:
            yield cls(reader, writer)
        finally:
            writer.close()

    async def ask(self, do: str, **parameters: object) -> Any:
        """Raises LivedmaError, or ValueError if the line is no answer."""
        try:
            async with asyncio.timeout(_SILENCE_S):
                self._writer.write(orjson.dumps({"do": do, **parameters}) + b"\n")
                line = await self._reader.readline()
        except TimeoutError:
            raise LivedmaError("the server does not answer") from None
        except ConnectionError:
            line = b""
        if not line:
            raise LivedmaError("the server has ended")
        answer = orjson.loads(line)
        if "error" in answer:
            raise LivedmaError(answer["error"])
        return answer["ok"]


async def _told(
    frames: _Asker, decisions: _Asker, seen: _Seen
) -> AsyncGenerator[Frame | Event, None]:
    """Yields what a server tells; raises when the server ends."""

    def next_frame(after: int) -> asyncio.Task[Any]:
        return asyncio.create_task(frames.ask("frame", after=after, wait=_WAIT_S))

    def next_events(after: int, wait: float = _WAIT_S) -> asyncio.Task[Any]:
        return asyncio.create_task(decisions.ask("decisions", after=after, wait=wait))

    frame, events = next_frame(0), next_events(0, wait=0)
    number = told = 0
    try:
        while (await asyncio.wait((frame,))) and frame.result() is None:
            frame = next_frame(0)
        seen.server(str(frame.result()["started_s"]))
        while True:
            found = frame.result() if frame.done() else None
            shown = None if found is None else Frame.from_json(found)
            if shown is not None and shown.last_event > told:
                await asyncio.wait((events,))
            if events.done():
                for event in map(Event.from_json, events.result()["events"]):
                    told = event.number
                    if seen.is_new(event):
                        yield event
                events = next_events(told)
            if shown is not None:
                number = shown.number
                yield shown
            if frame.done():
                frame = next_frame(number)
            await asyncio.wait((frame, events), return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in (frame, events):
            task.cancel()
        await asyncio.gather(frame, events, return_exceptions=True)
