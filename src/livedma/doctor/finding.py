"""One point that was looked at."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

__all__ = ["Finding"]


@dataclass(frozen=True)
class Finding:
    """`state`: fine; costs (it works, but `cost`); stops (no device can be opened)."""

    name: str
    state: str
    text: str
    cost: str = ""
    fix: str = ""  #: the command that changes it, if there is one
    facts: dict[str, Any] = field(default_factory=dict)  #: for machines
