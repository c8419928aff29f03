"""What was seen of sessions and connections in an interval: the one form that all sources fill.

A source that sees the wire (BPF) knows operations, bytes, latencies, credits and what went wrong on
the way. The server itself knows that too, and what requests waited for (`Inside`). Whoever reads
snapshots finds None where nobody could know.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

__all__ = [
    "Connection",
    "Host",
    "Inside",
    "InsideSession",
    "Losses",
    "Session",
    "Snapshot",
    "Source",
    "Times",
]

Source = Literal["bpf", "server", "bpf+server"]


@dataclass(frozen=True, slots=True)
class Times:
    """How long something took, each time that it happened in the interval."""

    count: int = 0
    sum_ns: int = 0
    p50_ns: int = 0
    p99_ns: int = 0
    max_ns: int = 0

    @property
    def mean_ns(self) -> float:
        return self.sum_ns / self.count if self.count else 0.0


@dataclass(frozen=True, slots=True)
class Inside:
    """What only the server knows of a connection. Figures without a time are those of now."""

    window_bytes: int
    mapped_bytes: int
    room_bytes: int  #: that `extend` can still map for data, in whole shards
    first_bytes: int  #: that were mapped when the connection was made
    buffer_bytes: int
    buffers: int
    buffers_taken: int
    buffers_wanted: int  #: by calls that wait for one
    credits: int  #: that are wanted; the peer has `Connection.credits_granted`
    credits_max: int
    receives_posted: int
    receives_late: int  #: in the interval: calls that found fewer Receives than credits
    in_progress: int
    memory_waits: Times  #: of calls for a data buffer
    send_waits: Times  #: for room in the send queue
    storage: Times  #: in the store, once for each access, as long as a buffer was held for it
    storage_queue: Times  #: of that: until a thread, or the store, began with it


@dataclass(frozen=True, slots=True)
class InsideSession:
    """What only the server knows of a session."""

    slots: int
    slots_target: int
    slots_used_most: int  #: of the interval: the most that were executing at a time
    memory_waited_ns: int  #: in the interval, by its calls together
    storage_ns: int
    slots_asked: int | None = None  #: by the client, when the session was made; None: not known


@dataclass(frozen=True, slots=True)
class Connection:
    """A connection. `number` is the server's own where the server is asked, else the monitor's."""

    number: int
    server: str
    server_qpn: int
    client: str
    client_qpn: int
    sessions: int  #: that used it in the interval, or are bound to it
    operations: int
    read_bytes: int
    written_bytes: int
    latency: Times  #: from a call's arrival to its reply's departure
    in_flight: int
    credits_asked: int
    credits_granted: int
    rnr_naks: int
    naks: int
    retransmissions: int
    unanswered: int  #: calls given up in the interval, since no reply has come for so long
    inside: Inside | None = None

    @property
    def bytes(self) -> int:
        return self.read_bytes + self.written_bytes


@dataclass(frozen=True, slots=True)
class Session:
    """A session. `connections`: numbers of those that it used in the interval, or is bound to."""

    id: str  #: hexadecimal
    connections: tuple[int, ...]
    operations: int
    read_bytes: int
    written_bytes: int
    latency: Times
    in_flight: int
    inside: InsideSession | None = None

    @property
    def bytes(self) -> int:
        return self.read_bytes + self.written_bytes

    @property
    def memory_wait_ns(self) -> float | None:
        """Of a call for DMA memory, on average; None: not known, or there was no call."""
        if self.inside is None or not self.operations:
            return None
        return self.inside.memory_waited_ns / self.operations

    @property
    def storage_ns(self) -> float | None:
        """Of a call in the store, on average; None: not known, or there was no call."""
        if self.inside is None or not self.operations:
            return None
        return self.inside.storage_ns / self.operations


@dataclass(frozen=True, slots=True)
class Losses:
    """What a source could not see or keep, since it began."""

    connections: int = 0  #: no place was left for them
    sessions: int = 0
    calls: int = 0  #: whose place was needed before the reply came
    replies: int = 0  #: to calls that were not seen
    unreadable: int = 0  #: messages that are no RPC-over-RDMA, or end too early


@dataclass(frozen=True, slots=True)
class Host:
    """What connections share."""

    cpu_busy: float | None  #: of the thread that serves the device: 0 to 1, waiting excepted
    mapped_bytes: int | None  #: by all connections
    budget_bytes: int | None  #: None: there is no bound
    refuses_sessions: bool = False


@dataclass(frozen=True, slots=True)
class Snapshot:
    """One interval. at_s: its end, by the monotonic clock; wall_s: by the clock on the wall."""

    at_s: float
    wall_s: float
    interval_s: float
    source: Source
    connections: tuple[Connection, ...]
    sessions: tuple[Session, ...]
    host: Host
    losses: Losses = Losses()

    def per_s(self, amount: float) -> float:
        """What was counted in the interval, as a rate."""
        return amount / self.interval_s if self.interval_s > 0 else 0.0

    def connection(self, number: int) -> Connection | None:
        return next((one for one in self.connections if one.number == number), None)

    def session(self, id_: str) -> Session | None:
        return next((one for one in self.sessions if one.id == id_), None)

    @classmethod
    def from_json(cls, found: dict[str, Any]) -> Snapshot:
        return cls(
            **{
                **found,
                "connections": tuple(map(_connection, found["connections"])),
                "sessions": tuple(map(_session, found["sessions"])),
                "host": Host(**found["host"]),
                "losses": Losses(**found["losses"]),
            }
        )


_INSIDE_TIMES = ("memory_waits", "send_waits", "storage", "storage_queue")


def _connection(found: dict[str, Any]) -> Connection:
    inside = found["inside"]
    if inside is not None:
        inside = Inside(**{**inside, **{name: Times(**inside[name]) for name in _INSIDE_TIMES}})
    return Connection(**{**found, "latency": Times(**found["latency"]), "inside": inside})


def _session(found: dict[str, Any]) -> Session:
    inside = found["inside"]
    return Session(
        **{
            **found,
            "connections": tuple(found["connections"]),
            "latency": Times(**found["latency"]),
            "inside": None if inside is None else InsideSession(**inside),
        }
    )
