# SPDX-License-Identifier: BSD-2-Clause
"""Holds what the cases of all connections share: the policy, the hands, the bounds."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from livedma.control.act.attempt import Attempt
from livedma.control.act.hands import Hands
from livedma.control.events import Events
from livedma.control.faults import Faults
from livedma.control.policy.plan import Policy, Room

__all__ = ["CaseContext"]


@dataclass(slots=True)
class CaseContext:
    """Holds what all cases share and act with. The policy and `ahead_s` may change at any time: a
    forecast is acted on so long before buffers run out; 0: never.
    """

    policy: Policy
    hands: Hands
    events: Events
    faults: Faults
    room: Callable[[], Room]
    is_dry: bool = False
    ahead_s: float = 0.0
    moves: dict[int, Attempt] = field(default_factory=dict)  # moves, by the connection moved to
