# SPDX-License-Identifier: BSD-2-Clause
"""Decides for one connection which forecasts are acted on, and judges afterwards whether they were
right. A wrong one makes it more careful.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from livedma.control.act.effect import Seen
from livedma.control.diagnose.forecast import Forecast, needed_buffers
from livedma.control.words import duration
from livedma.wire.words import amount

__all__ = ["AHEAD_S", "Ahead", "Used", "judge_use"]

AHEAD_S = 0.8  # before buffers run out: to map, with time for a step that is delayed
USED_S = 4.0  # within this, what was mapped ahead has to be used
_SURE = 2  # forecasts in a row
_BARRED_S, _BARRED_MOST_S = 60.0, 600.0  # before the next forecast is acted on, after a wrong one


class Ahead:
    """Takes each forecast of a connection, in order."""

    def __init__(self) -> None:
        self._times = 0
        self._not_before_s = 0.0
        self._bar_s = _BARRED_S

    def see(self, forecast: Forecast | None, at_s: float, ahead_s: float) -> bool:
        """Returns whether to act on the forecast now: it says for the second time in a row that
        buffers run out within `ahead_s`. 0: forecasts are not acted on.
        """
        is_near = forecast is not None and ahead_s > 0 and forecast.full_s <= ahead_s
        self._times = self._times + 1 if is_near else 0
        return self._times >= _SURE and at_s >= self._not_before_s

    def was_right(self) -> None:
        self._bar_s = _BARRED_S

    def was_wrong(self, at_s: float) -> float:
        """Returns for how many seconds no forecast is acted on; the next time for twice as long."""
        bar_s = self._bar_s
        self._not_before_s = at_s + bar_s
        self._bar_s = min(2 * bar_s, _BARRED_MOST_S)
        return bar_s


@dataclass(frozen=True, slots=True)
class Used:
    """Says whether memory that was mapped ahead has been used. `is_right` is None if nearly all of
    the earlier buffers were needed: the forecast was right as far as it can be known.
    """

    is_right: bool | None
    text: str
    needed: int
    waits: int


def judge_use(forecast: Forecast, since: Iterable[Seen], after_s: float) -> Used | None:
    """Judges a step that was made because of a forecast, from all intervals since. None: it is too
    early.
    """
    seen = list(since)
    needed = max((needed_buffers(one.connection) for one in seen), default=0)
    waits = sum(
        one.connection.inside.memory_waits.count
        for one in seen
        if one.connection.inside is not None
    )
    is_used = needed > forecast.buffers
    if not is_used and after_s < USED_S:
        return None
    waited = f"{amount(waits, 'call')} had to wait" if waits else "no call had to wait"
    took = duration(after_s * 1e9)
    if is_used:
        text = f"{needed} buffers are needed after {took}, {forecast.buffers} were there; {waited}"
        return Used(True, text, needed, waits)
    text = f"{needed} of the earlier {forecast.buffers} buffers were needed in {took}; {waited}"
    is_near = needed + forecast.spread >= forecast.buffers
    return Used(None if is_near else False, text, needed, waits)
