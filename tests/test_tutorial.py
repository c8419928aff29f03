"""The tutorial, from its first command to its last, on a machine of its own."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from documents import DOCS, Page
from livedma.lab.guest import Lab
from needs import needs
from terminals import furnish, machine, play

pytestmark = pytest.mark.slow


def test_every_command(guests: Lab, tmp_path: Path) -> None:
    """guests: their image is there, then, and the tutorial's own come from a snapshot."""
    needs(os.geteuid() == 0, "a machine of its own needs root")
    needs(shutil.which("curl"), "curl is not installed")
    furnish(tmp_path)
    # `make demo` as it stands, but for how long its ramps take.
    with machine(OPTIONS="--seconds 4") as here:
        assert play(Page(DOCS / "tutorial.md"), here, tmp_path) >= 15
