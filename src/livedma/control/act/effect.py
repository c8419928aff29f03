"""Whether what was done helped: figures before and after it, and a verdict."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from livedma.control.words import change, duration
from livedma.monitor.snapshot import Connection

__all__ = ["Measured", "Seen", "Verdict", "judge"]

_MORE_OPERATIONS = 0.05  # that count as a gain
_LESS_MEAN = 0.05
_LESS_P99 = 0.10
_LESS_WAITING = 0.5
_SAME_STORAGE = 1.05
_LOAD_GONE = 0.5


@dataclass(frozen=True, slots=True)
class Seen:
    """A connection in an interval. at_s: the interval's end."""

    at_s: float
    interval_s: float
    connection: Connection


@dataclass(frozen=True, slots=True)
class Measured:
    """Of several intervals together; p99_ns: the mean of theirs, by operations."""

    operations_per_s: float
    bytes_per_s: float
    mean_ns: float
    p99_ns: float
    waited_ns: float  # for memory, by an operation in the mean
    storage_ns: float
    in_flight: float
    mapped_bytes: int

    @classmethod
    def of(cls, several: Iterable[Seen]) -> Measured | None:
        """None: nothing was seen."""
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
    """helped: None where it cannot be told, since the load went away."""

    helped: bool | None
    text: str


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
    helped = (
        after.operations_per_s >= (1 + _MORE_OPERATIONS) * before.operations_per_s
        or after.mean_ns <= (1 - _LESS_MEAN) * before.mean_ns
        or after.p99_ns <= (1 - _LESS_P99) * before.p99_ns
        or _is_waiting_gone(before, after)
    )
    return Verdict(helped, text)


def _is_waiting_gone(before: Measured, after: Measured) -> bool:
    """And not only moved into the store. Where little was missing, that is all there is to gain."""
    less = before.waited_ns - after.waited_ns
    if less <= 0 or less < _LESS_WAITING * before.waited_ns:
        return False
    longer = after.storage_ns - before.storage_ns
    return longer < less / 2 or after.storage_ns <= _SAME_STORAGE * before.storage_ns
