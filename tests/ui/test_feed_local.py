# SPDX-License-Identifier: BSD-2-Clause
"""The feed of a control socket: what a server tells, and what is said when it does not."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable
from contextlib import aclosing
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest
from tests.ui.made_frames import EVENTS, frame, restarted

from livedma.control.events import Event, Events
from livedma.control.show.frame import Frame
from livedma.errors import LivedmaError
from livedma.nfs.control import ControlServer
from livedma.ui import feeds
from livedma.ui.feeds import Item, Lost, local

LIMIT_S = 30.0


@pytest.fixture(autouse=True)
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(feeds, "_AGAIN_S", 0.05)


class Told:
    """A control socket as a server has it, that tells what a test says."""

    def __init__(self, path: Path, first: Frame | None = None) -> None:
        self._changed = threading.Condition()
        self._frame = first
        self.events = Events()
        self.asked: list[int] = []
        methods = {"frame": self.frame, "decisions": self.decisions}
        self._server = ControlServer(path, methods)

    def show(self, one: Frame) -> None:
        with self._changed:
            self._frame = one
            self._changed.notify_all()

    def frame(self, after: int = 0, wait: float = 2.0) -> dict[str, Any] | None:
        with self._changed:
            self.asked.append(after)
            self._changed.wait_for(
                lambda: self._frame is not None and self._frame.number > after, min(wait, 0.2)
            )
            one = self._frame
            return one.as_json() if one is not None and one.number > after else None

    def decisions(self, after: int = 0, wait: float = 0.0) -> dict[str, Any]:
        found = self.events.after(after, min(wait, 0.2))
        return {"events": [{**asdict(one), "line": one.line} for one in found]}

    def tell(self, *events: Event) -> None:
        for one in events:
            self.events.tell(one.kind, one.text, connection=one.connection)

    def close(self) -> None:
        self._server.close()


def watch(path: Path | Callable[[], Path], *steps: Callable[[Item], bool]) -> list[Item]:
    """Reads until each step in turn has said of an item that it was that."""

    async def read() -> list[Item]:
        found: list[Item] = []
        left = list(steps)
        async with asyncio.timeout(LIMIT_S), aclosing(local(path)) as items:
            async for item in items:
                found.append(item)
                if left[0](item):
                    left.pop(0)
                    if not left:
                        break
        return found

    return asyncio.run(read())


def is_frame(number: int) -> Callable[[Item], bool]:
    return lambda item: isinstance(item, Frame) and item.number == number


def texts(items: list[Item]) -> list[str]:
    return [one.text for one in items if isinstance(one, Event)]


def test_events_come_before_the_frame_that_counts_them_in(tmp_path: Path) -> None:
    told = Told(tmp_path / "s", replace(frame(3), last_event=len(EVENTS)))
    told.tell(*EVENTS)
    items = watch(tmp_path / "s", is_frame(3))
    told.close()
    assert texts(items) == [one.text for one in EVENTS]
    assert isinstance(items[-1], Frame) and items[-1].snapshot == frame(3).snapshot


def test_what_happens_is_told_once_and_frames_are_asked_for_by_number(tmp_path: Path) -> None:
    told = Told(tmp_path / "s", frame(1))

    def on_first(item: Item) -> bool:
        if is_frame(1)(item):
            told.tell(*EVENTS[:2])
            return True
        return False

    def on_event(item: Item) -> bool:
        if isinstance(item, Event) and item.number == 2:
            told.show(frame(2))
            return True
        return False

    items = watch(tmp_path / "s", on_first, on_event, is_frame(2))
    told.close()
    assert texts(items) == [one.text for one in EVENTS[:2]]
    assert told.asked[0] == 0 and set(told.asked[1:]) == {1}


def test_a_server_that_ends_is_said_and_the_next_is_found_elsewhere(tmp_path: Path) -> None:
    """Its events are told from the first; those of the same server are not told again."""
    first = Told(tmp_path / "first", replace(frame(7), last_event=len(EVENTS)))
    first.tell(*EVENTS)
    places = [tmp_path / "first"]
    others: list[Told] = []

    def on_frame(item: Item) -> bool:
        if is_frame(7)(item):
            first.close()
            return True
        return False

    def on_lost(item: Item) -> bool:
        if not isinstance(item, Lost):
            return False
        places[0] = tmp_path / "second"
        others.append(Told(places[0]))
        others[0].tell(EVENTS[3])
        others[0].show(replace(restarted(frame(1)), last_event=1))
        return True

    items = watch(lambda: places[0], on_frame, on_lost, is_frame(1))
    others[0].close()
    lost = [one for one in items if isinstance(one, Lost)]
    assert lost[0].reason == "the server has ended"
    assert texts(items) == [*(one.text for one in EVENTS), EVENTS[3].text]


def test_a_connection_that_breaks_does_not_tell_twice(tmp_path: Path) -> None:
    told = Told(tmp_path / "s", replace(frame(7), last_event=len(EVENTS)))
    told.tell(*EVENTS)
    again: list[Told] = []

    def on_frame(item: Item) -> bool:
        if is_frame(7)(item):
            told.close()
            return True
        return False

    def on_lost(item: Item) -> bool:
        if isinstance(item, Lost):
            again.append(Told(tmp_path / "s"))
            again[0].events = told.events
            again[0].show(replace(frame(8), last_event=len(EVENTS)))
            return True
        return False

    items = watch(tmp_path / "s", on_frame, on_lost, is_frame(8))
    again[0].close()
    assert texts(items) == [one.text for one in EVENTS]


def test_nobody_there_is_said_each_time(tmp_path: Path) -> None:
    found = watch(tmp_path / "none", lambda _: True, lambda _: True)
    assert [type(one) for one in found] == [Lost, Lost]
    assert isinstance(found[0], Lost)
    assert found[0].reason == f"no server answers at {tmp_path / 'none'}: No such file or directory"


def test_whoever_looks_for_a_server_and_finds_none_says_so() -> None:
    def nowhere() -> Path:
        raise LivedmaError("no server has its control socket in /run/livedma")

    (found,) = watch(nowhere, lambda _: True)
    assert found == Lost("no server has its control socket in /run/livedma", 0.05)


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        ({"started_s": 1, "wings": 2}, "does not understand"),
        ({}, "does not understand"),
        ([1], "does not understand"),
    ],
)
def test_a_server_of_another_version_is_no_crash(answer: object, said: str, tmp_path: Path) -> None:
    server = ControlServer(
        tmp_path / "s",
        {"frame": lambda after, wait: answer, "decisions": lambda after, wait: {"events": []}},
    )
    (found,) = watch(tmp_path / "s", lambda _: True)
    server.close()
    assert isinstance(found, Lost) and said in found.reason


def test_a_server_without_a_controller_yet_is_waited_for(tmp_path: Path) -> None:
    server = ControlServer(tmp_path / "s", {})
    (found,) = watch(tmp_path / "s", lambda _: True)
    server.close()
    assert isinstance(found, Lost) and "there is no" in found.reason


def test_who_has_seen_enough_leaves_no_connection(tmp_path: Path) -> None:
    told = Told(tmp_path / "s", frame(1))
    watch(tmp_path / "s", is_frame(1))
    end_s = time.monotonic() + LIMIT_S
    while told._server._peers and time.monotonic() < end_s:
        time.sleep(0.01)
    assert not told._server._peers
    told.close()


def test_a_slow_reader_gets_the_newest_frame(tmp_path: Path) -> None:
    told = Told(tmp_path / "s", frame(1))

    def on_first(item: Item) -> bool:
        for number in range(2, 50):
            told.show(frame(number))
        return is_frame(1)(item)

    items = watch(tmp_path / "s", on_first, is_frame(49))
    told.close()
    assert [one.number for one in items if isinstance(one, Frame)] == [1, 49]
