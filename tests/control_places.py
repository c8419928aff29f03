# SPDX-License-Identifier: BSD-2-Clause
"""Places for control sockets that a test has for itself, whatever servers run on this host."""

from __future__ import annotations

from pathlib import Path

import pytest


def own_places(monkeypatch: pytest.MonkeyPatch, below: Path) -> Path:
    """Returns the place that servers prefer, which is there and empty."""
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(below))
    monkeypatch.setattr("livedma.cli.serve.places.RUN", below / "run")
    monkeypatch.setattr("livedma.cli.serve.places.SERVICES", below / "run" / "livedma")
    monkeypatch.setattr("livedma.cli.serve.places.SHARED", below / "tmp")
    (below / "livedma").mkdir()
    return below / "livedma"
