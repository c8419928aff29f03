# SPDX-License-Identifier: BSD-2-Clause
"""A server that is only arithmetic: sessions, credits, buffers, a store. Time is what it says.

Calls that are wanted come in as far as there are credits, go on as far as there are buffers, and
are in the store for its delay, or longer if it does only so many at a time. Hands act on it as on
a real server, and may be told to fail.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace

from livedma.control.act.hands import Outcome, Progress
from livedma.control.diagnose.limits import Diagnosis, Limit
from livedma.control.events import Event, Events
from livedma.control.policy.plan import (
    Action,
    Cut,
    Extend,
    Migrate,
    RefuseSessions,
    Room,
    SetCredits,
    SetSlots,
    Shrink,
    Spread,
)
from livedma.errors import LivedmaError, NoRoomError
from livedma.monitor.snapshot import (
    Connection,
    Host,
    Inside,
    InsideSession,
    Session,
    Snapshot,
    Times,
)

MIB = 1 << 20
BUFFER = 64 << 10
PER_CREDIT = 8192
INTERVAL_S = 0.1
SESSION = "00" * 16


@dataclass
class Pipe:
    """A connection. wanted: calls that its client would have under way, by one session, or by
    sessions with `each` of them; `idle` sessions beside them have none.
    """

    number: int = 1
    wanted: int = 0
    buffers: int = 56
    credits: int = 64
    window_bytes: int = 16 * MIB
    first_bytes: int = 4 * MIB
    slots: int = 1024
    slots_asked: int = 1024
    credits_max: int = 1024
    follows: bool = True
    each: int = 0
    idle: int = 0

    @property
    def busy(self) -> int:
        return -(-self.wanted // self.each) if self.each else int(self.wanted > 0)

    @property
    def sessions(self) -> int:
        return max(self.busy if self.each else 1, 1) + self.idle

    @property
    def mapped_bytes(self) -> int:
        return self.buffers * BUFFER + self.credits * PER_CREDIT

    @property
    def room_bytes(self) -> int:
        return max(self.window_bytes - self.mapped_bytes, 0)


@dataclass
class Plant:
    """Also an observer and hands. failing: asked before each action, and may raise."""

    pipes: list[Pipe] = field(default_factory=lambda: [Pipe()])
    delay_s: float = 0.02
    width: int = 0  # accesses that the store does at a time; 0: any number
    budget_bytes: int | None = None
    noise: float = 0.03
    seed: int = 1
    at_s: float = 1000.0
    refuses: bool = False  # everybody's new sessions
    refused_on: set[int] = field(default_factory=set)  # the connections whose new sessions are
    first_bytes: int = 0  # of a further connection
    done: list[Action] = field(default_factory=list)
    failing: Callable[[Action], None] = lambda _: None
    follow: Callable[[Spread | Migrate], Progress] = lambda _: Progress("asked")
    given_up: list[Action] = field(default_factory=list)
    waited: int = 0  # calls that waited for memory

    def __post_init__(self) -> None:
        self._random = random.Random(self.seed)

    @property
    def pipe(self) -> Pipe:
        return self.pipes[0]

    def room(self) -> Room:
        if self.budget_bytes is None:
            return Room(None, self.first_bytes)
        left_bytes = self.budget_bytes - sum(one.mapped_bytes for one in self.pipes)
        return Room(left_bytes, self.first_bytes)

    def observe(self) -> Snapshot:
        self.at_s += INTERVAL_S
        connections = tuple(self._connection(one) for one in self.pipes)
        mapped = sum(one.mapped_bytes for one in self.pipes)
        return Snapshot(
            self.at_s,
            self.at_s,
            INTERVAL_S,
            "server",
            connections,
            tuple(session for one in connections for session in self._sessions(one)),
            Host(0.2, mapped, self.budget_bytes, self.refuses),
        )

    def in_store(self, pipe: Pipe) -> int:
        return min(pipe.wanted, pipe.credits, pipe.slots, pipe.buffers)

    def operations_per_s(self, pipe: Pipe) -> float:
        inside = self.in_store(pipe)
        return min(inside, self.width or inside) / self.delay_s

    def _connection(self, pipe: Pipe) -> Connection:
        arrived = min(pipe.wanted, pipe.credits, pipe.slots)
        inside = self.in_store(pipe)
        noise = 1 + self.noise * (2 * self._random.random() - 1)
        per_s = self.operations_per_s(pipe) * noise
        count = round(per_s * INTERVAL_S)
        latency_ns = arrived / per_s * 1e9 if per_s else 0
        return Connection(
            pipe.number,
            "10.0.0.1",
            100 + pipe.number,
            "10.0.0.2",
            200 + pipe.number,
            pipe.sessions,
            count,
            count * BUFFER,
            0,
            _times(count, latency_ns),
            arrived,
            1024,
            pipe.credits,
            0,
            0,
            0,
            0,
            Inside(
                pipe.window_bytes,
                pipe.mapped_bytes,
                pipe.room_bytes,
                pipe.first_bytes,
                BUFFER,
                pipe.buffers,
                inside,
                arrived - inside,
                pipe.credits,
                pipe.credits_max,
                pipe.credits - arrived,
                0,
                arrived,
                _times(*self._waits(arrived - inside, count, per_s)),
                Times(),
                _times(count, inside / per_s * 1e9 if per_s else 0),
                Times(),
                follows=pipe.follows,
            ),
        )

    def _waits(self, waiting: int, count: int, per_s: float) -> tuple[int, float]:
        """Returns how many calls waited for memory, and how long each of them did."""
        if not waiting or not per_s:
            return 0, 0.0
        self.waited += count
        return count, waiting / per_s * 1e9

    def _sessions(self, connection: Connection) -> Iterator[Session]:
        pipe = self._pipe(connection.number)
        if not pipe.each:
            yield self._session(connection, pipe)
        busy = pipe.busy if pipe.each else 0
        for number in range(busy):
            of_it = replace(
                connection,
                operations=connection.operations // busy,
                read_bytes=connection.read_bytes // busy,
                in_flight=connection.in_flight // busy,
            )
            yield replace(self._session(of_it, pipe), id=f"{number:032x}")
        rest = replace(connection, operations=0, read_bytes=0, in_flight=0, latency=Times())
        for number in range(pipe.idle):
            yield replace(self._session(rest, pipe), id=f"{1 << 20 | number:032x}")

    def _session(self, connection: Connection, pipe: Pipe) -> Session:
        return Session(
            SESSION,
            (connection.number,),
            connection.operations,
            connection.read_bytes,
            0,
            connection.latency,
            connection.in_flight,
            InsideSession(
                pipe.slots, pipe.slots, min(pipe.wanted, pipe.slots), 0, 0, pipe.slots_asked
            ),
        )

    def carry_out(self, action: Action) -> Outcome:
        self.failing(action)
        ret = self._carried_out(action)
        self.done.append(action)
        return ret

    def _carried_out(self, action: Action) -> Outcome:
        match action:
            case Extend():
                pipe = self._pipe(action.connection)
                before = pipe.credits
                more_credits = max(action.credits - before, 0)
                if action.bytes + more_credits * PER_CREDIT > pipe.room_bytes:
                    raise NoRoomError("the window has no room")
                pipe.credits += more_credits
                pipe.buffers += action.bytes // BUFFER
                pipe.slots = max([pipe.slots, *action.slots.values()])
                return Outcome("mapped", (Shrink(action.connection, action.bytes, before),))
            case Shrink():
                pipe = self._pipe(action.connection)
                before, pipe.credits = pipe.credits, min(pipe.credits, action.credits)
                pipe.buffers -= action.bytes // BUFFER
                return Outcome("unmapped", (Extend(action.connection, action.bytes, before),))
            case SetCredits():
                pipe = self._pipe(action.connection)
                before, pipe.credits = pipe.credits, action.credits
                return Outcome("set", (SetCredits(action.connection, before),))
            case SetSlots():
                before, self.pipe.slots = self.pipe.slots, action.slots
                return Outcome("set", (SetSlots(action.session, before),))
            case Spread() | Migrate():
                return Outcome("asked")
            case RefuseSessions():
                return self._refuse(action)
            case Cut():
                raise NoRoomError("a plant has no connection to cut")

    def _refuse(self, action: RefuseSessions) -> Outcome:
        number = action.connection
        if number is None:
            before, self.refuses = self.refuses, action.is_refused
            return Outcome("set", (RefuseSessions(before),))
        if number not in {one.number for one in self.pipes}:
            raise LivedmaError(f"connection {number} has ended")
        before = number in self.refused_on
        (self.refused_on.add if action.is_refused else self.refused_on.discard)(number)
        return Outcome("set", (RefuseSessions(before, number),))

    def progress(self, action: Action) -> Progress | None:
        """A client does what it is asked for when `follow` says so."""
        if not isinstance(action, Spread | Migrate):
            return None
        return self.follow(action)

    def give_up(self, action: Action) -> None:
        self.given_up.append(action)

    def _pipe(self, number: int) -> Pipe:
        return next(one for one in self.pipes if one.number == number)


class Truth:
    """Names the limit that the plant has by construction, after two snapshots in a row."""

    def __init__(self, plant: Plant) -> None:
        self.plant = plant
        self._before: dict[int, Limit] = {}

    def limit(self, pipe: Pipe) -> Limit:
        inside = self.plant.in_store(pipe)
        if inside == pipe.wanted:
            return Limit.NOTHING
        if self.plant.width and inside >= self.plant.width:
            return Limit.STORAGE
        if inside == pipe.slots:
            return Limit.SLOTS
        return Limit.MEMORY if inside == pipe.buffers else Limit.CREDITS

    def see(self, snapshot: Snapshot) -> tuple[Diagnosis, ...]:
        found = []
        for pipe in self.plant.pipes:
            limit = self.limit(pipe)
            is_degraded = limit is not Limit.NOTHING and self._before.get(pipe.number) is limit
            self._before[pipe.number] = limit
            found.append(
                Diagnosis(
                    pipe.number,
                    snapshot.at_s,
                    is_degraded,
                    limit if is_degraded else Limit.NOTHING,
                    f"{limit.value} is the limit",
                )
            )
        return tuple(found)


class Deceived(Truth):
    """Takes everything for a lack of memory."""

    def limit(self, pipe: Pipe) -> Limit:
        limit = super().limit(pipe)
        return limit if limit is Limit.NOTHING else Limit.MEMORY


def kinds(events: Events) -> list[str]:
    return [one.kind for one in events.after()]


def only(events: Events, *wanted: str) -> list[Event]:
    return [one for one in events.after() if one.kind in wanted]


def _times(count: int, each_ns: float) -> Times:
    each = round(each_ns)
    return Times(count, count * each, each, each, each)


__all__ = [
    "BUFFER",
    "INTERVAL_S",
    "MIB",
    "PER_CREDIT",
    "SESSION",
    "Deceived",
    "Pipe",
    "Plant",
    "Truth",
    "kinds",
    "only",
]
