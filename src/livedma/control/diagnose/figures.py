# SPDX-License-Identifier: BSD-2-Clause
"""Makes the figures that a diagnosis needs, from the last snapshots of one connection.

Times become numbers by Little's law: calls that together spent 2 s waiting in an interval of 0.1 s
were 20 at a time. So waits of all kinds can be compared with each other and with the number of
buffers, credits and slots.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from livedma.monitor.snapshot import Connection, Inside, InsideTcp, Session, Snapshot

__all__ = ["Figures", "History", "Memory", "Store", "is_short_of_slots"]

_ENOUGH = 32  # operations; with fewer, older snapshots are used as well
_LONGEST_S = 2.0  # the longest span that snapshots are used from
_LATELY_S = 1.8
_KEPT = 64
_OFTEN = 0.2  # of the accesses, which found no free buffer at first
_ALL, _MANY = 0.9, 0.6  # of the credits
_SHORT_OF_SLOTS = 0.6  # of its slots in use all the time


@dataclass(frozen=True, slots=True)
class Store:
    """Describes the store as one connection uses it."""

    accesses_per_s: float
    inside: float  #: accesses in it, on average
    time_s: float  #: of an access, its time in the queue included
    queued: float  #: of those, the accesses that have not begun

    @property
    def served(self) -> float:
        return self.inside - self.queued

    @property
    def queued_part(self) -> float:
        return self.queued / self.inside if self.inside else 0.0


@dataclass(frozen=True, slots=True)
class Memory:
    """Describes the data buffers of a connection."""

    waiting: float  #: calls that wait for one, on average
    wanted: float  #: the same, from the calls that waited at the ends of intervals
    wait_s: float  #: of a call that waited, on average
    taken: float
    is_starved: bool  #: often all are taken, and some are wanted


@dataclass(frozen=True, slots=True)
class Figures:
    """Holds averages over `span_s`. Numbers without a unit of time in their names are calls at a
    time.
    """

    connection: Connection
    span_s: float
    operations_per_s: float
    bytes_per_s: float
    latency_s: float
    p99_s: float
    in_progress: float
    credits_used: float  #: of those granted: 0 to 1
    slots_used: int  #: of all sessions, the sum of the most that each has used at a time
    sent_again: float  #: retransmissions and NAKs, for each call
    stalled: float  #: part of the time that nothing was done, with calls or data under way
    cpu_busy: float | None
    slots_short: float  #: part of the calls in progress that are of sessions short of slots
    sessions_short: int
    # What only the server knows; zero where it is not asked.
    store: Store
    memory: Memory
    send_stalled: float  #: part of the time that the send queue had no room
    thread_waiting: float = 0.0  #: over TCP: calls that wait for a thread

    @property
    def knows_inside(self) -> bool:
        return self.connection.inside is not None or self.connection.tcp is not None

    @property
    def has_all_credits_used(self) -> bool:
        """Returns whether the credits are used up. Calls and replies on their way use credits, too,
        but the server cannot see them, so most of the credits count as all. Where the sessions use
        more slots than there are credits, they must wait for each other, and fewer count as all.
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
        """Returns the buffers that are taken and not in the store: their data is on its way."""
        stored = self.store.inside
        if self.store.accesses_per_s * self.span_s < self.memory.taken:
            # Accesses last longer than the span. Calls that do not wait have buffers, and no reply.
            stored = max(stored, self.in_progress - self.memory.wanted)
        return max(0.0, self.memory.taken - stored)

    @property
    def is_moving_most(self) -> bool:
        """Returns whether at least half of the taken buffers are moving."""
        return 2 * self.moving >= self.memory.taken > 0

    @property
    def kind(self) -> tuple[int, bool]:
        """Returns the kind of load. Loads of one kind can be compared: their operations have about
        the same size, and for both reads are at least half of the bytes, or for neither.
        """
        size = self.bytes_per_s / self.operations_per_s if self.operations_per_s else 0.0
        return round(math.log2(size + 1)), self.connection.read_bytes >= (
            self.connection.written_bytes
        )


@dataclass(frozen=True, slots=True)
class _Sample:
    """Holds a connection in one interval."""

    interval_s: float
    connection: Connection
    cpu_busy: float | None
    slots_short: float
    sessions_short: int
    slots_used: int


class History:
    """Keeps the last snapshots of one connection."""

    def __init__(self) -> None:
        self._samples: deque[_Sample] = deque(maxlen=_KEPT)

    def add(
        self, connection: Connection, sessions: Iterable[Session], snapshot: Snapshot
    ) -> tuple[Figures, Figures]:
        """Returns the figures of now and of the last two seconds. Short disturbances of the host
        hardly change the latter.
        """
        if self._samples and _levers(self._samples[-1].connection) != _levers(connection):
            self._samples.clear()  # figures with other credits or buffers say nothing of now
        self._samples.append(_sample(connection, sessions, snapshot))
        return _figures(self._newest(0.0)), _figures(self._newest(_LATELY_S))

    def _newest(self, least_s: float) -> list[_Sample]:
        """Returns as many of the last samples as an average needs, the newest last."""
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
        snapshot.host.tcp_busy if connection.is_tcp else snapshot.host.cpu_busy,
        short / calls if calls else 0.0,
        count,
        used,
    )


def is_short_of_slots(session: Session, interval_s: float) -> bool:
    """Returns whether a session uses all its slots most of the time, and wants more of them."""
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
        # Calls are shorter than an interval, and few of them may be in flight at its end. A part of
        # longer calls was before the span: how long they took says nothing of now.
        in_progress = max(in_progress, latency_s / span_s)
    busy = [sample.cpu_busy for sample in samples if sample.cpu_busy is not None]
    inside = [one.inside for one in seen if one.inside is not None]
    tcp = [one.tcp for one in seen if one.tcp is not None]
    return Figures(
        connection=last,
        span_s=span_s,
        operations_per_s=operations / span_s,
        bytes_per_s=sum(one.bytes for one in seen) / span_s,
        latency_s=latency_s / operations if operations else 0.0,
        p99_s=max(one.latency.p99_ns for one in seen) / 1e9,
        in_progress=in_progress,
        credits_used=0.0 if last.is_tcp else min(1.0, in_progress / max(1, last.credits_granted)),
        slots_used=max(sample.slots_used for sample in samples),
        sent_again=sum(one.retransmissions + one.naks for one in seen) / max(1, operations),
        stalled=sum(one.interval_s for one in samples if _is_stalled(one.connection)) / span_s,
        cpu_busy=_mean(busy) if busy else None,
        slots_short=_mean([sample.slots_short for sample in samples]),
        sessions_short=samples[-1].sessions_short,
        store=_tcp_store(tcp, span_s) if last.is_tcp else _store(inside, span_s),
        memory=_memory(inside, span_s),
        send_stalled=sum(one.send_waits.sum_ns for one in inside) / 1e9 / span_s,
        thread_waiting=sum(one.thread_waits.sum_ns for one in tcp) / 1e9 / span_s,
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


def _tcp_store(seen: list[InsideTcp], span_s: float) -> Store:
    """Adds up the store's figures over TCP. The server's threads go into the store themselves, so
    calls queue for a thread and not in the store.
    """
    accesses = sum(one.storage.count for one in seen)
    time_s = sum(one.storage.sum_ns for one in seen) / 1e9
    return Store(accesses / span_s, time_s / span_s, time_s / accesses if accesses else 0.0, 0.0)


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
