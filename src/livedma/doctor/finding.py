"""One point that was looked at."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal

__all__ = ["Finding", "State"]

State = Literal["fine", "costs", "stops", "unknown"]


@dataclass(frozen=True)
class Finding:
    """`state`: fine; costs (it works, but `cost`); stops (no server can run); unknown (it could not
    be looked at from here).
    """

    name: str
    state: State
    text: str
    cost: str = ""
    fix: str = ""  #: the command that changes it, if there is one
    facts: dict[str, Any] = field(default_factory=dict)  #: for machines
    keep: str = ""  #: the command that makes it last, where `fix` ends with the process or the boot
    group: str = ""  #: what it belongs to: kernel, memory, …
