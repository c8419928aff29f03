# SPDX-License-Identifier: BSD-2-Clause
"""Judges whether an action helped, from the figures before and after it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from livedma.control.words import change, duration
from livedma.monitor.snapshot import Connection

__all__ = ["Measured", "Seen", "Verdict", "judge"]

_MORE_OPERATIONS = 0.05  # that count as a gain
_LESS_MEAN = 0.05
_LESS_P99 = 0.10
_LESS_WAITING = 0.5
_HARDLY = 0.1  # of the waiting before
_MORE_CALLS = 0.1  # in flight: the clients ask for more
_SAME_STORAGE = 1.05
_LOAD_GONE = 0.5


@dataclass(frozen=True, slots=True)
class Seen:
    """Shows a connection in an interval that ended at `at_s`."""

    at_s: float
    interval_s: float
    connection: Connection


@dataclass(frozen=True, slots=True)
class Measured:
    """Holds the figures of several intervals together. `p99_ns` is the mean of theirs, weighted by
    the calls that were timed.
    """

    operations_per_s: float
    bytes_per_s: float
    mean_ns: float
    p99_ns: float
    waited_ns: float  # for memory, per operation on average
    storage_ns: float
    in_flight: float
    mapped_bytes: int

    @classmethod
    def of(cls, several: Iterable[Seen]) -> Measured | None:
        """Adds the intervals up. None: there are none, or they have no length."""
        seen = list(several)
        seconds = sum(one.interval_s for one in seen)
        if not seconds:
            return None
        connections = [one.connection for one in seen]
        timed = sum(one.latency.count for one in connections)
        operations = sum(one.operations for one in connections)
        inside = [one.inside for one in connections if one.inside is not None]
        return cls(
            operations / seconds,
            sum(one.bytes for one in connections) / seconds,
            sum(one.latency.sum_ns for one in connections) / max(timed, 1),
            sum(one.latency.p99_ns * one.latency.count for one in connections) / max(timed, 1),
            sum(one.memory_waits.sum_ns for one in inside) / max(operations, 1),
            sum(one.storage.sum_ns for one in inside) / max(operations, 1),
            sum(one.in_flight for one in connections) / len(connections),
            inside[-1].mapped_bytes if inside else 0,
        )


@dataclass(frozen=True, slots=True)
class Verdict:
    """Says whether an action helped. `helped` is None where that cannot be told, for example
    because the load went away. `text` holds the figures; `reason` says why it helped where they do
    not show it.
    """

    helped: bool | None
    text: str
    reason: str = ""


def judge(before: Measured, after: Measured) -> Verdict:
    text = (
        f"p99 {duration(before.p99_ns)} -> {duration(after.p99_ns)}, "
        f"bandwidth {change(before.bytes_per_s, after.bytes_per_s)}"
    )
    if (
        after.operations_per_s < _LOAD_GONE * before.operations_per_s
        and after.in_flight < _LOAD_GONE * before.in_flight
    ):
        return Verdict(None, f"{text}; the load has gone meanwhile")
    if (
        _grew(before.bytes_per_s, after.bytes_per_s, _MORE_OPERATIONS)
        or after.p99_ns <= (1 - _LESS_P99) * before.p99_ns
    ):
        return Verdict(True, text)
    reasons = list(_hidden_gains(before, after))
    if not reasons or _is_worse(before, after):
        return Verdict(False, text)
    if _grew(before.in_flight, after.in_flight, _MORE_CALLS):
        reasons.append(f"calls in flight {before.in_flight:.0f} -> {after.in_flight:.0f}")
    return Verdict(True, text, ", ".join(reasons))


def _hidden_gains(before: Measured, after: Measured) -> Iterator[str]:
    """Yields in words what got better besides p99 and bandwidth."""
    if _grew(before.operations_per_s, after.operations_per_s, _MORE_OPERATIONS):
        yield f"operations {change(before.operations_per_s, after.operations_per_s)}"
    if after.mean_ns <= (1 - _LESS_MEAN) * before.mean_ns:
        yield f"mean {duration(before.mean_ns)} -> {duration(after.mean_ns)}"
    if _is_waiting_gone(before, after):
        how = "hardly wait" if after.waited_ns <= _HARDLY * before.waited_ns else "wait less"
        waits = f"{duration(before.waited_ns)} -> {duration(after.waited_ns)}"
        yield f"requests {how} for DMA memory ({waits})"


def _is_worse(before: Measured, after: Measured) -> bool:
    """Returns whether p99 and bandwidth, the two figures that people look at, both got worse while
    the clients asked for no more. Then users lose, whatever else got better.
    """
    return (
        after.p99_ns >= (1 + _LESS_P99) * before.p99_ns
        and after.bytes_per_s <= (1 - _LESS_MEAN) * before.bytes_per_s
        and not _grew(before.in_flight, after.in_flight, _MORE_CALLS)
    )


def _grew(before: float, after: float, part: float) -> bool:
    return after >= (1 + part) * before


def _is_waiting_gone(before: Measured, after: Measured) -> bool:
    """Returns whether requests wait less for memory, and do not wait in the store instead. Where
    little memory was missing, that is all there is to gain.
    """
    less = before.waited_ns - after.waited_ns
    if less <= 0 or less < _LESS_WAITING * before.waited_ns:
        return False
    longer = after.storage_ns - before.storage_ns
    return longer < less / 2 or after.storage_ns <= _SAME_STORAGE * before.storage_ns
