# SPDX-License-Identifier: BSD-2-Clause
"""Chooses the colours for decisions of a server and for levels of its log."""

from __future__ import annotations

__all__ = ["event_color"]

_COLORS = {
    "degraded": "red",
    "failed": "red",
    "refuse": "red",
    "critical": "red",
    "error": "red",
    "why": "amber",
    "undo": "amber",
    "warning": "amber",
    "forecast": "blue",
    "plan": "blue",
    "shrink": "blue",
    "done": "green",
    "recovered": "green",
    "admit": "green",
}


def event_color(kind: str, text: str = "") -> str:
    """Returns a colour. kind: of an event, or a level. text: a check's, which says how it ended."""
    if kind == "check":
        return "green" if text.endswith("keep") else "amber" if text.endswith("back") else "dim"
    return _COLORS.get(kind, "dim")
