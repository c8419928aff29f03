# SPDX-License-Identifier: BSD-2-Clause
"""Checks the places for a server's state and for its control socket."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from livedma.doctor.commands import livedma
from livedma.doctor.finding import Finding
from livedma.nfs.server.persist import default_directory

__all__ = ["directories"]


def directories(control: Path) -> Sequence[Finding]:
    """Checks the directories. control: the directory of control sockets."""
    return [
        _directory(
            "state",
            default_directory(Path("/")).parent,
            "state of clients",
            "serve DIR --state ./livedma.state",
        ),
        _directory(
            "control", control, "the control socket", "serve DIR --control ./livedma.control"
        ),
    ]


def _directory(name: str, path: Path, purpose: str, arguments: str) -> Finding:
    is_usable = _can_have(path)
    facts = {"path": str(path), "is_usable": is_usable}
    if is_usable:
        return Finding(name, "fine", f"{path} for {purpose}", facts=facts)
    text = f"{path} for {purpose} cannot be made or written"
    cost = f"livedma serve has to be told another place (--{name})"
    return Finding(name, "costs", text, cost, livedma(arguments), facts)


def _can_have(path: Path) -> bool:
    """Returns whether it is there and writable, or could be made."""
    while not os.path.lexists(path) and path != path.parent:
        path = path.parent
    return path.is_dir() and os.access(path, os.W_OK | os.X_OK)
