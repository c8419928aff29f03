# SPDX-License-Identifier: BSD-2-Clause
"""Carries out a plan as a whole or not at all, and keeps what is needed to judge and undo it."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from livedma.control.act.effect import Measured
from livedma.control.act.hands import Hands, Outcome
from livedma.control.diagnose.forecast import Forecast
from livedma.control.diagnose.limits import Limit
from livedma.control.faults import described
from livedma.control.policy.plan import Action, Plan

__all__ = ["Attempt", "NotDone", "as_json", "carry_out", "take_back"]


class NotDone(Exception):
    """Reports that a plan was not carried out. str() says why, and what is left of the plan;
    __cause__ is what was raised.
    """


@dataclass(frozen=True, slots=True)
class Attempt:
    """Records a plan that was carried out at `at_s`, because of a limit, or of a forecast that this
    will be the limit. `before` holds the figures from before it; None: there were none. `undo`
    takes it back.
    """

    at_s: float
    limit: Limit
    plan: Plan
    before: Measured | None
    undo: tuple[Action, ...]
    forecast: Forecast | None = None


def carry_out(hands: Hands, plan: Plan) -> tuple[str, tuple[Action, ...], float]:
    """Returns what was done, what takes it back, and how many milliseconds it took. If an action
    fails, takes the ones before it back and raises NotDone.
    """
    began_s = time.perf_counter()
    done: list[Outcome] = []
    for action in plan.actions:
        try:
            done.append(hands.carry_out(action))
        except Exception as error:
            kept = take_back(hands, _undoing(done))
            text = (
                f"{described(error)}; all is as it was"
                if not kept
                else f"{described(error)}; {kept}"
            )
            raise NotDone(text) from error
    text = _summary([one.text for one in done])
    return text, _undoing(done), (time.perf_counter() - began_s) * 1e3


def take_back(hands: Hands, actions: Sequence[Action]) -> str:
    """Carries out as many of the actions as it can. Returns in words which failed; empty: none."""
    kept = []
    for action in actions:
        try:
            hands.carry_out(action)
        except Exception as error:
            kept.append(f"{type(action).__name__} could not be done ({described(error)})")
    return _summary(kept)


def as_json(plan: Plan) -> list[dict[str, Any]]:
    return [action_as_json(one) for one in plan.actions]


def action_as_json(action: Action) -> dict[str, Any]:
    return {"action": type(action).__name__, **asdict(action)}


def _undoing(done: Sequence[Outcome]) -> tuple[Action, ...]:
    """Returns what takes all of it back, the last action first."""
    return tuple(action for one in reversed(done) for action in one.undo)


def _summary(texts: Sequence[str]) -> str:
    """Names the first three and counts the rest: an action may change a thousand sessions."""
    more = f", and {len(texts) - 3} more" if len(texts) > 3 else ""
    return "; ".join(texts[:3]) + more
