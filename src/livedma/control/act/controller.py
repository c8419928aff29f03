# SPDX-License-Identifier: BSD-2-Clause
"""Runs the loop: observe, diagnose, plan, act, verify, undo. Its thread survives every failure."""

from __future__ import annotations

import contextlib
import os
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Protocol, Self, TypeVar

from livedma.control.act.attempt import action_as_json
from livedma.control.act.case import Case
from livedma.control.act.context import CaseContext
from livedma.control.act.effect import Seen
from livedma.control.act.hands import Hands
from livedma.control.act.refusals import Refusals
from livedma.control.diagnose.forecast import Forecaster, Outlook
from livedma.control.diagnose.limits import Diagnosis
from livedma.control.events import Events
from livedma.control.faults import Faults, described
from livedma.control.policy.plan import Action, Policy, RefuseSessions, Room
from livedma.monitor.snapshot import Connection, Snapshot

__all__ = ["Controller", "Diagnosing", "Observing", "View"]

_T = TypeVar("_T")
PERIOD_S = 0.1
_DESCRIPTORS_S = 1.0  # between two checks that a descriptor is free
_END_S = 10.0


class Observing(Protocol):
    def observe(self) -> Snapshot | None:
        """Returns what happened since the last call; None: it cannot be used."""


class Diagnosing(Protocol):
    def see(self, snapshot: Snapshot) -> tuple[Diagnosis, ...]: ...


@dataclass(frozen=True, slots=True)
class View:
    """Holds a snapshot and its diagnoses."""

    snapshot: Snapshot
    diagnoses: tuple[Diagnosis, ...]


class Controller:
    """Steers a server. `step` is one round; `start` runs a thread that does ten rounds a second
    until `close`.

    `make_diagnostician` also replaces a diagnostician that has failed, since what it remembers may
    be the reason. `ahead_s` is how long before buffers run out a forecast is acted on; 0: never.
    """

    def __init__(
        self,
        observer: Observing,
        make_diagnostician: Callable[[], Diagnosing],
        hands: Hands,
        policy: Policy,
        *,
        room: Callable[[], Room],
        events: Events | None = None,
        dry_run: bool = False,
        ahead_s: float = 0.0,
    ) -> None:
        self.events = events if events is not None else Events()
        self._faults = Faults(self.events)
        self._context = CaseContext(
            policy, hands, self.events, self._faults, room, dry_run, ahead_s
        )
        self._observer = observer
        self._make_diagnostician = make_diagnostician
        self._diagnostician = make_diagnostician()
        self._forecaster = Forecaster()
        self._cases: dict[int, Case] = {}
        self._away: list[Case] = []  # of connections that have ended, whose clients come back
        self._refusals = Refusals(self._context)
        self._view: View | None = None
        self._viewed = threading.Condition()
        self._stepping = threading.Lock()
        self._stopped = threading.Event()
        self._descriptors_s = 0.0
        self._thread: threading.Thread | None = None

    @property
    def policy(self) -> Policy:
        return self._context.policy

    @policy.setter
    def policy(self, policy: Policy) -> None:
        with self._stepping:
            before = self._context.policy
            if policy.name == before.name:
                return
            self._context.policy = policy
            for case in self._cases.values():
                case.policy_changed()
            self.events.tell("policy", f"{before.name} -> {policy.name}")
            if not policy.may_refuse:
                self._refusals.admit(f"the policy {policy.name} refuses nobody")

    @property
    def is_dry(self) -> bool:
        return self._context.is_dry

    @is_dry.setter
    def is_dry(self, is_dry: bool) -> None:
        with self._stepping:
            if is_dry == self._context.is_dry:
                return
            # In a dry run refusals were only told; without one they were carried out.
            self._refusals.admit("it is decided anew")
            self._context.is_dry = is_dry

    @property
    def ahead_s(self) -> float:
        return self._context.ahead_s

    @ahead_s.setter
    def ahead_s(self, ahead_s: float) -> None:
        with self._stepping:
            self._context.ahead_s = ahead_s

    def diagnose_by(self, make_diagnostician: Callable[[], Diagnosing]) -> None:
        """Uses another diagnostician from the next snapshot on."""
        with self._stepping:
            self._make_diagnostician = make_diagnostician
            self._diagnostician = make_diagnostician()

    def by_hand(self, action: Action) -> str:
        """Does what a person or a program asks for, and returns what that was as one line. Raises
        what stood against it: then nothing has changed.
        """
        with self._stepping:
            text = self._context.hands.carry_out(action).text
            if isinstance(action, RefuseSessions):
                self._refusals.by_hand(action)
            number = getattr(action, "connection", None)
            self.events.tell("hand", text, connection=number, data=action_as_json(action))
            return text

    def view(self, wait_s: float = 0.0, after: View | None = None) -> View | None:
        """Returns the last view. Waits up to `wait_s` for one that is not `after`; None: there is
        none.
        """
        with self._viewed:
            self._viewed.wait_for(lambda: self._view is not after, wait_s)
            return self._view

    def step(self) -> None:
        """Does one round. Raises nothing: a failure is reported, and the next round tries again."""
        with self._stepping:
            self._guarded("the controller", self._round)

    def _round(self) -> None:
        snapshot = self._guarded("observing", self._observer.observe)
        if snapshot is None:
            return
        diagnoses = self._guarded("the diagnosis", lambda: self._diagnostician.see(snapshot))
        if diagnoses is None:
            self._diagnostician = self._make_diagnostician()
            diagnoses = ()
        outlooks = self._guarded("the forecast", lambda: self._forecaster.see(snapshot))
        if outlooks is None:
            self._forecaster = Forecaster()
            outlooks = {}
        diagnoses = tuple(_with_room(one, outlooks) for one in diagnoses)
        with self._viewed:
            self._view = View(snapshot, diagnoses)
            self._viewed.notify_all()
        self._follow(snapshot, diagnoses, outlooks)
        self._refusals.see(snapshot, self._cases)

    def _follow(
        self,
        snapshot: Snapshot,
        diagnoses: tuple[Diagnosis, ...],
        outlooks: Mapping[int, Outlook],
    ) -> None:
        there = {one.number: one for one in snapshot.connections}
        for number in self._context.moves.keys() - there.keys():
            del self._context.moves[number]
        gone = [self._cases.pop(number) for number in self._cases.keys() - there.keys()]
        self._away = [one for one in (*self._away, *gone) if one.gone(snapshot.at_s)]
        for diagnosis in diagnoses:
            connection = there.get(diagnosis.connection)
            if connection is not None:
                self._guarded(
                    f"connection {connection.number}",
                    partial(
                        self._see,
                        connection,
                        diagnosis,
                        snapshot,
                        outlooks.get(connection.number),
                    ),
                )

    def _see(
        self,
        connection: Connection,
        diagnosis: Diagnosis,
        snapshot: Snapshot,
        outlook: Outlook | None,
    ) -> None:
        case = self._cases.get(connection.number)
        if case is None:
            case = self._cases[connection.number] = Case(connection.number, self._context)
        seen = Seen(snapshot.at_s, snapshot.interval_s, connection)
        case.see(seen, diagnosis, snapshot, None if outlook is None else outlook.forecast)

    def _guarded(self, what: str, work: Callable[[], _T]) -> _T | None:
        try:
            ret = work()
        except Exception as error:
            with contextlib.suppress(Exception):  # a report that fails must not end the loop
                self._faults.failed(what, described(error), time.monotonic())
            return None
        self._faults.worked(what)
        return ret

    def start(self) -> None:
        self._thread = threading.Thread(target=self._run, name="livedma-controller", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        due_s = time.monotonic()
        while not self._stopped.wait(max(due_s - time.monotonic(), 0)):
            self.step()
            now_s = time.monotonic()
            if now_s - self._descriptors_s >= _DESCRIPTORS_S:
                self._descriptors_s = now_s
                self._guarded("file descriptors", _try_a_descriptor)
            due_s = max(due_s + PERIOD_S, now_s + PERIOD_S / 2)

    def close(self) -> None:
        """Ends the loop. Mapped memory stays; new sessions are admitted again."""
        self._stopped.set()
        if self._thread is not None:
            self._thread.join(_END_S)
        with self._stepping:
            self._refusals.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _with_room(diagnosis: Diagnosis, outlooks: Mapping[int, Outlook]) -> Diagnosis:
    outlook = outlooks.get(diagnosis.connection)
    return diagnosis if outlook is None else replace(diagnosis, room=outlook.room)


def _try_a_descriptor() -> None:
    """Opens and closes a file. Without free descriptors no client can connect or open a file; this
    check reports it.
    """
    os.close(os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC))
