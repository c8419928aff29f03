# SPDX-License-Identifier: BSD-2-Clause
"""Runs a load: it makes connections, adds sessions as the plan wants them, takes figures, and ends
in order."""

from __future__ import annotations

import asyncio
import contextlib
import os
import threading
import time
from collections.abc import Callable, Iterable, Sequence

from livedma._native.latency import Latency
from livedma._native.load import Figures
from livedma.errors import LivedmaError
from livedma.nfs.client import Client
from livedma.nfs.client.client import own_credential
from livedma.nfs.load.control import Control
from livedma.nfs.load.follower import Follower
from livedma.nfs.load.footprint import check_memory, check_room
from livedma.nfs.load.links import Calls, RdmaLinks, TcpLinks
from livedma.nfs.load.places import Places
from livedma.nfs.load.plan import Plan
from livedma.nfs.load.recovery import Recovery
from livedma.nfs.load.result import Interval, Result, SessionResult, named
from livedma.nfs.load.sessions import LoadError, Sessions
from livedma.nfs.load.waiting import Waiting
from livedma.nfs.numbers import NfsError, Op, Status
from livedma.rdma import Device
from livedma.rpc.client import ConnectionLost
from livedma.rpc.names import TransportKind

__all__ = ["LoadError", "Runner"]

_INTERVAL_S = 1.0
_LOOK_S = 0.02
_TIDE_S = 0.05  # between two changes of the tide
_FILL_S = 120.0  # without any progress of the files
_FIRST_S = 10.0  # for the server's first answers
_LAST_S = 5.0  # for the last replies at the end
_CONTROL_SLOTS = 8
_MESSAGE_EXTRA = 4096
_CALL_S = 60.0  # for the answer to a call that changes files: a server's disk may be busy
_CLEAN_UP_S = 90.0  # for removing sessions and files
_REMOVAL_S = 0.02  # for each of them besides
Tell = Callable[[str], None]
Show = Callable[[Interval], None]


class Runner:
    """Runs a plan once. device: for RDMA. show: is called each second; tell: with what is going on.

    away_s: a server that does not answer for longer ends the run.
    """

    def __init__(
        self,
        plan: Plan,
        address: str,
        port: int,
        *,
        device: Device | None = None,
        spin: float = 200e-6,
        show: Show = lambda _: None,
        tell: Tell = lambda _: None,
        away_s: float = 120.0,
    ) -> None:
        self.plan, self._address, self._port = plan, address, port
        self._device, self._spin = device, spin
        self._show, self._tell, self._away_s = show, tell, away_s
        self._is_stopped = asyncio.Event()
        self._is_measuring = False
        self._credential = own_credential()
        self.left: list[str] = []  #: files that could not be removed, once the run has ended

    @property
    def is_measuring(self) -> bool:
        """Returns whether `stop` ends it with a result; there is one once sessions have begun."""
        return self._is_measuring

    def stop(self) -> None:
        """Ends the measurement early; `run` returns what was measured."""
        self._is_stopped.set()

    def set_active(self, sessions: int) -> None:
        """Lets so many sessions work from now on; the others rest once they have ended what they
        are doing.
        """
        self._load.set_active(sessions)

    async def run(self) -> Result:
        """Runs it. Raises LoadError, ConnectionLost and what the client raises."""
        check_memory(self.plan)
        if self.plan.proto == TransportKind.RDMA:
            if self._device is None:
                raise ValueError("RDMA needs a device")
            self._links: RdmaLinks | TcpLinks = RdmaLinks(self._device, self.plan, self._spin)
        else:
            self._links = TcpLinks(self.plan)
        try:
            links = [
                await self._links.open(self._address, self._port)
                for _ in range(self.plan.connections)
            ]
            return await self._with_links(links)
        finally:
            self._links.close()

    async def _with_links(self, links: Sequence[int]) -> Result:
        self._load = self._links.load
        thread = threading.Thread(target=self._load.run, name="load", daemon=True)
        thread.start()
        calls = Calls(self._load)
        self._places = Places(self._links, calls, self._address, self._port)
        for link in links:
            self._places.add(link)
        self._sessions = Sessions(self._load, self._places, self.plan, self._credential)
        try:
            async with await self._first_contact(links[0]) as client:
                return await self._with_client(client, calls)
        finally:
            calls.close()
            self._load.end()
            await asyncio.to_thread(thread.join)

    async def _with_client(self, client: Client, calls: Calls) -> Result:
        self._control = Control(client, self._load, self._places)
        follower = Follower(self._load, calls.call, self._places, client)
        self._recovery = Recovery(
            self._load,
            self._places,
            self._sessions,
            self._control,
            moving=follower.moving,
            watch=follower.watch,
            give_up=self.stop,
            patience_s=self._away_s,
        )
        name = f"{self._address} port {self._port}"
        self._waiting = Waiting(name, client, self._load, self._places, self._recovery, self._tell)
        if self.plan.follow and self.plan.proto == TransportKind.RDMA:
            follower.start()
        beside = [
            asyncio.create_task(self._recovery.run(calls.stirred), name="recovery"),
            asyncio.create_task(self._control.keep_lease(), name="lease"),
        ]
        try:
            await self._waiting.during(check_room(self.plan, client), lambda: "")
            return await self._measure(client)
        finally:
            for task in beside:
                task.cancel()
            await asyncio.gather(*beside, return_exceptions=True)
            await follower.stop()
            await self._clean_up()

    async def _first_contact(self, link: int) -> Client:
        """Connects the client; gives up soon on a peer that is silent, or no NFS server."""
        asking = asyncio.create_task(self._client(link))
        try:
            end_s = time.monotonic() + _FIRST_S
            while not asking.done() and time.monotonic() < end_s and not self._places.is_lost:
                await asyncio.wait({asking}, timeout=_LOOK_S)
            if asking.done():
                return asking.result()
        finally:
            asking.cancel()
            await asyncio.gather(asking, return_exceptions=True)
        if self._places.is_lost:
            why = "closed the connection, or answers with something else than NFS"
        else:
            why = f"takes connections, and has not answered in {_FIRST_S:g} s"
        raise ConnectionLost(f"{self._address} port {self._port} {why}")

    async def _client(self, link: int) -> Client:
        return await Client.connect(
            self._address,
            via=self._places.connections[link],
            minor=1,
            slots=_CONTROL_SLOTS,
            message_bytes=self.plan.size + _MESSAGE_EXTRA,
            credential=self._credential,
            call_s=_CALL_S,
            patience_s=self._away_s,
        )

    # Sessions.

    async def _add_all(self, client: Client) -> None:
        """Makes all sessions, with their files filled."""
        await self._add(client, range(self.plan.sessions))
        self._check(self._load.figures())
        self._check(await self._filled())

    async def _add(self, client: Client, numbers: Sequence[int]) -> None:
        """Makes sessions."""

        def progress() -> str:
            return f"making sessions: {len(self._places.sessions)} of {self.plan.sessions}"

        await self._waiting.during(self._sessions.add(client, numbers), progress)

    async def _filled(self) -> Figures:
        """Waits until the files of all working sessions are filled."""
        figures = self._look()
        fills, end_s = 0, 0.0
        while figures.filled + figures.failed < figures.sessions:
            self._waiting.check()
            self._waiting.look(f"writing files: {figures.filled} of {figures.sessions}")
            # While connections are lost, patience is the recovery's.
            if figures.counters.fills > fills or not end_s or self._recovery.why:
                fills, end_s = figures.counters.fills, time.monotonic() + _FILL_S
            elif time.monotonic() > end_s:
                raise LoadError(
                    f"the server has not written anything for {_FILL_S:g} s: use fewer --sessions "
                    "or a smaller --file-size"
                )
            await asyncio.sleep(_LOOK_S)
            figures = self._look()
        return figures

    def _look(self) -> Figures:
        """Returns the present figures; latencies are those since the last look, and in no other."""
        return self._load.figures()

    def _check(self, figures: Figures) -> None:
        """Raises LoadError unless there is a session that works."""
        if figures.sessions > figures.failed:
            return
        words = [self._load.session(i).words for i in range(figures.sessions)]
        why = next((named(one) for one in words if one), None)
        lost = self._recovery.why or next(iter(self._lost()), None)
        raise LoadError(why or lost or next(iter(self._sessions.refused), "no session was made"))

    async def _ramp(self, numbers: Iterable[int], rate: float) -> None:
        """Makes one session after the other, each at its time, however long another one takes."""
        started_s = time.monotonic()
        tasks: list[asyncio.Task[None]] = []
        async with self._control.use() as client:
            try:
                for place, number in enumerate(numbers):
                    due_s = started_s + place / rate
                    await asyncio.sleep(max(due_s - time.monotonic(), 0))
                    tasks.append(asyncio.create_task(self._sessions.try_add(client, number)))
                await asyncio.gather(*tasks)
            finally:
                for task in tasks:
                    task.cancel()
                await asyncio.gather(*tasks, return_exceptions=True)

    async def _tide(self) -> None:
        started_s = time.monotonic()
        while True:
            await asyncio.sleep(_TIDE_S)
            self.set_active(self.plan.active(time.monotonic() - started_s))

    # Measuring.

    async def _measure(self, client: Client) -> Result:
        await self._prepare(client)
        await self._control.leave()
        cpu_s = time.process_time()
        before = self._load.figures()
        self._load.begin()
        self._is_measuring = True
        before = before._replace(now_ns=self._load.figures().began_ns)
        total = Latency()
        before = await self._go_on(client, before, total)
        self._load.stop()
        end_ns = before.now_ns
        away_s = self._recovery.away_s(end_ns)
        cpu_s = time.process_time() - cpu_s
        last = await self._drain()
        total.merge(last.latency)
        if not total.count:
            self._check(last)
        return Result(
            seconds=max((end_ns - last.began_ns) * 1e-9, 1e-9),
            counters=last.counters,
            sessions=tuple(
                SessionResult.of(number, session_id, self._load.session(number), end_ns)
                for number, session_id in sorted(self._places.sessions.items())
            ),
            statuses={_status_name(*key): count for key, count in last.statuses.items()},
            cpu_s=cpu_s,
            unanswered=last.open,
            refused=tuple(self._sessions.refused),
            lost=tuple(self._lost()),
            connections=self._places.opened,
            reconnects=self._places.replaced,
            gaps_s=(*self._recovery.gaps_s, *([away_s] if away_s else ())),
            ended=self._recovery.words or _silence(away_s, self._recovery.why),
            latency=total,
        )

    async def _prepare(self, client: Client) -> None:
        """Sets up what is there before anything is measured."""
        if self.plan.ramp is None:
            await self._add_all(client)
        if self.plan.tide is not None:
            self.set_active(self.plan.active(0))

    async def _go_on(self, client: Client, before: Figures, total: Latency) -> Figures:
        """Runs until time is up or no session is left; all latencies go into total. Returns the
        last figures.
        """
        ramp = None
        if self.plan.ramp is not None:
            ramp = asyncio.create_task(self._ramp(range(self.plan.sessions), self.plan.ramp))
        tide = asyncio.create_task(self._tide()) if self.plan.tide is not None else None
        try:
            begin_s = time.monotonic()
            while (left_s := begin_s + self.plan.seconds - time.monotonic()) > 0:
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(min(_INTERVAL_S, left_s)):
                        await self._is_stopped.wait()
                before = self._interval(before, total)
                if self._is_stopped.is_set():
                    break
                if ramp is not None and ramp.done():
                    ramp.result()
                if before.sessions and before.failed == before.sessions:
                    break
        finally:
            others = [one for one in (ramp, tide) if one is not None]
            for one in others:
                one.cancel()
            await asyncio.gather(*others, return_exceptions=True)
        return before

    def _interval(self, before: Figures, total: Latency) -> Figures:
        after = self._load.figures()
        total.merge(after.latency)
        away_s = self._recovery.away_s(after.now_ns)
        self._show(Interval.between(before, after, away_s))
        if after.open or away_s:
            self._waiting.look()
        return after

    async def _drain(self) -> Figures:
        """Waits until the last operation was answered, or the server is silent."""
        total = Latency()
        end_s = time.monotonic() + _LAST_S
        while True:
            figures = self._load.figures()
            total.merge(figures.latency)
            if not figures.open or time.monotonic() > end_s:
                return figures._replace(latency=total)
            await asyncio.sleep(_LOOK_S)

    def _lost(self) -> list[str]:
        errors = self._places.errors()
        return [f"connection {link}: {os.strerror(error)}" for link, error in errors.items()]

    # The end.

    async def _clean_up(self) -> None:
        """Removes all that the run made, as long as the server can be reached."""
        self._load.stop()
        if not self._places.is_lost:
            self._tell("removing the files of the run")
        limit_s = _CLEAN_UP_S + len(self._places.sessions) * _REMOVAL_S
        try:
            with contextlib.suppress(TimeoutError, LivedmaError, NfsError, OSError):
                async with asyncio.timeout(limit_s):
                    await self._waiting.while_reached(self._remove())
        finally:
            self.left = sorted(self._sessions.left)

    async def _remove(self) -> None:
        await self._drain()
        await self._sessions.remove(await self._control.take())


def _silence(away_s: float, why: str) -> str:
    if not away_s:
        return ""
    return f"when time was up, the server had not answered for {away_s:.1f} s: {why}"


def _status_name(operation: int, status: int) -> str:
    try:
        return f"{Op(operation).name} {Status(status).name}"
    except ValueError:
        return f"operation {operation} status {status}"
