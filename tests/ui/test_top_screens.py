# SPDX-License-Identifier: BSD-2-Clause
"""What the terminal shows, character by character: tests/ui/screens has the pictures.

LIVEDMA_RENEW=1 pytest tests/ui/test_top_screens.py makes them anew; git diff says what changed.
"""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest
from tests.ui.made_frames import (
    EVENTS,
    MS,
    connection,
    fine,
    frame,
    many,
    session,
    slow,
    window,
)
from tests.ui.terminal import Terminal, compare, shown

from livedma.monitor.snapshot import Host
from livedma.ui.feeds import Lost
from livedma.ui.top.glyphs import ASCII, UNICODE, Glyphs, width_of


@pytest.fixture(autouse=True)
def utc(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("TZ", "UTC")
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()


async def minute(it: Terminal) -> None:
    """A server for a minute."""
    await it.feed(*EVENTS, *(frame(number) for number in range(1, 121)))


def check(it: Terminal, name: str) -> None:
    width, height = it.app.size
    assert len(it.lines) == height
    assert all(width_of(line) <= width for line in it.lines)
    compare(name, it.text)


@pytest.mark.parametrize(
    ("name", "size", "glyphs"),
    [
        ("main-80x24", (80, 24), UNICODE),
        ("main-80x24-ascii", (80, 24), ASCII),
        ("main-200x60", (200, 60), UNICODE),
        ("main-120x30", (120, 30), UNICODE),
        ("main-40x12", (40, 12), UNICODE),
    ],
)
def test_a_minute_of_a_server(name: str, size: tuple[int, int], glyphs: Glyphs) -> None:
    async def run(it: Terminal) -> None:
        await minute(it)
        check(it, name)
        assert glyphs is UNICODE or it.text.isascii()

    shown(run, size, glyphs)


@pytest.mark.parametrize("size", [(80, 24), (200, 60)])
def test_a_session(size: tuple[int, int]) -> None:
    async def run(it: Terminal) -> None:
        await minute(it)
        await it.press("enter")
        check(it, f"session-{size[0]}x{size[1]}")

    shown(run, size)


def test_the_keys() -> None:
    async def run(it: Terminal) -> None:
        await it.feed(frame())
        await it.press("question_mark")
        check(it, "help-80x24")

    shown(run)


def test_before_the_first_frame() -> None:
    shown(lambda it: check(it, "nothing-80x24"))


def test_no_connection_and_no_session() -> None:
    async def run(it: Terminal) -> None:
        await it.feed(frame(sessions=(), connections=(), diagnoses=(), windows=()))
        check(it, "empty-80x24")

    shown(run)


def test_what_nobody_knows_is_a_dash() -> None:
    """A source that sees the wire alone."""

    async def run(it: Terminal) -> None:
        await it.feed(
            frame(
                connections=(connection(inside=False),),
                sessions=(session(1, inside=False), session(2, operations=0, inside=False)),
                diagnoses=(),
                windows=(),
                host=Host(None, None, None),
            )
        )
        check(it, "unknown-80x24")
        await it.press("enter")
        check(it, "unknown-session-80x24")

    shown(run)


def test_paused() -> None:
    async def run(it: Terminal) -> None:
        await it.feed(frame())
        await it.press("space")
        await it.tick(12)
        check(it, "paused-80x24")

    shown(run)


def test_without_a_server() -> None:
    async def run(it: Terminal) -> None:
        await it.feed(frame(), Lost("the server has ended", 1.0))
        await it.tick(75)
        check(it, "lost-80x24")

    shown(run)


def test_more_connections_than_there_is_room_for() -> None:
    """Those that are slow come first."""

    async def run(it: Terminal) -> None:
        numbers = range(1, 21)
        await it.feed(
            frame(
                connections=tuple(connection(n, client=f"fd00:80::{n:x}") for n in numbers),
                diagnoses=tuple(slow(n) if n in (7, 19) else fine(n) for n in numbers),
                windows=tuple(window(n) for n in numbers),
            )
        )
        check(it, "connections-80x24")

    shown(run)


def test_a_thousand_sessions() -> None:
    async def run(it: Terminal) -> None:
        await it.feed(*(many(number) for number in range(1, 5)))
        check(it, "many-80x24")

    shown(run)


def test_memory_that_is_waited_for_is_in_words_too() -> None:
    async def run(it: Terminal) -> None:
        await it.feed(frame(sessions=(session(1, wait_ns=4 * MS),)))
        assert "slow, limited by DMA memory" in it.text and "4 ms" in it.text

    shown(run)
