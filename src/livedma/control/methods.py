# SPDX-License-Identifier: BSD-2-Clause
"""Offers the methods of a server's control socket that need a controller.

All levers are here, and there are none without a controller: what people do with them respects the
budget for DMA memory and is told as an event, as a policy's actions are.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from livedma.control.act.by_hand import ByHand
from livedma.control.act.controller import Controller, View
from livedma.control.diagnose.why import why
from livedma.control.show.feed import Feed
from livedma.control.show.frame import Frame
from livedma.errors import LivedmaError
from livedma.monitor.snapshot import Snapshot

__all__ = ["Methods"]

_FIRST_S = 5.0  # time for the first snapshot to come
_WAIT_MOST_S = 20.0  # less than a client's patience


class Methods:
    """Answers each method with what JSON can say, dataclasses included."""

    def __init__(self, controller: Controller, feed: Feed, by_hand: ByHand) -> None:
        self._controller = controller
        self._feed = feed
        self._by_hand = by_hand

    def methods(self) -> dict[str, Callable[..., object]]:
        """Returns the methods by their names on the socket."""
        offered = (
            self.snapshot,
            self.why,
            self.decisions,
            self.policy,
            self.frame,
            self.extend,
            self.shrink,
            self.set_credits,
            self.set_slots,
            self.refuse_sessions,
            self.spread,
            self.migrate,
            self.cut,
        )
        return {method.__name__: method for method in offered}

    def snapshot(self, sessions: bool = True) -> Snapshot:
        """Returns the last snapshot; there may be thousands of sessions, and not all callers want
        them."""
        snapshot = self._view().snapshot
        return snapshot if sessions else replace(snapshot, sessions=())

    def why(self, session: str | None = None) -> dict[str, Any]:
        """Says what limits the connections, or makes one session slow."""
        view = self._view()
        return why(view.snapshot, view.diagnoses, session).as_json()

    def decisions(self, after: int = 0, wait: float = 0.0) -> dict[str, Any]:
        """Returns the events after a number: what was seen, decided and done; waits so long for
        one."""
        events = self._controller.events.after(*_checked(after, wait))
        return {"events": [one.as_json() for one in events]}

    def policy(self, name: str | None = None) -> dict[str, Any]:
        """Says which policy decides; a name sets it."""
        if name is not None:
            self._by_hand.set_policy(name)
        return {"policy": self._controller.policy.name, "dry_run": self._controller.is_dry}

    def extend(self, connection: int, bytes: int) -> dict[str, Any]:  # noqa: A002
        """Maps more DMA memory into a connection's window, with the credits that go with it, as far
        as the budget allows. Says what was done.
        """
        return {"connection": connection, "done": self._by_hand.extend(connection, bytes)}

    def shrink(self, connection: int, bytes: int) -> dict[str, Any]:  # noqa: A002
        """Takes DMA memory out of a connection's window, as it becomes free. Says what was done."""
        return {"connection": connection, "done": self._by_hand.shrink(connection, bytes)}

    def set_credits(self, connection: int, credits: int) -> dict[str, Any]:  # noqa: A002
        """Sets how many calls the connection's peer may have under way; the next replies say so."""
        return {"connection": connection, "done": self._by_hand.set_credits(connection, credits)}

    def set_slots(self, session: str, slots: int) -> dict[str, Any]:
        """Sets how many requests of a session may be under way; the next replies say so."""
        return {"session": session, "done": self._by_hand.set_slots(session, slots)}

    def refuse_sessions(self, refuse: bool, connection: int | None = None) -> dict[str, Any]:
        """Refuses new sessions with NFS4ERR_NOSPC, or admits them again: those that come by a
        connection, or all. Whatever the policy decides, this holds until it is taken back in the
        same form, or the connection ends.
        """
        done = self._by_hand.refuse_sessions(refuse, connection)
        return {"refuse": refuse, "connection": connection, "done": done}

    def spread(self, connection: int) -> dict[str, Any]:
        """Asks a connection's client to open another one, for new sessions: see `guidance`."""
        return {"connection": connection, "done": self._by_hand.spread(connection)}

    def migrate(
        self,
        connection: int,
        bytes: int,  # noqa: A002
        credits: int | None = None,  # noqa: A002
    ) -> dict[str, Any]:
        """Asks it to move all sessions to another one, with so much memory and so many credits
        (null: what goes with the memory): see `guidance`. If it cannot be asked, cuts it, so that
        its client comes back to such a one: an event tells when.
        """
        return {
            "connection": connection,
            "done": self._by_hand.migrate(connection, bytes, credits),
        }

    def cut(self, connection: int) -> dict[str, Any]:
        """Ends a connection; its sessions may go on by another one."""
        return {"connection": connection, "done": self._by_hand.cut(connection)}

    def frame(self, after: int = 0, wait: float = 2.0) -> Frame | None:
        """Returns what people are shown: the next frame after a number; null: none came for so
        long."""
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
