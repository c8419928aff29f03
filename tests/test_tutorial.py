# SPDX-License-Identifier: BSD-2-Clause
"""The tutorial, from its first command to its last, on a machine of its own."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from documents import DOCS, Page
from livedma.lab.guest import Lab
from needs import needs
from terminals import played

pytestmark = pytest.mark.slow


PAGE = Page(DOCS / "tutorial.md")
SHORT = "--seconds 4"  # `make demo` as it stands, but for how long its ramps take


def test_every_command(guests: Lab, tmp_path: Path) -> None:
    """guests: their image is there, then, and the tutorial's own come from a snapshot."""
    needs(shutil.which("curl"), "curl is not installed")
    assert played(PAGE, tmp_path, OPTIONS=SHORT) >= 15


@pytest.mark.apart
def test_what_a_plain_user_can_do(tmp_path: Path) -> None:
    needs(shutil.which("curl"), "curl is not installed")
    assert played(PAGE, tmp_path, "nobody", OPTIONS=SHORT) >= 8
