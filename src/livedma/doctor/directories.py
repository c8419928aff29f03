"""Where a server keeps what outlives it, and where it can be asked."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from livedma.doctor.commands import livedma
from livedma.doctor.finding import Finding
from livedma.nfs.persist import default_directory

__all__ = ["directories"]


def directories(control: Path) -> Sequence[Finding]:
    """control: the directory of control sockets."""
    return [
        _directory("state", _state(), "state of clients", "serve DIR --state /tmp/livedma-state"),
        _directory(
            "control", control, "the control socket", "serve DIR --control ./livedma.control"
        ),
    ]


def _state() -> Path | None:
    try:
        return default_directory(Path("/")).parent
    except RuntimeError:  # a user without a home
        return None


def _directory(name: str, path: Path | None, purpose: str, arguments: str) -> Finding:
    is_usable = path is not None and _can_have(path)
    facts = {"path": None if path is None else str(path), "is_usable": is_usable}
    if is_usable:
        return Finding(name, "fine", f"{path} for {purpose}", facts=facts)
    text = f"{path or 'a home'} for {purpose} cannot be made or written"
    cost = f"livedma serve has to be told another place (--{name})"
    return Finding(name, "costs", text, cost, livedma(arguments), facts)


def _can_have(path: Path) -> bool:
    """Whether it is there and writable, or could be made."""
    while not os.path.lexists(path) and path != path.parent:
        path = path.parent
    return path.is_dir() and os.access(path, os.W_OK | os.X_OK)
