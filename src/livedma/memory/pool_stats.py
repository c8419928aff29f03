# SPDX-License-Identifier: BSD-2-Clause
"""Describes a pool at one moment, for people and for controllers."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Waits:
    """Says how long waiters waited for a buffer, whether or not they got one."""

    count: int
    sum_ns: int
    max_ns: int
    #: (least time of the bucket, waits in it): eight to each power of two, without the empty ones
    buckets: tuple[tuple[int, int], ...]

    @property
    def mean_ns(self) -> float:
        return self.sum_ns / self.count if self.count else 0.0

    def quantile_ns(self, fraction: float) -> int:
        """Returns the time within which that fraction of the waits was over, rounded down by an
        eighth at most.
        """
        rank = fraction * self.count
        for least_ns, count in self.buckets:
            rank -= count
            if rank <= 0:
                return least_ns
        return self.max_ns


@dataclass(frozen=True)
class ClassStats:
    """Describes the buffers for data, or those for control."""

    taken: int
    waiting: int
    oldest_ns: int  #: how long the first in the queue has waited by now; 0 if there is none
    takes: int  #: so far
    gave_up: int  #: waits in vain, so far
    waits: Waits


@dataclass(frozen=True)
class PoolStats:
    shards: int
    idle_shards: int  #: shards of which no buffer is taken
    buffers: int
    free: int
    mapped_bytes: int  #: of all shards
    returns: int
    refused: int  #: returns of what was not taken
    shards_added: int
    shards_removed: int
    data: ClassStats
    control: ClassStats

    @property
    def taken(self) -> int:
        return self.data.taken + self.control.taken

    @property
    def waiting(self) -> int:
        return self.data.waiting + self.control.waiting
