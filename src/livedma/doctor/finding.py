# SPDX-License-Identifier: BSD-2-Clause
"""Describes one finding of the doctor."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal

__all__ = ["Finding", "State"]

State = Literal["fine", "costs", "stops", "unknown"]


@dataclass(frozen=True)
class Finding:
    """Reports one point. `state`: fine; costs (it works, but `cost`); stops (no server can run);
    unknown (this process could not look at it)."""

    name: str
    state: State
    text: str
    cost: str = ""
    fix: str = ""  #: the command that changes it, if there is one that harms no other user
    facts: dict[str, Any] = field(default_factory=dict)  #: for machines
    keep: str = ""  #: the command that makes it last, if `fix` ends with the process or the boot
    look: str = ""  #: a command that only shows more, if a person has to decide what to do
    group: str = ""  #: its group: kernel, memory, …
