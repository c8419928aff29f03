# SPDX-License-Identifier: BSD-2-Clause
"""librdmacm's rping, as guests run it."""

from __future__ import annotations

import subprocess

__all__ = ["assert_ended_well"]


def assert_ended_well(rping: subprocess.CompletedProcess[str]) -> None:
    """When all is done, rping closes a channel that its thread may still read: then it says so and
    has another status."""
    if "rdma_get_cm_event: Bad file descriptor" not in rping.stderr:
        assert rping.returncode == 0, rping.stderr
