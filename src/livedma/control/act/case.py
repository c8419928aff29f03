# SPDX-License-Identifier: BSD-2-Clause
"""A case follows one connection: it gets slower, a plan is carried out, checked, kept or undone."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import asdict, replace
from typing import Any, TypeVar

from livedma.control.act.ahead import Ahead, judge_use
from livedma.control.act.attempt import Attempt, NotDone, as_json, carry_out, take_back
from livedma.control.act.context import CaseContext
from livedma.control.act.demand import DemandWatch
from livedma.control.act.effect import Measured, Seen, Verdict, judge
from livedma.control.act.hands import Progress
from livedma.control.diagnose.forecast import Forecast
from livedma.control.diagnose.limits import NOT_MANAGED, Diagnosis, Limit
from livedma.control.events import Kind
from livedma.control.faults import described
from livedma.control.policy.plan import Migrate, NoRoom, Plan, Policy
from livedma.control.words import duration, rate
from livedma.errors import BudgetError, LimitError, NoRoomError
from livedma.monitor.snapshot import Connection, Snapshot
from livedma.wire.words import amount

__all__ = ["Case"]

_T = TypeVar("_T")
CHECK_S = 1.0  # from an action to the check whether it helped
SETTLE_S = 0.3  # after an action; figures from then on count
BEFORE_S = 1.0  # before an action; figures since then count
LATELY_S = 0.5
CALM_S = 1.0  # without trouble; after that the connection has recovered
BARRED_S, BARRED_MOST_S = 60.0, 600.0  # before a remedy that did not help is tried again
COOL_S, COOL_MOST_S = 5.0, 300.0  # after a failure
PUZZLED_S = 0.5  # that a slow connection without a known limit is only watched
MOVE_S = 30.0  # for a client to open a connection, and to move
DRY_S = 10.0  # between two plans of a dry run
_ELSEWHERE = (Limit.CPU, Limit.NETWORK, Limit.PEER)
_NO_HOST_MEMORY = (BudgetError, LimitError, MemoryError)


class Case:
    """Decides for one connection. `see` takes each of its snapshots, diagnoses and forecasts, in
    order. `lack` says why the connection cannot have the memory that it needs, as of the last plan.
    """

    def __init__(self, number: int, context: CaseContext) -> None:
        self.lack: NoRoom | None = None
        self._number = number
        self._context = context
        self._history: deque[Seen] = deque(maxlen=64)
        self._watch = DemandWatch()
        self._ahead = Ahead()
        self._attempt: Attempt | None = None  # to be judged
        self._move: Attempt | None = None  # that the client was asked to make
        self._successor: int | None = None  # the connection for the client's new sessions
        self._is_degraded = False
        self._puzzled_since_s: float | None = None
        self._calm_since_s: float | None = None
        self._explained: set[tuple[Limit, type]] = set()
        self._not_before_s = 0.0
        self._cool_s = COOL_S
        self._barred: dict[
            Limit, tuple[float, float]
        ] = {}  # barred until then, and for so long the next time
        self._dry_said = self._no_room_said = ""

    def see(
        self,
        seen: Seen,
        diagnosis: Diagnosis,
        snapshot: Snapshot,
        forecast: Forecast | None = None,
    ) -> None:
        self._history.append(seen)
        self._watch.see(seen.at_s, seen.connection)
        is_near = self._ahead.see(forecast, seen.at_s, self._context.ahead_s)
        if self._attempt is None:
            self._attempt = self._context.moves.pop(self._number, None)
        if self._move is not None:
            self._follow_move(self._move, seen.at_s)
        elif self._attempt is not None:
            self._verify(self._attempt, seen.at_s, diagnosis.limit)
        elif diagnosis.is_degraded:
            self._calm_since_s = None
            self._degraded(diagnosis, snapshot)
        else:
            self._calm(seen.at_s)
            if is_near and forecast is not None and diagnosis.limit is Limit.NOTHING:
                self._look_ahead(forecast, snapshot)
        is_settled = self._move is None and self._attempt is None and forecast is None
        if is_settled and not (diagnosis.is_degraded and _is_short(diagnosis.limit)):
            self._relax(seen)

    def lately(self) -> list[Connection]:
        last_s = self._history[-1].at_s
        return [one.connection for one in self._history if one.at_s > last_s - LATELY_S]

    def policy_changed(self) -> None:
        """Lets the new policy decide at once, also where the old one had nothing to offer."""
        self.lack = None
        self._explained.clear()
        self._not_before_s = 0.0
        self._dry_said = self._no_room_said = ""

    def gone(self, at_s: float) -> bool:
        """Takes note that the connection has ended, perhaps because its sessions have moved.
        Returns whether they are still on their way: then it is to be told again.
        """
        if self._move is not None:
            self._follow_move(self._move, at_s)
        elif self._attempt is not None:
            self._tell("check", "it has ended before it could be judged")
            self._attempt = None
        return self._move is not None

    def _degraded(self, diagnosis: Diagnosis, snapshot: Snapshot) -> None:
        at_s = diagnosis.at_s
        if self._is_puzzling(diagnosis):
            return
        if not self._is_degraded:
            self._is_degraded = True
            self._tell("degraded", self._state(), data=dict(diagnosis.evidence))
        barred_until_s, _ = self._barred.get(diagnosis.limit, (0.0, 0.0))
        if at_s < max(self._not_before_s, barred_until_s):
            return
        if self._history[-1].connection.is_tcp:
            self._explain(diagnosis, None)
            return
        if self._successor is not None and snapshot.connection(self._successor) is not None:
            return  # the client has another connection, which has a case of its own
        plan, is_broken = self._ask(
            at_s, lambda policy: policy.plan(diagnosis, snapshot, self._context.room())
        )
        if is_broken:
            return
        self.lack = plan if isinstance(plan, NoRoom) else None
        self._explain(diagnosis, plan)
        if isinstance(plan, Plan):
            self._act(plan, at_s, diagnosis.limit)

    def _look_ahead(self, forecast: Forecast, snapshot: Snapshot) -> None:
        """Acts before calls wait, as far as the policy does that. After memory did not help, the
        case waits as it does before it tries memory again.
        """
        at_s = forecast.at_s
        barred_until_s, _ = self._barred.get(Limit.MEMORY, (0.0, 0.0))
        if at_s < max(self._not_before_s, barred_until_s):
            return
        plan, _ = self._ask(
            at_s, lambda policy: policy.ahead(forecast, snapshot, self._context.room())
        )
        if isinstance(plan, Plan):
            self._act(plan, at_s, Limit.MEMORY, forecast)
        elif isinstance(plan, NoRoom) and plan.reason != self._no_room_said:
            self._no_room_said = plan.reason
            self._tell("forecast", f"{forecast.sentence}; {plan.reason}", data=asdict(forecast))

    def _is_puzzling(self, diagnosis: Diagnosis) -> bool:
        """Returns whether a connection is slow without a known limit. For up to PUZZLED_S, because
        the next snapshots may show the limit.
        """
        if diagnosis.limit is not Limit.NOTHING:
            self._puzzled_since_s = None
            return False
        if self._puzzled_since_s is None:
            self._puzzled_since_s = diagnosis.at_s
        return diagnosis.at_s - self._puzzled_since_s < PUZZLED_S

    def _ask(self, at_s: float, question: Callable[[Policy], _T]) -> tuple[_T | None, bool]:
        """Returns the policy's answer, and whether the policy failed. A failure is reported, and
        the policy is asked again after COOL_S.
        """
        policy = self._context.policy
        what = f"the policy {policy.name}, connection {self._number}"
        try:
            ret = question(policy)
        except Exception as error:
            self._context.faults.failed(what, described(error), at_s)
            self._not_before_s = at_s + COOL_S
            return None, True
        self._context.faults.worked(what)
        return ret, False

    def _explain(self, diagnosis: Diagnosis, plan: Plan | NoRoom | None) -> None:
        """Tells the limit, and what is done about it, once for each until the connection has
        recovered.
        """
        match plan:
            case Plan():
                rest = ""
            case NoRoom():
                rest = f"; {plan.reason}"
            case None if self._history[-1].connection.is_tcp:
                rest = f"; {NOT_MANAGED}"
            case None:
                rest = f"; {self._context.policy.name} leaves it as it is"
        known = (diagnosis.limit, type(plan))
        if known not in self._explained:
            self._explained.add(known)
            data = {"limit": diagnosis.limit.value, **diagnosis.evidence}
            self._tell("why", diagnosis.sentence + rest, data=data)

    def _act(self, plan: Plan, at_s: float, limit: Limit, forecast: Forecast | None = None) -> None:
        context = self._context
        said = f"{context.policy.name}{' ahead' if forecast else ''}: {plan.reason}"
        is_new = not context.is_dry or said != self._dry_said
        if forecast is not None and is_new:
            data = asdict(forecast)
            self._tell("forecast", forecast.sentence, data=data, dry=context.is_dry)
        if context.is_dry:
            self._not_before_s = at_s + DRY_S
            if is_new:
                self._dry_said = said
                self._tell("plan", said, data={"actions": as_json(plan)}, dry=True)
            return
        self._tell("plan", said, data={"actions": as_json(plan)})
        before = Measured.of(one for one in self._history if one.at_s > at_s - BEFORE_S)
        try:
            text, undo, took_ms = carry_out(context.hands, plan)
        except NotDone as error:
            self._failed(error, at_s)
            return
        self._cool_s = COOL_S
        self._watch.wanted_more(at_s)
        self._no_room_said = ""
        attempt = Attempt(at_s, limit, plan, before, undo, forecast)
        if context.hands.progress(plan.actions[0]) is None:
            self._attempt = attempt
        else:
            self._move = attempt
        self._tell("done", f"in {took_ms:.1f} ms: {text}", data={"took_ms": took_ms})

    def _failed(self, error: NotDone, at_s: float) -> None:
        self._not_before_s = at_s + self._cool_s
        self._cool_s = min(2 * self._cool_s, COOL_MOST_S)
        cause = error.__cause__
        if isinstance(cause, (NoRoomError, *_NO_HOST_MEMORY)):
            self.lack = NoRoom(str(cause), is_of_host=isinstance(cause, _NO_HOST_MEMORY))
        self._tell("failed", str(error))

    def _follow_move(self, move: Attempt, at_s: float) -> None:
        """Waits for a client that was asked to move. A client that does not move within MOVE_S
        stays as it is, and loses nothing.
        """
        hands, action = self._context.hands, move.plan.actions[0]
        progress = hands.progress(action) or Progress("", is_over=True)
        failed = progress.failed
        if not progress.is_over:
            if at_s - move.at_s < MOVE_S:
                return
            hands.give_up(action)
            failed = f"its client has not done it within {MOVE_S:.0f} s"
        self._move = None
        if failed:
            if not progress.is_told:
                self._failed(NotDone(f"{failed}; all is as it was"), at_s)
            return
        self._successor = progress.successor
        self._not_before_s = at_s + COOL_S
        if not progress.is_told:
            self._tell("check", progress.text, data={"successor": progress.successor})
        if progress.successor is not None and isinstance(action, Migrate):
            self._context.moves[progress.successor] = replace(move, at_s=at_s)

    def _verify(self, attempt: Attempt, at_s: float, limit: Limit) -> None:
        """Judges an attempt. One that seems not to help is judged a second time, since a busy host
        is noisy. If another limit (_ELSEWHERE) has taken over by then, there is no verdict.
        """
        since_s = at_s - attempt.at_s
        if attempt.forecast is not None:
            self._verify_use(attempt, attempt.forecast, at_s)
            return
        if since_s < CHECK_S:
            return
        settled_s = attempt.at_s + SETTLE_S
        after = Measured.of(one for one in self._history if one.at_s - one.interval_s >= settled_s)
        if attempt.before is None or after is None:
            self._attempt = None
            return
        verdict = judge(attempt.before, after)
        if verdict.helped is False and limit in _ELSEWHERE:
            verdict = Verdict(None, f"{verdict.text}; by now {limit.value} is the limit")
        if verdict.helped is False and since_s < 2 * CHECK_S:
            return
        self._attempt = None
        self._watch.reset()
        if verdict.helped is not False:
            kept = f"keep: {verdict.reason}" if verdict.reason else "keep"
        else:
            kept = "take it back" if attempt.undo else "keep: it cannot be taken back"
        data = {
            "helped": verdict.helped,
            "before": asdict(attempt.before),
            "after": asdict(after),
        }
        self._tell("check", f"{verdict.text}: {kept}", data=data)
        if verdict.helped is False:
            self._undo(attempt, at_s)

    def _verify_use(self, attempt: Attempt, forecast: Forecast, at_s: float) -> None:
        """Judges what was mapped ahead: it had to be used within some seconds."""
        since = (one for one in self._history if one.at_s > attempt.at_s)
        used = judge_use(forecast, since, at_s - attempt.at_s)
        if used is None:
            return
        self._attempt = None
        self._watch.reset()
        data = asdict(used)
        if used.is_right is not False:
            self._tell("check", f"{used.text}: keep", data=data)
            if used.is_right:
                self._ahead.was_right()
            return
        self._tell("check", f"{used.text}, so the forecast was wrong: take it back", data=data)
        bar_s = self._ahead.was_wrong(at_s)
        self._take_back(attempt, f"no forecast is acted on for {bar_s:.0f} s")

    def _undo(self, attempt: Attempt, at_s: float) -> None:
        _, bar_s = self._barred.get(attempt.limit, (0.0, BARRED_S))
        self._barred[attempt.limit] = (at_s + bar_s, min(2 * bar_s, BARRED_MOST_S))
        if attempt.undo:
            self._take_back(attempt, f"not tried again for {bar_s:.0f} s")

    def _take_back(self, attempt: Attempt, next_time: str) -> None:
        kept = take_back(self._context.hands, attempt.undo)
        how = f"not all of it: {kept}" if kept else "taken back"
        self._tell("undo", f"{how}; {next_time}")

    def _calm(self, at_s: float) -> None:
        if self._calm_since_s is None:
            self._calm_since_s = at_s
        if at_s - self._calm_since_s < CALM_S:
            return
        self.lack = None
        if self._is_degraded:
            self._is_degraded = False
            self._explained.clear()
            self._dry_said = ""
            self._tell("recovered", self._state())

    def _relax(self, seen: Seen) -> None:
        context, at_s = self._context, seen.at_s
        demand = self._watch.lasting(at_s)
        if demand is None or at_s < self._not_before_s:
            return
        plan, _ = self._ask(at_s, lambda policy: policy.relax(seen.connection, demand))
        if plan is None:
            return
        if context.is_dry:
            self._not_before_s = at_s + DRY_S
            if plan.reason != self._dry_said:
                self._dry_said = plan.reason
                self._tell("shrink", plan.reason, data={"actions": as_json(plan)}, dry=True)
            return
        try:
            text, _, took_ms = carry_out(context.hands, plan)
        except NotDone as error:
            self._failed(error, at_s)
            return
        self._watch.gave_back(at_s)
        data = {"actions": as_json(plan), "took_ms": took_ms}
        self._tell("shrink", f"{plan.reason}; {text}", data=data)

    def _state(self) -> str:
        """Returns the sessions, bandwidth, p99 and calls of the last LATELY_S, in words."""
        last_s = self._history[-1].at_s
        figures = Measured.of(one for one in self._history if one.at_s > last_s - LATELY_S)
        sessions = self._history[-1].connection.sessions
        if figures is None:
            return amount(sessions, "session")
        return (
            f"{amount(sessions, 'session')}, {rate(figures.bytes_per_s)}, "
            f"p99 {duration(figures.p99_ns)}, {amount(figures.in_flight, 'call')} in flight"
        )

    def _tell(
        self,
        kind: Kind,
        text: str,
        *,
        data: Mapping[str, Any] | None = None,
        dry: bool = False,
    ) -> None:
        self._context.events.tell(kind, text, connection=self._number, data=data, dry=dry)


def _is_short(limit: Limit) -> bool:
    return limit in (Limit.MEMORY, Limit.CREDITS)
