# SPDX-License-Identifier: BSD-2-Clause
"""Frames of a real server: what views show of it, and what people do by hand."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.control.live import HEAVY, LIMIT_S, MIB, loaded, running, serving

from livedma.control.observe.inside import InsideSource
from livedma.control.running import Options
from livedma.control.show.feed import Feed
from livedma.control.show.frame import Frame
from livedma.errors import LivedmaError, NoRoomError
from livedma.monitor.snapshot import Snapshot
from livedma.nfs.control import Control

pytestmark = pytest.mark.slow


def busy(control: Control) -> Frame:
    """A frame in which all sessions work."""
    end_s, number = time.monotonic() + LIMIT_S, 0
    while time.monotonic() < end_s:
        found: dict[str, Any] | None = control.ask("frame", after=number)
        if found is None:
            continue
        frame = Frame.from_json(found)
        assert frame.number > number
        assert json.loads(json.dumps(frame.as_json())) == found
        number = frame.number
        if sum(one.operations > 0 for one in frame.snapshot.sessions) == HEAVY.sessions:
            return frame
    raise AssertionError("no frame with all sessions")


def told(feed: Feed, event: int) -> Frame:
    """The first frame that tells of the event."""
    end_s, number = time.monotonic() + LIMIT_S, 0
    while time.monotonic() < end_s:
        frame = feed.next(number, LIMIT_S)
        assert frame is not None
        if frame.last_event >= event:
            return frame
        number = frame.number
    raise AssertionError("no frame tells of the event")


def test_a_frame_has_all_that_is_shown(tmp_path: Path) -> None:
    with serving(tmp_path, Options("static", budget_bytes=1024 * MIB)) as control, loaded():
        frame = busy(control)
    assert frame.snapshot.host.budget_bytes == 1024 * MIB
    (connection,) = frame.snapshot.connections
    (window,) = frame.windows
    diagnosis = frame.diagnosis(connection.number)
    assert connection.inside is not None and diagnosis is not None
    assert frame.window(connection.number) == window
    assert (frame.policy, frame.dry_run) == ("static", False)
    assert frame.server == str(tmp_path / "export") and frame.started_s <= time.time()
    assert (window.bytes, window.mapped_bytes) == (16 * MIB, connection.inside.mapped_bytes)
    assert sum(part.bytes for part in window.parts) <= window.mapped_bytes
    kept_back = connection.inside.kept_back_bytes // connection.inside.buffer_bytes
    data = sum(part.buffers for part in window.parts if part.use == "data")
    assert data == connection.inside.buffers + kept_back
    assert any(part.taken for part in window.parts if part.use == "data")
    ends = [part.offset + part.bytes for part in window.parts]
    assert all(end <= after.offset for end, after in zip(ends, window.parts[1:], strict=False))
    assert ends[-1] <= window.bytes


def test_what_is_done_by_hand_is_told(tmp_path: Path) -> None:
    with running(tmp_path, Options("static")) as (it, control), loaded():
        before = busy(control)
        (connection,) = before.snapshot.connections
        said = it.by_hand.extend(connection.number, 2 * MIB)
        # BPF takes seconds to load on a busy machine, and says so then.
        events = [
            one for one in it.controller.events.after(before.last_event) if one.kind != "source"
        ]
        after = told(it.feed, events[-1].number)
        with pytest.raises(LivedmaError, match="no connection 99"):
            it.by_hand.extend(99, MIB)
        with pytest.raises(ValueError, match="positive"):
            it.by_hand.shrink(connection.number, 0)
        with pytest.raises(NoRoomError):
            it.by_hand.extend(connection.number, 64 * MIB)
        with pytest.raises(LivedmaError, match="static"):
            it.by_hand.set_policy("none")
    assert said.startswith("mapped 4 MiB -> 6.")
    assert [(one.kind, one.text) for one in events] == [("hand", said)]
    assert after.windows[0].mapped_bytes >= before.windows[0].mapped_bytes + 2 * MIB


def test_the_history_has_a_column_for_each_figure(tmp_path: Path) -> None:
    with running(tmp_path, Options("static", history=True)) as (it, control), loaded():
        frame = busy(control)
        found = it.feed.history.as_json()
    (number,) = (str(one.number) for one in frame.snapshot.connections)
    columns = found["connections"][number]
    assert {len(column) for column in columns.values()} == {len(found["at"])}
    assert columns["mapped_bytes"][-1] == frame.windows[0].mapped_bytes
    assert max(filter(None, columns["bytes_per_s"])) > MIB


def test_a_look_that_fails_is_not_the_last(tmp_path: Path) -> None:
    failed = 0

    def make_look() -> Callable[[], Snapshot]:
        look = InsideSource(service).snapshot

        def interrupted() -> Snapshot:
            nonlocal failed
            if failed < 2:
                failed += 1
                raise OSError("no look")
            return look()

        return interrupted

    with running(tmp_path, Options("static")) as (it, _):
        service = it.service
        with Feed(make_look, tuple, it.controller) as feed:
            first = feed.next(0, LIMIT_S)
            assert first is not None and failed == 2
            assert feed.next(first.number, LIMIT_S) is not None
