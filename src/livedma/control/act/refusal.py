# SPDX-License-Identifier: BSD-2-Clause
"""Decides when new sessions are refused: while those that exist wait for memory in vain."""

from __future__ import annotations

__all__ = ["Refusal"]

_BEGIN_SHARE, _END_SHARE = 0.5, 0.25  # of latency that is waiting
_BEGIN_S, _END_S = 0.5, 2.0  # that the share has to last


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
