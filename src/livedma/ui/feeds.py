"""What views are fed with: a server's frames and events as they come, from here or from afar.

A feed begins with a frame, and events follow from the oldest that is kept. It goes on for ever: when
the server does not answer it says so (`Away`), and tries again. A frame with another `started_s`
is another server's, whose events count from 1 anew. Who reads slowly gets the newest frame.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Coroutine, Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import orjson

from livedma.control.events import Event
from livedma.control.frame import Frame
from livedma.errors import LivedmaError
from livedma.nfs.control import ControlError

__all__ = ["Away", "Item", "event_of", "frame_of", "local"]

_AGAIN_S = 1.0
_WAIT_S = 10.0  # that the server may take to have something to tell
_PATIENCE_S = 20.0  # longer than that
_LINE_MOST = 1 << 26  # bytes: a frame of 1,000 sessions has one


@dataclass(frozen=True, slots=True)
class Away:
    """The server does not answer, or not so that it can be understood. text: why, for people."""

    text: str


Item = Frame | Event | Away


def frame_of(found: Mapping[str, Any]) -> Frame:
    """Raises LivedmaError if it is none that we know."""
    try:
        return Frame.from_json(found)
    except (TypeError, ValueError, KeyError, AttributeError):
        raise LivedmaError("the server is of another version: its frames are not ours") from None


def event_of(found: Mapping[str, Any]) -> Event:
    """Of an event and its line. Raises LivedmaError if it is none that we know."""
    try:
        return Event(**{name: found[name] for name in _EVENT})
    except (TypeError, KeyError):
        raise LivedmaError("the server is of another version: its events are not ours") from None


_EVENT = tuple(one.name for one in fields(Event))


async def local(path: Path | Callable[[], Path]) -> AsyncGenerator[Item, None]:
    """By a control socket. A function is asked for it each time: a new server may have another."""
    seen = _Seen()
    while True:
        try:
            where = path if isinstance(path, Path) else path()
            async with _Asker.at(where) as frames, _Asker.at(where) as decisions:
                async with contextlib.aclosing(_told(frames, decisions, seen)) as items:
                    async for item in items:
                        yield item
        except LivedmaError as error:
            yield Away(str(error))
            await asyncio.sleep(_AGAIN_S)


@dataclass(slots=True)
class _Seen:
    """Of which server, and the last event of it."""

    started_s: float | None = None
    event: int = 0


class _Asker:
    """One connection to a control socket, for one request at a time."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self._writer = reader, writer

    @classmethod
    @contextlib.asynccontextmanager
    async def at(cls, path: Path) -> AsyncIterator[_Asker]:
        try:
            reader, writer = await asyncio.open_unix_connection(path, limit=_LINE_MOST)
        except OSError as error:
            raise ControlError(f"no server answers at {path}: {error.strerror}") from None
        try:
            yield cls(reader, writer)
        finally:
            writer.close()

    async def ask(self, do: str, **parameters: object) -> Any:
        try:
            async with asyncio.timeout(_PATIENCE_S):
                self._writer.write(orjson.dumps({"do": do, **parameters}) + b"\n")
                line = await self._reader.readline()
            answer = orjson.loads(line) if line else {"error": "the server has ended"}
        except TimeoutError:
            raise ControlError("the server does not answer") from None
        except ConnectionError:
            raise ControlError("the server has ended") from None
        except ValueError:
            raise ControlError("what answers is no server of ours") from None
        if "error" in answer:
            raise ControlError(answer["error"])
        return answer["ok"]


async def _told(frames: _Asker, decisions: _Asker, seen: _Seen) -> AsyncGenerator[Frame | Event, None]:
    """What a server says until it ends, which raises."""
    while (found := await frames.ask("frame", wait=_WAIT_S)) is None:
        pass
    frame = frame_of(found)
    if frame.started_s != seen.started_s:
        seen.started_s, seen.event = frame.started_s, 0
    yield frame
    next_frame = _soon(frames.ask("frame", after=frame.number, wait=_WAIT_S))
    next_events = _soon(decisions.ask("decisions", after=seen.event, wait=_WAIT_S))
    try:
        while True:
            await asyncio.wait((next_frame, next_events), return_when=asyncio.FIRST_COMPLETED)
            if next_events.done():
                for event in map(event_of, next_events.result()["events"]):
                    seen.event = event.number
                    yield event
                next_events = _soon(decisions.ask("decisions", after=seen.event, wait=_WAIT_S))
            if next_frame.done():
                if (found := next_frame.result()) is not None:
                    frame = frame_of(found)
                    yield frame
                next_frame = _soon(frames.ask("frame", after=frame.number, wait=_WAIT_S))
    finally:
        for task in (next_frame, next_events):
            task.cancel()
        await asyncio.gather(next_frame, next_events, return_exceptions=True)


def _soon(asked: Coroutine[Any, Any, Any]) -> asyncio.Task[Any]:
    return asyncio.create_task(asked)
