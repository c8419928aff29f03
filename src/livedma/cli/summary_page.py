# SPDX-License-Identifier: BSD-2-Clause
"""Formats the summary of a capture for a terminal."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from livedma.cli.paint import Paint
from livedma.wire.summary import render

__all__ = ["page"]

_LABEL = 18  # columns of the label that begins a line of a block
_CELLS = 16
_WIDEST = 120
_GRAVE = ("broken off", "exhausted", "gave up", "for good", "never acknowledged", "wrong ICRC")


def page(summary: dict[str, Any], paint: Paint) -> str:
    """Returns the text of `render`; on a terminal, with colours and each connection's share."""
    text = render(summary)
    if not paint.is_terminal:
        return text
    *blocks, total = text.rstrip("\n").split("\n\n")
    whole = max(summary["bytes"], 1)
    found = [
        "\n".join(_block(block, connection["bytes"] / whole, paint))
        for block, connection in zip(blocks, summary["connections"], strict=True)
    ]
    color = "red" if summary["errors"] or summary["icrc_errors"] else "bold"
    ending = "\n".join(paint.color(color, line) for line in paint.wrapped(total, most=_WIDEST))
    return "\n\n".join([*found, ending]) + "\n"


def _block(block: str, share: float, paint: Paint) -> Iterator[str]:
    head, *rows = block.splitlines()
    yield paint.bold(head)
    for row in rows:
        label, text = row[:_LABEL], row[_LABEL:]
        name = label.strip()
        color = _verdict_color(text) if name == "verdict" else ""
        yield from paint.wrapped(
            text, label, first_color=_label_color(name), color=color, most=_WIDEST
        )
        if name == "traffic" and share < 1:
            bar = paint.bar([share], _CELLS, "blue")
            yield f"{'':{_LABEL}}{bar} {share:.0%} of all bytes"


def _label_color(name: str) -> str:
    return "amber" if name in ("NAKs", "packets") else "dim"


def _verdict_color(text: str) -> str:
    if any(words in text for words in _GRAVE):
        return "red"
    if text.startswith("datagrams: "):
        return ""
    return "green" if "nothing lost" in text else "amber"
