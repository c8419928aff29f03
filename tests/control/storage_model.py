# SPDX-License-Identifier: BSD-2-Clause
"""A storage server with all that may limit it, as a discrete-event model that makes snapshots.

Sessions of a client keep calls under way, as many as they want and have slots for. A call waits at
the client for a credit, takes the serving thread's time, waits for a buffer, is in the store (which
does `width` accesses at a time), takes the thread's time again, waits for room in the send queue,
and its data moves to the client, which takes it when it can. The buffer is free when that is over.
Everything may be changed while it runs, as the levers of the real server do.
"""

from __future__ import annotations

import heapq
import itertools
import random
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field

from livedma.monitor.snapshot import (
    Connection,
    Host,
    Inside,
    InsideSession,
    Session,
    Snapshot,
    Source,
    Times,
)

Done = Callable[[], None]


class Agenda:
    """What happens when."""

    def __init__(self) -> None:
        self.now = 0.0
        self._events: list[tuple[float, int, Done]] = []
        self._numbers = itertools.count()

    def after(self, seconds: float, do: Done) -> None:
        heapq.heappush(self._events, (self.now + seconds, next(self._numbers), do))

    def run_until(self, end: float) -> None:
        events = self._events
        while events and events[0][0] <= end:
            self.now, _, do = heapq.heappop(events)
            do()
        self.now = end


class Station:
    """Does `width` things at a time (0: any number), the others queue."""

    def __init__(self, agenda: Agenda, width: int) -> None:
        self.agenda, self.width = agenda, width
        self.busy_s = 0.0
        self._serving = 0
        self._queue: deque[tuple[float, float, Callable[[float], None]]] = deque()

    def submit(self, work_s: float, done: Callable[[float], None]) -> None:
        """done: gets how long it queued."""
        self._queue.append((self.agenda.now, work_s, done))
        self._serve()

    def _serve(self) -> None:
        while self._queue and (not self.width or self._serving < self.width):
            came, work_s, done = self._queue.popleft()
            queued = self.agenda.now - came
            self._serving += 1
            self.busy_s += work_s
            self.agenda.after(work_s, lambda done=done, queued=queued: self._end(done, queued))

    def _end(self, done: Callable[[float], None], queued: float) -> None:
        self._serving -= 1
        done(queued)
        self._serve()


class Room:
    """Has so many places; a call that finds none waits in line."""

    def __init__(self, agenda: Agenda, places: int) -> None:
        self.agenda, self.places = agenda, places
        self.taken = 0
        self.line: deque[tuple[float, Callable[[float], None]]] = deque()

    def take(self, done: Callable[[float], None]) -> None:
        """done: gets how long it waited."""
        self.line.append((self.agenda.now, done))
        self.serve()

    def give(self) -> None:
        self.taken -= 1
        self.serve()

    def serve(self) -> None:
        while self.line and self.taken < self.places:
            came, done = self.line.popleft()
            self.taken += 1
            done(self.agenda.now - came)


class Way:
    """The wire: a message at a time, then so long until it is there. One that is lost stops those
    behind it until it was sent again.
    """

    def __init__(self, agenda: Agenda, chance: random.Random) -> None:
        self._agenda, self._chance = agenda, chance
        self._wire = Station(agenda, 1)
        self.seconds = 0.0
        self.wire_s = 0.0
        self.loss = 0.0  #: part of the messages
        self.retry_s = 0.0
        self.sent_again = 0
        self._on_it = 0

    def pass_(self, done: Done) -> None:
        self._on_it += 1
        seconds = self.wire_s
        if self.loss and self._chance.random() < self.loss:
            seconds += self.retry_s
            self.sent_again += min(self._on_it, 16)
        self._wire.submit(
            seconds, lambda _: self._agenda.after(self.seconds, lambda: self._end(done))
        )

    def _end(self, done: Done) -> None:
        self._on_it -= 1
        done()


@dataclass
class Sums:
    """Of one interval."""

    times: list[float] = field(default_factory=list)

    def take(self) -> Times:
        found, self.times = sorted(self.times), []
        if not found:
            return Times()
        ns = [round(one * 1e9) for one in found]
        return Times(len(ns), sum(ns), ns[len(ns) // 2], ns[int(len(ns) * 0.99)], ns[-1])


class ModelSession:
    """Keeps `depth` calls under way, but for its slots; `pause_s` between a reply and the next."""

    def __init__(self, link: Link, number: int, depth: int, slots: int, asked: int | None) -> None:
        self.link, self.id = link, f"{number:032x}"
        self.depth, self.slots, self.asked = depth, slots, asked
        self.is_active = True
        self.under_way = 0  #: as the client sees it
        self.executing = self.most = 0
        self.operations = self.read_bytes = 0
        self.latency = Sums()
        self.waited_s = self.storage_s = 0.0

    def fill(self) -> None:
        while self.is_active and self.under_way < min(self.depth, self.slots):
            self.under_way += 1
            self.link.credits.take(lambda _: self.link.call(self))

    def again(self) -> None:
        self.under_way -= 1
        self.fill()

    def snapshot(self) -> Session:
        found = Session(
            self.id,
            (self.link.number,),
            self.operations,
            self.read_bytes,
            0,
            self.latency.take(),
            self.executing,
            InsideSession(
                self.slots,
                self.slots,
                self.most,
                round(self.waited_s * 1e9),
                round(self.storage_s * 1e9),
                self.asked,
            ),
        )
        self.operations = self.read_bytes = 0
        self.waited_s = self.storage_s = 0.0
        self.most = self.executing
        return found


class Link:
    """A connection, with the client at its other end."""

    def __init__(
        self, model: Model, number: int, *, credits_: int, buffers: int, sends: int, size: int
    ) -> None:
        agenda = model.agenda
        self.model, self.number, self.size = model, number, size
        self.asked = 0
        self.credits = Room(agenda, credits_)
        self.buffers = Room(agenda, buffers)
        self.first_buffers = buffers
        self.buffers_most = 4 * buffers
        self.sends = Room(agenda, sends)
        self.way = Way(agenda, model.chance)
        self.client = Station(agenda, 1)
        self.client_s = 0.0
        self.pause_s = 0.0
        self.in_progress = 0
        self.operations = 0
        self.sessions: list[ModelSession] = []
        self.latency, self.memory_waits, self.send_waits = Sums(), Sums(), Sums()
        self.storage, self.storage_queue = Sums(), Sums()

    def add_session(
        self, depth: int, slots: int | None = None, asked: int | None = None
    ) -> ModelSession:
        number = 1000 * self.number + len(self.sessions)
        session = ModelSession(self, number, depth, slots or depth, asked or depth)
        self.sessions.append(session)
        self.asked = max(self.asked, sum(one.depth for one in self.sessions))
        session.fill()
        return session

    def call(self, session: ModelSession) -> None:
        """A credit was had: the call goes to the server, and through it."""
        model, agenda = self.model, self.model.agenda
        arrived = 0.0

        def arrive() -> None:
            model.cpu.submit(model.cpu_s / 2, begin)

        def begin(_: float) -> None:
            nonlocal arrived
            arrived = agenda.now
            self.in_progress += 1
            session.executing += 1
            session.most = max(session.most, session.executing)
            self.buffers.take(store)

        def store(waited_s: float) -> None:
            if waited_s:
                self.memory_waits.times.append(waited_s)
                session.waited_s += waited_s
            work_s = model.access_s()
            model.store.submit(work_s, lambda queued_s: stored(queued_s, work_s))

        def stored(queued_s: float, work_s: float) -> None:
            self.storage.times.append(queued_s + work_s)
            self.storage_queue.times.append(0.0 if model.hides_queue else queued_s)
            session.storage_s += queued_s + work_s
            model.cpu.submit(model.cpu_s / 2, lambda _: self.sends.take(send))

        def send(waited_s: float) -> None:
            if waited_s:
                self.send_waits.times.append(waited_s)
            self.in_progress -= 1
            self.operations += 1
            took = agenda.now - arrived
            self.latency.times.append(took)
            session.latency.times.append(took)
            session.operations += 1
            session.read_bytes += self.size
            session.executing -= 1
            self.way.pass_(lambda: self.client.submit(self.client_s, taken))

        def taken(_: float) -> None:
            self.sends.give()
            self.buffers.give()
            self.credits.give()
            agenda.after(self.pause_s, session.again)

        agenda.after(self.way.seconds, arrive)

    def snapshot(self, source: Source) -> Connection:
        buffers = self.buffers
        inside = Inside(
            window_bytes=self.buffers_most * self.size,
            mapped_bytes=buffers.places * self.size,
            room_bytes=(self.buffers_most - buffers.places) * self.size,
            first_bytes=self.first_buffers * self.size,
            buffer_bytes=self.size,
            buffers=buffers.places,
            buffers_taken=buffers.taken,
            buffers_wanted=len(buffers.line),
            credits=self.credits.places,
            credits_max=1024,
            receives_posted=self.credits.places - self.in_progress,
            receives_late=0,
            in_progress=self.in_progress,
            memory_waits=self.memory_waits.take(),
            send_waits=self.send_waits.take(),
            storage=self.storage.take(),
            storage_queue=self.storage_queue.take(),
        )
        found = Connection(
            number=self.number,
            server="10.0.0.1",
            server_qpn=2 * self.number,
            client="10.0.0.2",
            client_qpn=2 * self.number + 1,
            sessions=len(self.sessions),
            operations=self.operations,
            read_bytes=self.operations * self.size,
            written_bytes=0,
            latency=self.latency.take(),
            in_flight=self.in_progress,
            credits_asked=self.asked,
            credits_granted=self.credits.places,
            rnr_naks=0,
            naks=0,
            retransmissions=self.way.sent_again,
            unanswered=0,
            inside=None if source == "bpf" else inside,
        )
        self.operations = self.way.sent_again = 0
        return found


class Model:
    """A host: connections share its serving thread and its store."""

    def __init__(self, seed: int = 0, source: Source = "server") -> None:
        self.chance = random.Random(seed)
        self.source: Source = source
        self.agenda = Agenda()
        self.cpu = Station(self.agenda, 1)
        self.cpu_s = 0.0  #: of the thread, for a call
        self.store = Station(self.agenda, 0)
        self.store_s = 0.0
        self.hides_queue = False  #: its time counts as the access's
        self.store_spread = 0.0  #: 0: each access takes the same time; 1: exponential
        self.links: list[Link] = []
        self._taken_at = 0.0
        self._busy_s = 0.0

    def access_s(self) -> float:
        if not self.store_spread:
            return self.store_s
        random_s = self.chance.expovariate(1 / self.store_s)
        return (1 - self.store_spread) * self.store_s + self.store_spread * random_s

    def add_link(self, *, credits_: int, buffers: int, sends: int = 4096, size: int = 1) -> Link:
        number = len(self.links) + 1
        link = Link(self, number, credits_=credits_, buffers=buffers, sends=sends, size=size)
        self.links.append(link)
        return link

    def run(self, seconds: float) -> Snapshot:
        """What was seen in that time."""
        self.agenda.run_until(self.agenda.now + seconds)
        now, interval_s = self.agenda.now, self.agenda.now - self._taken_at
        is_seen = self.source != "bpf"
        busy = min(1.0, (self.cpu.busy_s - self._busy_s) / interval_s)
        self._taken_at, self._busy_s = now, self.cpu.busy_s
        sessions = tuple(one.snapshot() for link in self.links for one in link.sessions)
        return Snapshot(
            at_s=now,
            wall_s=1.7e9 + now,
            interval_s=interval_s,
            source=self.source,
            connections=tuple(link.snapshot(self.source) for link in self.links),
            sessions=sessions if is_seen else tuple(map(_from_outside, sessions)),
            host=Host(busy if is_seen else None, None, None),
        )


def _from_outside(session: Session) -> Session:
    return Session(
        session.id,
        session.connections,
        session.operations,
        session.read_bytes,
        session.written_bytes,
        session.latency,
        session.in_flight,
    )
