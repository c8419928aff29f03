"""Whether new sessions are refused: while there is no memory for those that are there."""

from __future__ import annotations

from collections.abc import Sequence

from livedma.monitor.snapshot import Connection

__all__ = ["Refusal", "waiting_share"]

_BEGIN_SHARE, _END_SHARE = 0.5, 0.25  # of latency that is waiting
_BEGIN_S, _END_S = 0.5, 2.0  # for so long
_FULL = 0.8  # of the credits: some are always on their way


def waiting_share(lately: Sequence[Connection], wanted: int) -> float:
    """Of the time that calls take, how much is waiting for a buffer or for a credit. lately: a
    connection in the last intervals. wanted: calls that its clients would have under way.

    Calls for which there is no credit wait at the client, where the server does not see it.
    """
    took_ns = sum(one.latency.sum_ns for one in lately)
    waited_ns = sum(one.inside.memory_waits.sum_ns for one in lately if one.inside is not None)
    here = waited_ns / took_ns if took_ns else 0.0
    granted = lately[-1].credits_granted
    in_flight = sum(one.in_flight for one in lately) / len(lately)
    is_full = 0 < _FULL * granted <= in_flight
    there = 1 - granted / wanted if is_full and wanted > granted else 0.0
    return min(here + (1 - here) * there, 1.0)


class Refusal:
    """A switch with hysteresis, in time and in how bad it has to be."""

    def __init__(self) -> None:
        self.is_on = False
        self._since_s: float | None = None  # that it should be otherwise

    def see(self, at_s: float, share: float | None) -> bool:
        """share: the largest of those connections that can have no more memory; None: all can.

        Whether it has changed.
        """
        threshold = _END_SHARE if self.is_on else _BEGIN_SHARE
        should_be_on = share is not None and share >= threshold
        if should_be_on == self.is_on:
            self._since_s = None
            return False
        if self._since_s is None:
            self._since_s = at_s
        if at_s - self._since_s < (_END_S if self.is_on else _BEGIN_S):
            return False
        self.is_on, self._since_s = should_be_on, None
        return True
