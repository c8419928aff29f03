# SPDX-License-Identifier: BSD-2-Clause
class Latency:
    """Counts times in nanoseconds."""

    def add(self, ns: int) -> None:
        """Counts one time."""
    def merge(self, other: Latency) -> None:
        """Adds all times of another histogram."""
    def clear(self) -> None:
        """Forgets all times."""
    def quantile_ns(self, part: float) -> int:
        """Returns the time within which that part of all ended: 0.99 is 99 of 100."""
    @property
    def count(self) -> int:
        """Counts the times."""
    @property
    def sum_ns(self) -> int:
        """Is the sum of the times."""
    @property
    def min_ns(self) -> int:
        """Is the shortest time."""
    @property
    def max_ns(self) -> int:
        """Is the longest time."""
