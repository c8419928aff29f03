# SPDX-License-Identifier: BSD-2-Clause
"""Views of a source: what people are told of one interval after the other, in one form for all."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field, fields, is_dataclass
from typing import Any

from livedma.control.diagnose.diagnosis import Diagnostician
from livedma.control.diagnose.limits import Diagnosis
from livedma.control.diagnose.nfsd import KernelDiagnosis, KernelLimit, diagnose_kernel
from livedma.control.words import duration
from livedma.errors import LivedmaError
from livedma.monitor.snapshot import Connection, Losses, Snapshot, Times
from livedma.monitor.source import Source
from livedma.wire.words import amount

__all__ = [
    "Total",
    "View",
    "Views",
    "waits_of",
    "words_of_losses",
    "words_of_threads",
    "words_of_waits",
]

_LOST = {
    "connections": "connections for which there was no place",
    "sessions": "sessions for which there was no place",
    "calls": "calls whose place was needed before their reply came",
    "replies": "replies to calls that had not been seen",
    "unreadable": "messages that could not be read as RPC-over-RDMA",
}


@dataclass(frozen=True, slots=True)
class View:
    """Shows one interval of a source. `unseen` has a sentence for each thing that it cannot see.
    `limits` are those of the kernel's server, where the source looks into it.
    """

    snapshot: Snapshot
    source: str  #: the word by which people choose it
    where: str
    unseen: tuple[str, ...]
    diagnoses: tuple[Diagnosis, ...]
    limits: tuple[KernelDiagnosis, ...] = ()

    @property
    def connections(self) -> tuple[Connection, ...]:
        return self.snapshot.connections

    def diagnosis(self, connection: int) -> Diagnosis | None:
        return next((one for one in self.diagnoses if one.connection == connection), None)

    def trouble(self, connection: int) -> str:
        """Returns what makes a connection slow, for people; empty: nothing that is seen."""
        diagnosis = self.diagnosis(connection)
        if diagnosis is not None and diagnosis.is_degraded:
            return f"{diagnosis.verdict}: {diagnosis.sentence}"
        for one in self.limits:
            if one.connection == connection and one.limit is not KernelLimit.NOTHING:
                return f"limited by {one.limit.value}: {one.sentence}"
        return ""

    def as_json(self) -> dict[str, Any]:
        found = asdict(self.snapshot)
        diagnoses, limits = (
            [{**asdict(one), "limit": one.limit.value} for one in named]
            for named in (self.diagnoses, self.limits)
        )
        told = {"where": self.where, "unseen": self.unseen}
        if self.snapshot.source == "nfsd":
            return {**found, **told, "limits": limits}
        return {**found, **told, "diagnoses": diagnoses}


@dataclass(slots=True)
class Total:
    """Adds up what all views showed."""

    operations: int = 0
    read_bytes: int = 0
    written_bytes: int = 0
    connections_most: int = 0  #: at a time
    sessions_most: int = 0
    losses: Losses = field(default_factory=Losses)

    def add(self, snapshot: Snapshot) -> None:
        for one in snapshot.connections:
            self.operations += one.operations
            self.read_bytes += one.read_bytes
            self.written_bytes += one.written_bytes
        self.connections_most = max(self.connections_most, len(snapshot.connections))
        self.sessions_most = max(self.sessions_most, len(snapshot.sessions))
        self.losses = snapshot.losses


class Views:
    """Makes views of a source that is attached. One thread uses it at a time."""

    def __init__(self, source: Source) -> None:
        self._source = source
        self._diagnostician = Diagnostician()
        self.total = Total()
        self.began_s = time.time()

    def next(self) -> View:
        """Returns what happened since the view before. A source that another program detached is
        attached again, as soon as that works.
        """
        source = self._source
        blind = () if source.is_attached else tuple(self._attach_again())
        snapshot = source.snapshot()
        self.total.add(snapshot)
        is_inside = snapshot.source == "nfsd"
        return View(
            snapshot,
            source.name,
            source.where,
            (*blind, *source.unseen(), *words_of_losses(snapshot.losses)),
            () if is_inside else self._diagnostician.see(snapshot),
            diagnose_kernel(snapshot) if is_inside else (),
        )

    def _attach_again(self) -> Iterator[str]:
        try:
            self._source.attach()
        except LivedmaError as error:
            yield f"nothing is seen at the moment: {error}"
        else:
            yield "it was detached by another program for a while, and saw nothing meanwhile"


def words_of_losses(losses: Losses) -> Iterator[str]:
    """Yields a sentence if the source could not see or keep something since it began."""
    found = [
        f"{words} ({count:,})" for name, words in _LOST.items() if (count := getattr(losses, name))
    ]
    if found:
        yield f"not counted so far: {', '.join(found)}"


def waits_of(connection: Connection) -> list[tuple[str, Times]]:
    """Returns what calls of the interval waited for, by the names of the fields that only a source
    inside of the server fills.
    """
    found = []
    for part in fields(connection):
        inside = getattr(connection, part.name)
        if is_dataclass(inside) and not isinstance(inside, Times):
            for one in fields(inside):
                times = getattr(inside, one.name)
                if isinstance(times, Times) and times.count:
                    found.append((one.name.replace("_", " "), times))
    return found


def words_of_threads(snapshot: Snapshot) -> str:
    """Returns how busy the kernel's server is, in words; empty: the source does not look there."""
    host = snapshot.host.kernel
    if host is None:
        return ""
    return (
        f"nfsd: {host.serving:.1f} of {amount(host.threads, 'thread')} busy, "
        f"CPU {host.cpus_busy:.0%} of {host.cpus}"
    )


def words_of_waits(connection: Connection) -> str:
    """Returns the waits in words, with their means; empty: none are known."""
    return ", ".join(
        f"{name} {duration(times.mean_ns)} (p99 {duration(times.p99_ns)})"
        for name, times in waits_of(connection)
    )
