# SPDX-License-Identifier: BSD-2-Clause
"""Formats the doctor's findings for people."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator

from livedma.cli.paint import Paint
from livedma.doctor import GROUPS, Finding, Report

__all__ = ["page", "verdict"]

_INDENT = 26  # columns of state and name
_WIDEST = 100
_COLORS = {"fine": "32", "costs": "33", "stops": "31", "unknown": "36", "title": "1"}


def page(report: Report, *, costs_only: bool = False) -> str:
    """Returns the findings by group, then what to do. Commands stay unwrapped: people copy them."""
    painter = _Painter()
    lines: list[str] = []
    for group in GROUPS:
        found = [one for one in report.findings if one.group == group]
        shown = [one for one in found if not costs_only or one.state != "fine"]
        if shown:
            lines += [painter.paint("title", group), *_group(shown, painter), ""]
    return "\n".join([*lines, *_summary(report)])


def _group(findings: list[Finding], painter: _Painter) -> Iterator[str]:
    for finding in findings:
        yield from _finding(finding, painter)


def _finding(finding: Finding, painter: _Painter) -> Iterator[str]:
    head = f"  {finding.state:7}  {finding.name:14} "
    first, *more = painter.wrap(finding.text, head)
    yield first.replace(finding.state, painter.paint(finding.state, finding.state), 1)
    yield from more
    if finding.cost:
        yield from painter.wrap(finding.cost, f"{'':{_INDENT}}cost  ")
    if finding.fix:
        yield f"{'':{_INDENT}}fix   {finding.fix}"
    if finding.keep:
        yield f"{'':{_INDENT}}keep  {finding.keep}"
    if finding.look:
        yield f"{'':{_INDENT}}look  {finding.look}"


class _Painter:
    """Colours text on a terminal unless NO_COLOR is set. Colours only repeat what words say."""

    def __init__(self) -> None:
        paint = Paint.on_output()
        self._has_colors, self._width = paint.has_colors, min(paint.width, _WIDEST)

    def paint(self, what: str, text: str) -> str:
        return f"\x1b[{_COLORS[what]}m{text}\x1b[0m" if self._has_colors else text

    def wrap(self, text: str, first: str) -> list[str]:
        return textwrap.wrap(
            text,
            max(self._width, 2 * _INDENT),
            initial_indent=first,
            subsequent_indent=" " * len(first),
            break_long_words=False,
            break_on_hyphens=False,
        ) or [first.rstrip()]


def _summary(report: Report) -> Iterator[str]:
    """Yields the counts and what to do next; the last line says whether the server can run."""
    counts = {
        state: sum(one.state == state for one in report.findings)
        for state in ("fine", "costs", "stops", "unknown")
    }
    parts = [f"{counts['fine']} fine", f"{counts['costs']} cost something"]
    if counts["stops"]:
        parts.append(f"{counts['stops']} stop the server")
    if counts["unknown"]:
        parts.append(f"{counts['unknown']} could not be seen from here")
    yield f"{', '.join(parts)}."
    yield _next(report)
    yield verdict(report)


def _next(report: Report) -> str:
    if not report.can_run:
        fixes = [one.fix or one.look for one in report.findings if one.name == "address"]
        return f"Next: {next(filter(None, fixes), 'ip address')}, and look again."
    if any(one.fix for one in report.findings):
        return "Next: each 'fix' is a command to copy; 'keep' makes it last; 'look' only shows."
    return "Next: livedma serve DIR, or livedma demo."


def verdict(report: Report) -> str:
    """Returns one sentence: whether `livedma serve` can run here, and at which addresses."""
    free = report.free_addresses
    tried = [one for one in report.findings if one.name == "address" and "address" in one.facts]
    if not report.can_run:
        why = "its ports are taken at each address" if tried else "there is no address"
        return f"livedma serve cannot run here: {why}."
    if len(free) < len(tried):
        return f"livedma serve can run here, not at every address: --listen {free[0]}"
    return f"livedma serve can run here: {', '.join(free[:4])}{', …' if free[4:] else ''}."
