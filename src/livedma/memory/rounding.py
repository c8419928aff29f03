# SPDX-License-Identifier: BSD-2-Clause
"""Rounds to whole units: pages, granules, cache lines."""


def up(number: int, unit: int) -> int:
    """Returns the next multiple of the unit, or the number itself if it is one."""
    return -(-number // unit) * unit
