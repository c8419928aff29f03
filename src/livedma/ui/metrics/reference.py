# SPDX-License-Identifier: BSD-2-Clause
"""Writes the table of all metrics in docs/metrics.md.

python -m livedma.ui.metrics.reference docs/metrics.md    writes it anew
"""

from __future__ import annotations

import sys
from collections.abc import Iterable
from pathlib import Path

from livedma.ui.metrics.families import FAMILIES, Definition

__all__ = ["table", "with_table"]

_BEGIN, _END = "<!-- all metrics: begin -->", "<!-- all metrics: end -->"


def table(families: Iterable[Definition] = FAMILIES) -> str:
    rows = ["| metric | kind | labels | what it says |", "|---|---|---|---|", *map(_row, families)]
    return "\n".join(rows)


def _row(one: Definition) -> str:
    labels = ", ".join(f"`{label}`" for label in one.labels)
    return f"| `{one.full_name}` | {one.kind} | {labels} | {one.text} |"


def with_table(text: str, families: Iterable[Definition] = FAMILIES) -> str:
    """Returns a page with the present table in it."""
    before, begin, rest = text.partition(_BEGIN)
    _, end, after = rest.partition(_END)
    if not begin or not end:
        raise ValueError(f"the page has no {_BEGIN} and {_END}")
    return f"{before}{_BEGIN}\n{table(families)}\n{_END}{after}"


if __name__ == "__main__":
    page = Path(sys.argv[1])
    page.write_text(with_table(page.read_text()))
