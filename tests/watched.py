# SPDX-License-Identifier: BSD-2-Clause
"""Load that monitors watch: what the client did, beside what was seen of it on the wire."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import pytest

from livedma._native.latency import Latency
from livedma._native.load import Figures
from livedma.monitor import Monitor, Snapshot
from livedma.monitor.snapshot import Losses, Times
from livedma.nfs.client import Client
from livedma.nfs.load import Plan, Result, Runner
from livedma.nfs.load.result import SessionResult
from livedma.rdma import Device

__all__ = ["Account", "Watched", "check_times", "check_work", "first_in_line"]

_PORT = 20049
_NEAR = 0.1
_FIRST = 3  # operations of each session, on average
_LOOK_S = 0.02


@dataclass
class Seen:
    """Of a session, in all snapshots together."""

    operations: int = 0
    read_bytes: int = 0
    written_bytes: int = 0


class Account:
    """Adds up what a monitor sees of each session, whenever it is looked at."""

    def __init__(self, monitor: Monitor) -> None:
        self._monitor = monitor
        self.sessions: dict[str, Seen] = {}
        self.retransmissions = self.unanswered = 0
        self.losses = Losses()

    def look(self) -> Snapshot:
        snapshot = self._monitor.snapshot()
        for session in snapshot.sessions:
            seen = self.sessions.setdefault(session.id, Seen())
            seen.operations += session.operations
            seen.read_bytes += session.read_bytes
            seen.written_bytes += session.written_bytes
        self.retransmissions += sum(one.retransmissions for one in snapshot.connections)
        self.unanswered += sum(one.unanswered for one in snapshot.connections)
        self.losses = snapshot.losses
        return snapshot


class Watched(Runner):
    """A run with looks at the monitors: before it begins, and around its steady part.

    It begins when each session has had some operations: at first all of them call at once, and
    calls wait at the client for room on the wire. steady: what each monitor saw of that part;
    latency: what the client did. when_filled: is called before anything is measured.
    """

    steady: tuple[Snapshot, ...]
    last: tuple[Snapshot, ...]  #: after the last reply

    def __init__(
        self,
        plan: Plan,
        address: str,
        *accounts: Account,
        device: Device,
        when_filled: Callable[[], object] = lambda: None,
    ) -> None:
        super().__init__(plan, address, _PORT, device=device)
        self._accounts: Sequence[Account] = accounts
        self._when_filled = when_filled
        self.latency = Latency()

    async def _prepare(self, client: Client) -> None:
        await super()._prepare(client)
        self._look_at_wire()
        self._when_filled()

    async def _go_on(self, client: Client, before: Figures, total: Latency) -> Figures:
        while before.counters.reads + before.counters.writes < _FIRST * self.plan.sessions:
            await asyncio.sleep(_LOOK_S)
            before = self._interval(before, total)
        self._look_at_wire()
        before = await super()._go_on(client, before, self.latency)
        self.steady = self._look_at_wire()
        total.merge(self.latency)
        return before

    async def _clean_up(self) -> None:
        self.last = self._look_at_wire()
        await super()._clean_up()

    def _look_at_wire(self) -> tuple[Snapshot, ...]:
        return tuple(account.look() for account in self._accounts)


@contextmanager
def first_in_line() -> Iterator[None]:
    """This thread and those that it starts get a CPU before others: what a reply waits for one at
    the client would count as latency, and no wire shows it.
    """
    before = os.getpriority(os.PRIO_PROCESS, 0)
    os.setpriority(os.PRIO_PROCESS, 0, -20)
    try:
        yield
    finally:
        os.setpriority(os.PRIO_PROCESS, 0, before)


def check_work(result: Result, account: Account) -> None:
    """Calls and bytes of each session, those that filled its file included, are what was seen."""
    assert result.is_clean, (result.counters, result.refused, result.lost, result.unanswered)
    done = {one.id.hex(): _done(one) for one in result.sessions}
    seen = {id_: one for id_, one in account.sessions.items() if id_ in done}
    assert seen == done
    assert (account.losses, account.unanswered) == (Losses(), 0)


def _done(session: SessionResult) -> Seen:
    of = session.figures.counters
    calls = of.fills + of.reads + of.writes + of.delays
    return Seen(calls, of.read_bytes, of.written_bytes + of.filled_bytes)


def check_times(watched: Watched) -> None:
    """As long as the client saw, by the same clock: the way between them is short."""
    (steady,) = watched.steady
    (connection,) = steady.connections
    for seen_ns, part in _quantiles(connection.latency):
        assert seen_ns == pytest.approx(watched.latency.quantile_ns(part), rel=_NEAR)


def _quantiles(times: Times) -> tuple[tuple[int, float], ...]:
    return (times.p50_ns, 0.5), (times.p99_ns, 0.99)
