# SPDX-License-Identifier: BSD-2-Clause
"""Refuses new sessions where there is no memory for them, and admits them again.

Where a connection's own window is full, new sessions are refused on that connection. Once the host
has no memory left, neither for an extension nor for a further connection, everybody's are.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from livedma.control.act.case import Case
from livedma.control.act.context import CaseContext
from livedma.control.act.refusal import Refusal
from livedma.control.policy.plan import NoRoom, RefuseSessions
from livedma.control.policy.sizing import slots_used
from livedma.control.policy.waiting import waiting_share
from livedma.errors import LivedmaError
from livedma.monitor.snapshot import Snapshot

__all__ = ["Refusals"]

#: Whose new sessions: those that come by the connection with this number, or everybody's.
Whose = int | None
#: A connection that lacks memory: its waiting share, its number, and what it lacks.
_Lacking = tuple[float, int, NoRoom]


class Refusals:
    """Has a switch for each connection that lacks memory, and one for everybody. What is refused by
    hand stays refused, whatever the policy wants, until it is admitted by hand.
    """

    def __init__(self, context: CaseContext) -> None:
        self._context = context
        self._switches: dict[Whose, Refusal] = {}
        self._by_hand: set[Whose] = set()

    def see(self, snapshot: Snapshot, cases: Mapping[int, Case]) -> None:
        """Switches what the snapshot calls for."""
        self._forget_ended({one.number for one in snapshot.connections})
        if not self._context.policy.may_refuse:
            return
        lacking = [
            (waiting_share(case.lately(), slots_used(snapshot, number)), number, case.lack)
            for number, case in cases.items()
            if case.lack is not None
        ]
        is_used_up = bool(lacking) and self._context.room().is_used_up
        calling: dict[Whose, list[_Lacking]] = {whose: [] for whose in self._switches}
        for one in lacking:
            if not one[2].is_of_host:
                calling.setdefault(one[1], []).append(one)
            if one[2].is_of_host or is_used_up:
                calling.setdefault(None, []).append(one)
        for whose, its in calling.items():
            if whose not in self._by_hand:
                self._switch(whose, its, snapshot.at_s)

    def _switch(self, whose: Whose, lacking: Iterable[_Lacking], at_s: float) -> None:
        worst = max(lacking, key=lambda one: one[0], default=None)
        switch = self._switches.setdefault(whose, Refusal())
        if switch.see(at_s, None if worst is None else worst[0]):
            if worst is None or not switch.is_on:
                self._admit(whose, "what there is suffices again")
            else:
                self._refuse(whose, worst)
        elif worst is None and not switch.is_on:
            del self._switches[whose]

    def _refuse(self, whose: Whose, worst: _Lacking) -> None:
        share, number, lack = worst
        context = self._context
        if not self._carried_out(RefuseSessions(True, whose)):
            return
        if whose is None:
            text = f"everybody: new sessions get NFS4ERR_NOSPC: on connection {number} "
        else:
            text = "new sessions on it get NFS4ERR_NOSPC: "
        context.events.tell(
            "refuse",
            f"{text}{share:.0%} of latency is waiting, and {lack.reason}",
            connection=whose,
            data={"everybody": whose is None, "waits": number, "waiting_share": share},
            dry=context.is_dry,
        )

    def _admit(self, whose: Whose, why: str) -> None:
        self._switches.pop(whose, None)
        context = self._context
        if not self._carried_out(RefuseSessions(False, whose)):
            return
        text = f"everybody: new sessions: {why}" if whose is None else f"new sessions on it: {why}"
        data = {"everybody": whose is None}
        context.events.tell("admit", text, connection=whose, data=data, dry=context.is_dry)

    def _carried_out(self, action: RefuseSessions) -> bool:
        """Returns False if the action is about a connection that has ended just now, which has no
        new sessions any more.
        """
        if self._context.is_dry:
            return True
        try:
            self._context.hands.carry_out(action)
        except LivedmaError:
            if action.connection is None:
                raise
            return False
        return True

    def by_hand(self, action: RefuseSessions) -> None:
        """Takes note of what a person or a program has refused or admitted."""
        whose = action.connection
        self._switches.pop(whose, None)
        if action.is_refused:
            self._by_hand.add(whose)
        else:
            self._by_hand.discard(whose)

    def admit(self, why: str) -> None:
        """Admits all that were not refused by hand."""
        for whose in [one for one, switch in self._switches.items() if switch.is_on]:
            self._admit(whose, why)

    def close(self) -> None:
        """Admits everybody, also what was refused by hand."""
        why = "the controller ends"
        self.admit(why)
        for whose in self._by_hand:
            self._admit(whose, why)
        self._by_hand.clear()

    def _forget_ended(self, there: set[int]) -> None:
        """Forgets connections that have ended; the server has forgotten them as well."""
        ended = {one for one in (*self._switches, *self._by_hand) if one is not None} - there
        for number in ended:
            self._switches.pop(number, None)
            self._by_hand.discard(number)
