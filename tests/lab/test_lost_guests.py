# SPDX-License-Identifier: BSD-2-Clause
"""A guest that dies costs the run neither the test in which it died nor those behind it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from needs import needs

HERE = Path(__file__).parent
LIMIT_S = 600

pytestmark = [pytest.mark.slow, pytest.mark.apart]


def test_lost_guests_are_replaced() -> None:
    needs(os.geteuid() == 0, "guests and their network need root")
    argv = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "-v"]
    done = subprocess.run(
        [*argv, HERE / "losing_guests.py"],
        cwd=HERE.parents[1],
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
    )
    said = done.stdout
    for name, outcome in (
        ("test_that_loses_its_guest_once", "PASSED"),
        ("test_that_has_the_new_one", "PASSED"),
        ("test_that_loses_each", "FAILED"),
        ("test_that_fails_with_its_guests_alive", "FAILED"),
    ):
        assert f"::{name} {outcome}" in said, said
    again = [line for line in said.splitlines() if line.startswith("ran again with new guests: ")]
    assert len(again) == 2, said
    assert "test_that_loses_its_guest_once" in again[0] and "sysrq triggered crash" in again[0]
