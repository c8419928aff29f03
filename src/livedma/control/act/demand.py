# SPDX-License-Identifier: BSD-2-Clause
"""Finds the most that a connection has needed lately."""

from __future__ import annotations

from collections import deque

from livedma.control.policy.plan import Demand
from livedma.monitor.snapshot import Connection

__all__ = ["DemandWatch"]


class DemandWatch:
    """Watches what one connection needs. Only what was not needed for `patience_s` may be given
    back. Each time that memory is wanted again soon after it was given back, `patience_s` doubles,
    so that a load that comes and goes does not map and unmap the same memory.
    """

    LEAST_S, MOST_S = 5.0, 20.0

    def __init__(self) -> None:
        self.patience_s = self.LEAST_S
        self._seen: deque[tuple[float, int, int]] = deque()
        self._since_s: float | None = None
        self._given_back_s: float | None = None
        self._first_credits = 0

    def see(self, at_s: float, connection: Connection) -> None:
        inside = connection.inside
        if inside is None:
            self.reset()
            return
        if self._since_s is None:
            self._since_s = at_s
            self._first_credits = self._first_credits or inside.credits
        calls = max(connection.in_flight, inside.in_progress)
        self._seen.append((at_s, inside.buffers_taken + inside.buffers_wanted, calls))
        while self._seen[0][0] < at_s - self.patience_s:
            self._seen.popleft()

    def reset(self) -> None:
        """Forgets what was needed so far, since it no longer predicts what will be needed."""
        self._seen.clear()
        self._since_s = None

    def lasting(self, at_s: float) -> Demand | None:
        """Returns the most that was needed in the last `patience_s`. None: the connection was not
        watched for that long.
        """
        if self._since_s is None or at_s - self._since_s < self.patience_s:
            return None
        return Demand(
            max(buffers for _, buffers, _ in self._seen),
            max(calls for _, _, calls in self._seen),
            self._first_credits,
        )

    def gave_back(self, at_s: float) -> None:
        self._given_back_s = at_s
        self.reset()

    def wanted_more(self, at_s: float) -> None:
        if self._given_back_s is not None and at_s - self._given_back_s < 2 * self.patience_s:
            self.patience_s = min(2 * self.patience_s, self.MOST_S)
        self._given_back_s = None
        self.reset()
