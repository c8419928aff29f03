# SPDX-License-Identifier: BSD-2-Clause
"""A snapshot shows sessions and connections in an interval, in the one form that all sources fill.

A source that sees the wire (BPF) knows operations, bytes, latencies, credits and what went wrong on
the way. The server itself knows that, too, and also what requests waited for (`Inside`), and
connections over TCP (`InsideTcp`). Programs inside the kernel's server know what its calls waited
for (`InsideKernel`, `KernelHost`). A field is None where no source can know it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

__all__ = [
    "Connection",
    "Host",
    "Inside",
    "InsideKernel",
    "InsideSession",
    "InsideTcp",
    "KernelHost",
    "Losses",
    "Session",
    "Snapshot",
    "Source",
    "Times",
    "Transport",
]

Transport = Literal["rdma", "tcp"]
Source = Literal["bpf", "server", "bpf+server", "nfsd"]


@dataclass(frozen=True, slots=True)
class Times:
    """Says how long something took, each time that it happened in the interval."""

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
    """Holds what only the server knows of a connection. Figures are of the interval's end, except
    those that name the interval and the `Times`.
    """

    window_bytes: int
    mapped_bytes: int
    room_bytes: int  #: what `extend` can still map for data, in whole shards
    first_bytes: int  #: what was mapped when the connection was made
    buffer_bytes: int
    buffers: int
    buffers_taken: int
    buffers_wanted: int  #: by calls that wait for one
    credits: int  #: the target; the peer has `Connection.credits_granted`
    credits_max: int
    receives_posted: int
    receives_late: int  #: in the interval: calls that found fewer Receives than credits
    in_progress: int
    memory_waits: Times  #: of calls for a data buffer
    send_waits: Times  #: for room in the send queue
    storage: Times  #: in the store, once for each access, as long as a buffer was held for it
    storage_queue: Times  #: the part of it until a thread, or the store, began with the access
    first_buffers: int | None = None  #: `buffers` when the connection was made; None: not known
    kept_back_bytes: int = 0  #: mapped, and neither for data nor for credits: the reserve
    follows: bool = True  #: its client asks where its sessions should go; the kernel's does not
    pinned_bytes: int | None = None  #: of the mapped ones; None: not known


@dataclass(frozen=True, slots=True)
class InsideTcp:
    """Holds what only the server knows of a connection over TCP. Its memory is not managed."""

    unsent_bytes: int  #: of replies that the client has not taken
    thread_waits: Times  #: of calls until a thread began with them
    storage: Times  #: in the store, of calls that read, wrote or committed


@dataclass(frozen=True, slots=True)
class InsideKernel:
    """Holds what only the kernel's NFS server knows of a connection. Counts are of the interval."""

    executing: int  #: calls that a thread works on now
    serving_ns: int  #: of threads, for calls that ended: with their storage and their sending
    thread_waits: Times  #: of calls for a thread, from their arrival
    storage: Times  #: in the file system, once for each read, write or commit
    fetches: Times  #: by RDMA READ, of what the client writes; no thread waits meanwhile
    send_waits: Times  #: of threads, for room in the send queue
    last_credits: int  #: calls that took the last credit when they arrived
    contexts_made: int  #: for RDMA READs and WRITEs, since none was free
    receives_failed: int  #: that could not be posted


@dataclass(frozen=True, slots=True)
class InsideSession:
    """Holds what only the server knows of a session."""

    slots: int
    slots_target: int
    slots_used_most: int  #: of the interval: the most that were executing at a time
    memory_waited_ns: int  #: in the interval, by all its calls together
    storage_ns: int
    slots_asked: int | None = None  #: by the client, when the session was made; None: not known
    calls: int | None = None  #: calls that ended in the interval; the times above are theirs
    calls_ns: int | None = None  #: how long these calls took together


@dataclass(frozen=True, slots=True)
class Connection:
    """Shows a connection. `number` is the server's own where the server is asked, else the
    monitor's.

    A connection over TCP has no queue pairs, no credits and no DMA memory: their fields are 0, and
    `inside` is None.
    """

    number: int
    server: str
    server_qpn: int
    client: str
    client_qpn: int
    sessions: int  #: those that used it in the interval, or are bound to it
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
    unanswered: int  #: calls given up in the interval, since no reply came in time
    inside: Inside | None = None
    transport: Transport = "rdma"
    client_port: int | None = None  #: None: it is not known
    client_name: str = ""  #: the client's own name for itself, printable and short; empty: none
    tcp: InsideTcp | None = None
    learnt_s: float | None = None  #: by the wall clock: calls since then count; None: all of them
    refuses_sessions: bool = False  #: new ones that come by it; see also `Host.refuses_sessions`
    kernel: InsideKernel | None = None

    @property
    def bytes(self) -> int:
        return self.read_bytes + self.written_bytes

    @property
    def is_tcp(self) -> bool:
        return self.transport == "tcp"

    @property
    def client_end(self) -> str:
        """Returns the client's address and port; over RDMA without a known port, its queue pair."""
        if self.client_port is not None:
            host = f"[{self.client}]" if ":" in self.client else self.client
            return f"{host}:{self.client_port}"
        return f"{self.client} qp {self.client_qpn}" if self.client_qpn else self.client

    @property
    def client_words(self) -> str:
        """Returns the client for people: where it is, and its name if it has one."""
        return f"{self.client_end} ({self.client_name})" if self.client_name else self.client_end


@dataclass(frozen=True, slots=True)
class Session:
    """Shows a session. `connections` are the numbers of those that it used in the interval or is
    bound to.
    """

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
        """Returns how long a call waited for DMA memory, on average. None: not known, or there was
        no call.
        """
        return None if self.inside is None else self._of_a_call(self.inside.memory_waited_ns)

    @property
    def storage_ns(self) -> float | None:
        """Returns how long a call was in the store, on average. None: not known, or there was no
        call.
        """
        return None if self.inside is None else self._of_a_call(self.inside.storage_ns)

    def _of_a_call(self, spent_ns: int) -> float | None:
        """Divides by the calls that the time was spent in. Where the wire is watched, too,
        `operations` counts the calls seen on the wire, which are not the same ones.
        """
        calls = None if self.inside is None else self.inside.calls
        calls = self.operations if calls is None else calls
        return spent_ns / calls if calls else None


@dataclass(frozen=True, slots=True)
class Losses:
    """Counts what a source could not see or keep, since it began."""

    connections: int = 0  #: for which there was no place left
    sessions: int = 0
    calls: int = 0  #: dropped before the reply came, since their place was needed
    replies: int = 0  #: to calls that were not seen
    unreadable: int = 0  #: messages that are no RPC-over-RDMA, or end too early
    early: int = 0  #: replies to calls that were under way when their connection was learnt


@dataclass(frozen=True, slots=True)
class KernelHost:
    """Shows the kernel's NFS server and its host. Numbers of threads are averages of the
    interval.
    """

    threads: int  #: of nfsd; 0: it had no call yet
    serving: float  #: threads that worked on calls that ended
    cpus: int
    cpus_busy: float  #: part of all CPUs: 0 to 1
    cpus_used: float  #: by nfsd's threads, in CPUs
    cpu_waiting: float | None  #: threads that were ready and got no CPU; None: not known


@dataclass(frozen=True, slots=True)
class Host:
    """Shows what all connections share."""

    cpu_busy: float | None  #: of the thread that serves the device: 0 to 1, without waiting
    mapped_bytes: int | None  #: by all connections
    budget_bytes: int | None  #: None: there is no bound
    refuses_sessions: bool = False  #: all new ones
    tcp_busy: float | None = None  #: of one CPU, by the threads that serve TCP; may be above 1
    kernel: KernelHost | None = None
    pinned_bytes: int | None = None  #: of the mapped ones


@dataclass(frozen=True, slots=True)
class Snapshot:
    """Shows one interval. `at_s` is its end by the monotonic clock, `wall_s` by the wall clock."""

    at_s: float
    wall_s: float
    interval_s: float
    source: Source
    connections: tuple[Connection, ...]
    sessions: tuple[Session, ...]
    host: Host
    losses: Losses = Losses()

    def per_s(self, amount: float) -> float:
        """Returns what was counted in the interval as a rate."""
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
                "host": _host(found["host"]),
                "losses": Losses(**found["losses"]),
            }
        )


_INSIDE_TIMES = ("memory_waits", "send_waits", "storage", "storage_queue")
_TCP_TIMES = ("thread_waits", "storage")
_KERNEL_TIMES = ("thread_waits", "storage", "fetches", "send_waits")


def _host(found: dict[str, Any]) -> Host:
    kernel = found.get("kernel")
    return Host(**{**found, "kernel": None if kernel is None else KernelHost(**kernel)})


def _connection(found: dict[str, Any]) -> Connection:
    inside = found["inside"]
    if inside is not None:
        inside = Inside(**{**inside, **{name: Times(**inside[name]) for name in _INSIDE_TIMES}})
    tcp = found.get("tcp")
    if tcp is not None:
        tcp = InsideTcp(**{**tcp, **{name: Times(**tcp[name]) for name in _TCP_TIMES}})
    kernel = found.get("kernel")
    if kernel is not None:
        times_in = {name: Times(**kernel[name]) for name in _KERNEL_TIMES}
        kernel = InsideKernel(**{**kernel, **times_in})
    times = Times(**found["latency"])
    return Connection(**{**found, "latency": times, "inside": inside, "tcp": tcp, "kernel": kernel})


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
