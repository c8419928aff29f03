"""Whole units: of pages, granules, cache lines."""


def up(number: int, unit: int) -> int:
    """The next multiple of the unit, or the number itself if it is one."""
    return -(-number // unit) * unit
