# SPDX-License-Identifier: BSD-2-Clause
"""Watching from afar: frames and events as they come, across servers that end and come again."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator, Callable, Iterator

import pytest
from tests.ui.web_site import LIMIT_S, frame, site

from livedma.control.events import Event
from livedma.control.show.frame import Frame
from livedma.errors import LivedmaError
from livedma.ui import feeds, sse
from livedma.ui.feeds import Item, Lost, remote


async def until(items: AsyncIterator[Item], is_it: Callable[[Item], bool]) -> list[Item]:
    found = []
    async with asyncio.timeout(LIMIT_S):
        async for item in items:
            found.append(item)
            if is_it(item):
                return found
    raise AssertionError("it has ended")


def is_lost(item: Item) -> bool:
    return isinstance(item, Lost)


def is_frame(number: int) -> Callable[[Item], bool]:
    return lambda item: isinstance(item, Frame) and item.number == number


@pytest.fixture(autouse=True)
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(feeds, "_AGAIN_S", 0.01)


def test_frames_and_events_as_the_server_has_them() -> None:
    async def watch() -> list[Item]:
        items = remote(f"127.0.0.1:{it.port}")
        found = await until(items, is_frame(1))
        it.events.tell("done", "mapped", connection=1, data={"bytes": 1})
        it.feed.show(second)
        return found + await until(items, is_frame(2))

    first, second = frame(1, last_event=1), frame(2, sessions=1000, last_event=2)
    with site(first=first) as it:
        told = [it.events.tell("why", "requests wait", connection=1)]
        found = asyncio.run(watch())
        told += it.events.after(1)
    assert [one for one in found if isinstance(one, Event)] == told
    assert [one for one in found if isinstance(one, Frame)] == [first, second]
    assert found.index(told[1]) < found.index(second)


def test_nothing_is_told_twice_when_the_stream_breaks() -> None:
    async def watch() -> list[Item]:
        items = remote(f"127.0.0.1:{it.port}")
        found = await until(items, is_frame(1))
        # The connection goes, the server stays.
        it.web._loop.call_soon_threadsafe(
            lambda: [one.transport.abort() for one in it.web._server.connections if one.transport]
        )
        found += await until(items, is_lost)
        it.events.tell("check", "keep")
        it.feed.show(frame(2))
        return found + await until(items, is_frame(2))

    with site(first=frame(1)) as it:
        it.events.tell("plan", "more")
        found = asyncio.run(watch())
    assert [one.kind for one in found if isinstance(one, Event)] == ["plan", "check"]
    (lost,) = (one for one in found if isinstance(one, Lost))
    assert str(it.port) in lost.reason or "ended" in lost.reason
    assert lost.again_s > 0


def test_a_server_that_comes_again_is_told_from_its_beginning() -> None:
    async def watch() -> list[Item]:
        items = remote(f"127.0.0.1:{port}")
        found = [await anext(items)]  # nobody is there yet
        for kind in ("plan", "check"):
            with site(first=frame(1), port=port) as it:
                it.events.tell(kind, "this one's first")
                found += await until(items, lambda item: isinstance(item, Event))
            found += await until(items, is_lost)
        return found

    with socket.create_server(("127.0.0.1", 0)) as probe:
        port = probe.getsockname()[1]
    found = asyncio.run(watch())
    assert isinstance(found[0], Lost) and "Connect" in found[0].reason
    told = [(one.number, one.kind) for one in found if isinstance(one, Event)]
    assert told == [(1, "plan"), (1, "check")]


@pytest.mark.parametrize("address", ["", "fd:3", "a b", "host:99999"])
def test_what_is_no_address(address: str) -> None:
    with pytest.raises(LivedmaError, match="no address"):
        asyncio.run(anext(remote(address)))


@pytest.mark.parametrize(
    "answer",
    [
        b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n",
        b"HTTP/1.1 302 Found\r\nLocation: http://elsewhere/\r\nContent-Length: 0\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nContent-Length: 2\r\n\r\nhi",
        b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\nevent: frame\ndata: {}\n\n",
        b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\nevent: hello\ndata: [1\n\n",
        b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\nevent: decision\ndata: 1\n\n",
        b"SSH-2.0-OpenSSH_9.2\r\n",
        b"",
    ],
)
def test_somebody_else_at_the_port(answer: bytes) -> None:
    async def reply(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(answer)
        await writer.drain()
        writer.close()

    async def watch() -> Item:
        server = await asyncio.start_server(reply, "127.0.0.1", 0)
        async with server:
            port = server.sockets[0].getsockname()[1]
            items = remote(f"127.0.0.1:{port}")
            async with asyncio.timeout(LIMIT_S):
                found = await anext(items)
            await items.aclose()
            return found

    assert isinstance(asyncio.run(watch()), Lost)


def parts(stream: bytes) -> Iterator[list[bytes]]:
    """A stream, cut into pieces of each size."""
    for size in range(1, len(stream) + 1):
        yield [stream[at : at + size] for at in range(0, len(stream), size)]


def test_a_stream_is_read_however_it_is_cut() -> None:
    stream = b"retry: 5\nevent: a\ndata: 1\n\n: still here\n\ndata: 2\r\ndata:3\r\n\r\nevent: b\n\n"
    wanted = [("a", b"1"), ("message", b"2\n3")]
    for pieces in parts(stream):
        parser = sse.Parser()
        assert [one for piece in pieces for one in parser.feed(piece)] == wanted


@pytest.mark.parametrize("chunk", [b"x" * 100, b"data: xxxxxxxxx\n"])
def test_no_message_is_longer_than_it_may_be(chunk: bytes) -> None:
    parser = sse.Parser(most=1000)

    def feed() -> None:
        for _ in range(200):
            assert not list(parser.feed(chunk))

    with pytest.raises(ValueError, match="more than 1000"):
        feed()
