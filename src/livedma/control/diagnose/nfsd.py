# SPDX-License-Identifier: BSD-2-Clause
"""Names what limits the kernel's NFS server, connection by connection, from one snapshot of it.

What has run out comes first: CPUs, the send queue, threads, credits. Slow storage is named where
nothing has run out: calls in it keep threads and credits from others.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import Enum

from livedma.control.diagnose.evidence import took
from livedma.monitor.snapshot import Connection, InsideKernel, KernelHost, Snapshot

__all__ = ["KernelDiagnosis", "KernelLimit", "diagnose_kernel"]

_CALLS_LEAST = 8  # in an interval; fewer say nothing
_CPU_FULL = 0.9
_CPU_WAITING = 0.3  # threads that wait for a CPU, for each that serves
_MOST = 0.5  # of a call's time, or of a thread's
_SENDING = 0.3  # of a thread's time
_ALL_SERVING = 0.7  # of the threads, at a time
_LAST_CREDITS = 0.1  # of the calls


class KernelLimit(Enum):
    """Names what limits a connection of the kernel's server. The values are words for people."""

    NOTHING = "nothing"
    CPU = "CPU"
    SEND_QUEUE = "send queue"
    THREADS = "threads"
    CREDITS = "credits"
    STORAGE = "storage"


@dataclass(frozen=True, slots=True)
class KernelDiagnosis:
    """Says what limits a connection in one interval. `evidence` holds the figures behind it."""

    connection: int
    limit: KernelLimit
    sentence: str
    evidence: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class _Seen:
    connection: Connection
    kernel: InsideKernel
    host: KernelHost

    @property
    def latency_s(self) -> float:
        return self.connection.latency.mean_ns / 1e9

    @property
    def waiting(self) -> float:
        """Returns the part of the calls' time in which they waited for a thread."""
        return _part(self.kernel.thread_waits.sum_ns, self.connection.latency.sum_ns)

    @property
    def storing(self) -> float:
        """Returns the part of the threads' time in which they were in storage."""
        return _part(self.kernel.storage.sum_ns, self.kernel.serving_ns)

    @property
    def last_credits(self) -> float:
        """Returns the part of the calls that took the last credit."""
        return _part(self.kernel.last_credits, self.connection.operations)

    @property
    def stored(self) -> str:
        storage = self.kernel.storage
        if not storage.count:
            return "they read and write nothing"
        return f"an access takes {took(storage.mean_ns / 1e9)} in storage"


def _part(of: float, whole: float) -> float:
    return min(of / whole, 1.0) if whole else 0.0


def diagnose_kernel(snapshot: Snapshot) -> tuple[KernelDiagnosis, ...]:
    """Returns a diagnosis of each connection that had calls enough in the interval."""
    host = snapshot.host.kernel
    if host is None:
        return ()
    return tuple(
        _diagnose(_Seen(one, one.kernel, host))
        for one in snapshot.connections
        if one.kernel is not None and one.operations >= _CALLS_LEAST
    )


def _diagnose(seen: _Seen) -> KernelDiagnosis:
    limit, sentence = next(
        ((limit, said) for limit, check in _CHECKS if (said := check(seen))),
        (KernelLimit.NOTHING, _nothing(seen)),
    )
    return KernelDiagnosis(seen.connection.number, limit, sentence, _evidence(seen))


def _cpu(seen: _Seen) -> str | None:
    """Finds CPUs that are full, unless threads are in storage and hardly wait for a CPU."""
    host = seen.host
    waiting = host.cpu_waiting or 0.0
    if host.cpus_busy < _CPU_FULL:
        return None
    if seen.storing >= _MOST and waiting < _CPU_WAITING * host.serving:
        return None
    wait = "" if host.cpu_waiting is None else f", and on average {waiting:.1f} wait for one"
    return (
        f"the host's CPUs are busy {host.cpus_busy:.0%} of the time: nfsd's threads use "
        f"{host.cpus_used:.1f} of {host.cpus}{wait}"
    )


def _send_queue(seen: _Seen) -> str | None:
    waits = seen.kernel.send_waits
    part = _part(waits.sum_ns, seen.kernel.serving_ns)
    if part < _SENDING:
        return None
    return (
        f"threads wait {part:.0%} of their time for room in the send queue, "
        f"{took(waits.mean_ns / 1e9)} each time: the client or the wire takes no more"
    )


def _threads(seen: _Seen) -> str | None:
    host = seen.host
    if seen.waiting < _MOST or host.serving < _ALL_SERVING * host.threads:
        return None
    return (
        f"calls wait {seen.waiting:.0%} of their {took(seen.latency_s)} for one of nfsd's "
        f"{host.threads} threads, of which {host.serving:.1f} are busy: {seen.stored} "
        "(more threads help as far as storage takes more at a time)"
    )


def _credits(seen: _Seen) -> str | None:
    connection = seen.connection
    if (
        connection.is_tcp
        or connection.credits_asked <= connection.credits_granted
        or seen.last_credits < _LAST_CREDITS
    ):
        return None
    return (
        f"the client has all its {connection.credits_granted} credits in use at "
        f"{seen.last_credits:.0%} of its calls, and asks for {connection.credits_asked}: "
        f"others wait at the client; {seen.stored}"
    )


def _storage(seen: _Seen) -> str | None:
    storage = seen.kernel.storage
    part = _part(storage.sum_ns, seen.connection.latency.sum_ns)
    if part < _MOST:
        return None
    return (
        f"calls are in storage {part:.0%} of their {took(seen.latency_s)}, "
        f"{took(storage.mean_ns / 1e9)} an access; {seen.host.serving:.1f} of "
        f"{seen.host.threads} threads are busy"
    )


def _nothing(seen: _Seen) -> str:
    return (
        f"a call takes {took(seen.latency_s)}, and nothing of nfsd's has run out: "
        f"{seen.host.serving:.1f} of {seen.host.threads} threads are busy, "
        f"CPU {seen.host.cpus_busy:.0%}"
    )


_CHECKS: tuple[tuple[KernelLimit, Callable[[_Seen], str | None]], ...] = (
    (KernelLimit.CPU, _cpu),
    (KernelLimit.SEND_QUEUE, _send_queue),
    (KernelLimit.THREADS, _threads),
    (KernelLimit.CREDITS, _credits),
    (KernelLimit.STORAGE, _storage),
)


def _evidence(seen: _Seen) -> dict[str, float]:
    return {
        "calls": seen.connection.operations,
        "latency_ms": seen.latency_s * 1e3,
        "thread_wait_part": seen.waiting,
        "storage_part_of_threads": seen.storing,
        "last_credit_part": seen.last_credits,
        "serving_threads": seen.host.serving,
        "threads": seen.host.threads,
        "cpu_busy_part": seen.host.cpus_busy,
    }
