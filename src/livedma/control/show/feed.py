# SPDX-License-Identifier: BSD-2-Clause
"""Makes frames of a live server, once for all views, and only while a view asks for them."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Self

from livedma.control.act.controller import Controller
from livedma.control.events import Events
from livedma.control.show.frame import Frame, WindowMap
from livedma.control.show.history import History
from livedma.monitor.snapshot import Snapshot

__all__ = ["PERIOD_S", "Feed"]

_log = logging.getLogger(__name__)

PERIOD_S = 0.5
_IDLE_S = 10.0  # without a view that asks, until the feed stops
_END_S = 10.0


class Feed:
    """Makes frames in a thread, twice a second, while views call `next`.

    `make_look` makes a source of snapshots, whose intervals are its own. With `always`, the thread
    makes frames even while no view asks, so that there is a history for views that open later.
    """

    def __init__(
        self,
        make_look: Callable[[], Callable[[], Snapshot]],
        windows: Callable[[], tuple[WindowMap, ...]],
        controller: Controller,
        *,
        server: str = "",
        started_s: float | None = None,
        always: bool = False,
    ) -> None:
        self.history = History()
        self._make_look = make_look
        self._windows = windows
        self._controller = controller
        self._server = server
        self._started_s = time.time() if started_s is None else started_s
        self._always = always
        self._changed = threading.Condition()
        self._frame: Frame | None = None
        self._number = 0
        self._asked_s = time.monotonic()
        self._thread: threading.Thread | None = None
        self._stopped = threading.Event()
        if always:
            self._wake()

    @property
    def events(self) -> Events:
        return self._controller.events

    def next(self, after: int = 0, wait_s: float = 2 * PERIOD_S) -> Frame | None:
        """Returns the last frame if its number is higher than `after`. Waits up to `wait_s` for
        one.
        """
        self._wake()
        with self._changed:
            self._changed.wait_for(lambda: self._is_after(after) is not None, wait_s)
            return self._is_after(after)

    def _is_after(self, number: int) -> Frame | None:
        frame = self._frame
        return frame if frame is not None and frame.number > number else None

    def _wake(self) -> None:
        with self._changed:
            self._asked_s = time.monotonic()
            if self._thread is None and not self._stopped.is_set():
                self._thread = threading.Thread(target=self._run, name="livedma-feed", daemon=True)
                self._thread.start()

    def _run(self) -> None:
        look = self._make_look()
        while not self._stopped.wait(PERIOD_S):
            try:
                self._show(self._make(look()))
            except Exception:  # views wait for the next frame, and the server goes on
                _log.exception("what people are shown could not be made")
            with self._changed:
                if not self._always and time.monotonic() - self._asked_s > _IDLE_S:
                    self._thread = self._frame = None
                    return

    def _show(self, frame: Frame | None) -> None:
        if frame is None:
            return
        self.history.add(frame)
        with self._changed:
            self._frame = frame
            self._changed.notify_all()

    def _make(self, snapshot: Snapshot) -> Frame | None:
        view = self._controller.view()
        if view is None:
            return None
        self._number += 1
        seen = view.snapshot  # the controller's, which has the budget, and what BPF has missed
        host = replace(snapshot.host, budget_bytes=seen.host.budget_bytes)
        return Frame(
            number=self._number,
            server=self._server,
            started_s=self._started_s,
            watching=seen.source,
            policy=self._controller.policy.name,
            dry_run=self._controller.is_dry,
            snapshot=replace(snapshot, host=host, losses=seen.losses),
            diagnoses=view.diagnoses,
            windows=self._windows(),
            last_event=self.events.last,
        )

    def close(self) -> None:
        self._stopped.set()
        thread = self._thread
        if thread is not None:
            thread.join(_END_S)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
