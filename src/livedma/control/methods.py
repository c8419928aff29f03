"""What the control socket of a server offers once a controller runs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from livedma.control.controller import Controller, View
from livedma.control.feed import Feed
from livedma.control.frame import Frame
from livedma.control.policies import by_name
from livedma.control.why import why
from livedma.errors import LivedmaError
from livedma.monitor.snapshot import Snapshot

__all__ = ["Methods"]

_FIRST_S = 5.0  # for the first snapshot
_WAIT_MOST_S = 20.0  # less than a client's patience


class Methods:
    """Each answers with what JSON can say, dataclasses included."""

    def __init__(self, controller: Controller, feed: Feed) -> None:
        self._controller = controller
        self._feed = feed

    def methods(self) -> dict[str, Callable[..., object]]:
        """By their names on the socket."""
        offered = (self.snapshot, self.why, self.decisions, self.policy, self.frame)
        return {method.__name__: method for method in offered}

    def snapshot(self, sessions: bool = True) -> Snapshot:
        """The last one; there may be thousands of sessions, and not all want them."""
        snapshot = self._view().snapshot
        return snapshot if sessions else replace(snapshot, sessions=())

    def why(self, session: str | None = None) -> dict[str, Any]:
        """What limits its connections, or makes one session slow."""
        view = self._view()
        return why(view.snapshot, view.diagnoses, session).as_json()

    def decisions(self, after: int = 0, wait: float = 0.0) -> dict[str, Any]:
        """What was seen, decided and done after an event's number; waits so long for something."""
        events = self._controller.events.after(*_checked(after, wait))
        return {"events": [one.as_json() for one in events]}

    def policy(self, name: str | None = None) -> dict[str, Any]:
        """Which one decides; a name sets it."""
        if name is not None:
            self._controller.policy = by_name(name)
        return {"policy": self._controller.policy.name, "dry_run": self._controller.is_dry}

    def frame(self, after: int = 0, wait: float = 2.0) -> Frame | None:
        """What people are shown: the next after a frame's number; null: none came for so long."""
        return self._feed.next(*_checked(after, wait))

    def _view(self) -> View:
        view = self._controller.view(_FIRST_S)
        if view is None:
            raise LivedmaError("the server has not seen anything yet: ask again")
        return view


def _checked(after: int, wait: float) -> tuple[int, float]:
    if not isinstance(after, int) or not isinstance(wait, int | float) or not wait >= 0:
        raise ValueError("after is a number that was told before, and wait are seconds")
    return after, min(wait, _WAIT_MOST_S)
