"""What the last snapshots say of one connection, in the figures that a diagnosis is made of.

Times become numbers by Little's law: calls that together spent 2 s waiting in an interval of 0.1 s
were 20 at a time. So waits of all kinds can be compared with each other and with what there is of
buffers, credits and slots.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from livedma.monitor.snapshot import Connection, Inside, Session, Snapshot

__all__ = ["Figures", "History", "Memory", "Store", "is_short_of_slots"]

_ENOUGH = 32  # operations: with fewer, older snapshots are looked at as well
_LONGEST_S = 2.0  # but none older than this
_LATELY_S = 1.8
_KEPT = 64
_OFTEN = 0.2  # of the accesses found no buffer at first
_ALL, _MANY = 0.9, 0.6  # of the credits
_SHORT_OF_SLOTS = 0.6  # of its slots in use all the time


@dataclass(frozen=True, slots=True)
class Store:
    """The store, as one connection uses it."""

    accesses_per_s: float
    inside: float  #: accesses in it, on average
    time_s: float  #: of an access, its time in the queue included
    queued: float  #: of those that are in it: not begun

    @property
    def served(self) -> float:
        return self.inside - self.queued

    @property
    def queued_part(self) -> float:
        return self.queued / self.inside if self.inside else 0.0


@dataclass(frozen=True, slots=True)
class Memory:
    """The data buffers of a connection."""

    waiting: float  #: calls that wait for one, on average
    wanted: float  #: the same, by who waited when it was looked at
    wait_s: float  #: of those who waited
    taken: float
    is_starved: bool  #: often all are taken, and some are wanted


@dataclass(frozen=True, slots=True)
class Figures:
    """Averages over `span_s`. Without a time in their names, numbers are of calls at a time."""

    connection: Connection
    span_s: float
    operations_per_s: float
    bytes_per_s: float
    latency_s: float
    p99_s: float
    in_progress: float
    credits_used: float  #: of those granted: 0 to 1
    slots_used: int  #: of all sessions, by the most that each has used at a time
    sent_again: float  #: how often something was, or was refused, for each call
    stalled: float  #: part of the time that nothing was done, with calls or data under way
    cpu_busy: float | None
    slots_short: float  #: part of the calls in progress that are of sessions short of slots
    sessions_short: int
    # What only the server knows; zero where it is not asked.
    store: Store
    memory: Memory
    send_stalled: float  #: part of the time that the send queue had no room

    @property
    def knows_inside(self) -> bool:
        return self.connection.inside is not None

    @property
    def has_all_credits_used(self) -> bool:
        """Credits of calls and replies on their way are in use, too, but the server cannot see it;
        sessions that together use more than there are at a time must wait for each other.
        """
        is_exceeded = self.slots_used > self.connection.credits_granted
        return self.credits_used >= (_MANY if is_exceeded else _ALL)

    @property
    def wants_credits(self) -> bool:
        connection = self.connection
        return not connection.credits_asked or connection.credits_asked > connection.credits_granted

    @property
    def is_idle(self) -> bool:
        return not (self.operations_per_s or self.in_progress or self.sent_again)

    @property
    def moving(self) -> float:
        """Buffers that are taken and not in the store: their data is on its way."""
        stored = self.store.inside
        if self.store.accesses_per_s * self.span_s < self.memory.taken:
            # Accesses last longer than was looked at; these calls have buffers, and no reply yet.
            stored = max(stored, self.in_progress - self.memory.wanted)
        return max(0.0, self.memory.taken - stored)

    @property
    def is_moving_most(self) -> bool:
        """Of its buffers."""
        return 2 * self.moving >= self.memory.taken > 0

    @property
    def kind(self) -> tuple[int, bool]:
        """Loads of one kind can be compared: of about one size, and most are reads, or most not."""
        size = self.bytes_per_s / self.operations_per_s if self.operations_per_s else 0.0
        return round(math.log2(size + 1)), self.connection.read_bytes >= (
            self.connection.written_bytes
        )


@dataclass(frozen=True, slots=True)
class _Sample:
    """A connection in one interval."""

    interval_s: float
    connection: Connection
    cpu_busy: float | None
    slots_short: float
    sessions_short: int
    slots_used: int


class History:
    """The last snapshots of one connection."""

    def __init__(self) -> None:
        self._samples: deque[_Sample] = deque(maxlen=_KEPT)

    def add(
        self, connection: Connection, sessions: Iterable[Session], snapshot: Snapshot
    ) -> tuple[Figures, Figures]:
        """Of now, and of the last two seconds, which a host's bad moments do not change much."""
        if self._samples and _levers(self._samples[-1].connection) != _levers(connection):
            self._samples.clear()  # what was seen with less, or more, says nothing of now
        self._samples.append(_sample(connection, sessions, snapshot))
        return _figures(self._newest(0.0)), _figures(self._newest(_LATELY_S))

    def _newest(self, least_s: float) -> list[_Sample]:
        """As many of the last ones as make an average, the newest last."""
        found: list[_Sample] = []
        operations, span_s = 0, 0.0
        for sample in reversed(self._samples):
            is_enough = operations >= _ENOUGH and span_s >= least_s
            if found and (is_enough or span_s + sample.interval_s > _LONGEST_S):
                break
            found.append(sample)
            operations += sample.connection.operations
            span_s += sample.interval_s
        return found[::-1]


def _levers(connection: Connection) -> tuple[int, int]:
    inside = connection.inside
    return connection.credits_granted, 0 if inside is None else inside.buffers


def _sample(connection: Connection, sessions: Iterable[Session], snapshot: Snapshot) -> _Sample:
    short = calls = 0.0
    count = used = 0
    for session in sessions:
        executing = session.latency.sum_ns / 1e9 / snapshot.interval_s
        calls += executing
        used += 0 if session.inside is None else session.inside.slots_used_most
        if is_short_of_slots(session, snapshot.interval_s):
            count += 1
            short += executing
    return _Sample(
        snapshot.interval_s,
        connection,
        snapshot.host.cpu_busy,
        short / calls if calls else 0.0,
        count,
        used,
    )


def is_short_of_slots(session: Session, interval_s: float) -> bool:
    """All its slots are in use, most of the time, and it wants more than these."""
    inside = session.inside
    if inside is None or inside.slots_used_most < inside.slots:
        return False
    if inside.slots_asked is not None and inside.slots_asked <= inside.slots:
        return False
    executing = session.latency.sum_ns / 1e9 / interval_s
    return max(executing, session.in_flight) >= _SHORT_OF_SLOTS * inside.slots


def _figures(samples: list[_Sample]) -> Figures:
    seen = [sample.connection for sample in samples]
    last = seen[-1]
    span_s = sum(sample.interval_s for sample in samples)
    operations = sum(one.operations for one in seen)
    latency_s = sum(one.latency.sum_ns for one in seen) / 1e9
    in_progress = _mean([one.in_flight for one in seen])
    if latency_s * len(samples) <= operations * span_s:
        # Calls are shorter than an interval, at whose end those in flight may be few. Of longer
        # ones, part was before what is looked at: how long they took says nothing of now.
        in_progress = max(in_progress, latency_s / span_s)
    busy = [sample.cpu_busy for sample in samples if sample.cpu_busy is not None]
    inside = [one.inside for one in seen if one.inside is not None]
    return Figures(
        connection=last,
        span_s=span_s,
        operations_per_s=operations / span_s,
        bytes_per_s=sum(one.bytes for one in seen) / span_s,
        latency_s=latency_s / operations if operations else 0.0,
        p99_s=max(one.latency.p99_ns for one in seen) / 1e9,
        in_progress=in_progress,
        credits_used=min(1.0, in_progress / max(1, last.credits_granted)),
        slots_used=max(sample.slots_used for sample in samples),
        sent_again=sum(one.retransmissions + one.naks for one in seen) / max(1, operations),
        stalled=sum(one.interval_s for one in samples if _is_stalled(one.connection)) / span_s,
        cpu_busy=_mean(busy) if busy else None,
        slots_short=_mean([sample.slots_short for sample in samples]),
        sessions_short=samples[-1].sessions_short,
        store=_store(inside, span_s),
        memory=_memory(inside, span_s),
        send_stalled=sum(one.send_waits.sum_ns for one in inside) / 1e9 / span_s,
    )


def _is_stalled(connection: Connection) -> bool:
    is_waiting = connection.in_flight or (connection.inside and connection.inside.buffers_taken)
    return not connection.operations and bool(is_waiting)


def _store(seen: list[Inside], span_s: float) -> Store:
    accesses = sum(one.storage.count for one in seen)
    time_s = sum(one.storage.sum_ns for one in seen) / 1e9
    return Store(
        accesses_per_s=accesses / span_s,
        inside=time_s / span_s,
        time_s=time_s / accesses if accesses else 0.0,
        queued=sum(one.storage_queue.sum_ns for one in seen) / 1e9 / span_s,
    )


def _memory(seen: list[Inside], span_s: float) -> Memory:
    if not seen:
        return Memory(0.0, 0.0, 0.0, 0.0, False)
    waited_s = sum(one.memory_waits.sum_ns for one in seen) / 1e9
    waited = sum(one.memory_waits.count for one in seen)
    accesses = sum(one.storage.count for one in seen)
    starved = [one.buffers_taken >= one.buffers and one.buffers_wanted > 0 for one in seen]
    wanted = _mean([one.buffers_wanted for one in seen])
    is_fresh = bool(seen[-1].memory_waits.count or seen[-1].buffers_wanted)
    return Memory(
        waiting=max(waited_s / span_s, wanted),
        wanted=wanted,
        wait_s=waited_s / max(1, waited),
        taken=_mean([one.buffers_taken for one in seen]),
        is_starved=is_fresh and (waited > _OFTEN * accesses or 2 * sum(starved) > len(starved)),
    )


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)
