# SPDX-License-Identifier: BSD-2-Clause
"""Finds the policies by name."""

from __future__ import annotations

from livedma.control.policy.extend import ExtendPolicy
from livedma.control.policy.migrate import MigratePolicy
from livedma.control.policy.plan import Policy
from livedma.control.policy.spread import SpreadPolicy
from livedma.control.policy.static import StaticPolicy
from livedma.errors import LivedmaError

__all__ = ["DEFAULT", "NAMES", "by_name"]

_POLICIES: tuple[Policy, ...] = (StaticPolicy(), ExtendPolicy(), SpreadPolicy(), MigratePolicy())
NAMES = tuple(policy.name for policy in _POLICIES)
DEFAULT = ExtendPolicy.name


def by_name(name: str) -> Policy:
    for policy in _POLICIES:
        if policy.name == name:
            return policy
    raise LivedmaError(f"there is no policy {name!r}: one of {', '.join(NAMES)}")
