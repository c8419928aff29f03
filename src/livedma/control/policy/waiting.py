# SPDX-License-Identifier: BSD-2-Clause
"""Computes how much of their time calls wait, at the server and where it cannot see them."""

from __future__ import annotations

from collections.abc import Sequence

from livedma.monitor.snapshot import Connection

__all__ = ["waiting_share"]

_FULL = 0.8  # of the credits, since some are always on their way


def waiting_share(lately: Sequence[Connection], wanted: int) -> float:
    """Returns the part of the calls' time, from 0 to 1, that they wait for a buffer or for a
    credit. `lately` is a connection in the last intervals; `wanted` is the number of calls that its
    clients would have under way.

    Calls without a credit wait at the client, where the server cannot see them.
    """
    took_ns = sum(one.latency.sum_ns for one in lately)
    waited_ns = sum(one.inside.memory_waits.sum_ns for one in lately if one.inside is not None)
    here = waited_ns / took_ns if took_ns else 0.0
    granted = lately[-1].credits_granted
    in_flight = sum(one.in_flight for one in lately) / len(lately)
    is_full = 0 < _FULL * granted <= in_flight
    there = 1 - granted / wanted if is_full and wanted > granted else 0.0
    return min(here + (1 - here) * there, 1.0)
