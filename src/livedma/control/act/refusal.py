# SPDX-License-Identifier: BSD-2-Clause
"""Decides when new sessions are refused: while those that exist wait for memory in vain."""

from __future__ import annotations

from collections.abc import Sequence

from livedma.monitor.snapshot import Connection

__all__ = ["Refusal", "waiting_share"]

_BEGIN_SHARE, _END_SHARE = 0.5, 0.25  # of latency that is waiting
_BEGIN_S, _END_S = 0.5, 2.0  # that the share has to last
_FULL = 0.8  # of the credits, since some are always on their way


def waiting_share(lately: Sequence[Connection], wanted: int) -> float:
    """Returns the part of the calls' time, from 0 to 1, that they wait for a buffer or for a
    credit. `lately` is a connection in the last intervals; `wanted` is the number of calls that its
    clients would have under way.

    Calls without a credit wait at the client, where the server cannot see them.
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
    """Switches the refusal of new sessions, of one connection or of all. It switches with
    hysteresis, both in the share and in how long that has to last."""

    def __init__(self) -> None:
        self.is_on = False
        self._since_s: float | None = None  # when the share first called for a change

    def see(self, at_s: float, share: float | None) -> bool:
        """Returns whether the switch has changed. `share` is the largest waiting share among those
        that cannot get more memory; None: all can.
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
