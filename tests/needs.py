# SPDX-License-Identifier: BSD-2-Clause
"""The one way for a test to be skipped."""

import os

import pytest


def needs(condition: object, reason: str) -> None:
    """Skips the test unless `condition` holds; with LIVEDMA_REQUIRE=all it fails instead."""
    if condition:
        return
    if os.environ.get("LIVEDMA_REQUIRE") == "all":
        pytest.fail(f"LIVEDMA_REQUIRE=all, but {reason}", pytrace=False)
    pytest.skip(reason)
