# SPDX-License-Identifier: BSD-2-Clause
"""Says what an operation did to the change attribute of a directory."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["ChangeInfo"]


@dataclass(frozen=True, slots=True)
class ChangeInfo:
    """Holds change_info4. It is never atomic: local users may change the directory in between."""

    before: int
    after: int
