# SPDX-License-Identifier: BSD-2-Clause
"""How much of something a test does: what was promised, or as much of it as CI has time for."""

from __future__ import annotations

import os

IS_FULL = os.environ.get("LIVEDMA_FULL") == "1"


def at_scale(promised: int, in_ci: int) -> int:
    """`promised` with LIVEDMA_FULL=1 (`make nightly`): guests are emulated, and slow."""
    return promised if IS_FULL else in_ci
