"""A run: connections, sessions as the plan wants them, figures, and an orderly end."""

from __future__ import annotations

import asyncio
import contextlib
import os
import secrets
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

from livedma._native.latency import Latency
from livedma._native.load import Figures
from livedma.errors import LivedmaError
from livedma.nfs.client import Client, OperationFailed
from livedma.nfs.client.client import own_credential
from livedma.nfs.client.codec.session import destroy_session
from livedma.nfs.client.file import File
from livedma.nfs.load.follower import Follower
from livedma.nfs.load.links import Calls, RdmaLinks, TcpLinks
from livedma.nfs.load.places import Places
from livedma.nfs.load.plan import Plan
from livedma.nfs.load.result import Interval, Result, SessionResult, named
from livedma.nfs.numbers import NfsError, Op, Status
from livedma.rdma import Device
from livedma.rpc.client import RpcError
from livedma.rpc.message import Call, encode_call
from livedma.rpc.xdr import Encoder

__all__ = ["LoadError", "Runner"]

_INTERVAL_S = 1.0
_LOOK_S = 0.02
_TIDE_S = 0.05  # between changes of it
_FILL_S = 120.0  # within which all files have to be there
_LAST_S = 5.0  # that replies may take when it is over
_SETUPS_AT_ONCE = 8
_CONTROL_SLOTS = 8
_MESSAGE_EXTRA = 4096
_PATIENCE_S = 15.0
_CALL_HEADER = 24  # in front of the credential

_NO_DIRECTORY = ": use a --dir that can be written"
_ADVICE = {
    **dict.fromkeys(
        (Status.NOENT, Status.NOTDIR, Status.ACCESS, Status.PERM, Status.ROFS), _NO_DIRECTORY
    ),
    Status.GRACE: ": the server has just started, try again in a minute or two",
    Status.NOSPC: ": the server has no room for another session or file, use fewer --sessions",
}

Tell = Callable[[str], None]
Show = Callable[[Interval], None]


class LoadError(LivedmaError):
    """A run cannot begin, or has come to nothing."""


@dataclass(slots=True)
class _State:
    """What a run has made at the server."""

    files: list[File] = field(default_factory=list)
    refused: list[str] = field(default_factory=list)


class Runner:
    """Runs a plan once. device: for RDMA. show: is told each second; tell: what is going on."""

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
    ) -> None:
        self.plan, self._address, self._port = plan, address, port
        self._device, self._spin = device, spin
        self._show, self._tell = show, tell
        self._state = _State()
        self._is_stopped = asyncio.Event()
        self._credential = own_credential()
        whole = encode_call(Call(0, 0, 0, 0, self._credential))
        self._credential_bytes = whole[_CALL_HEADER:]
        self._prefix = f"livedma-load-{os.getpid()}-{secrets.token_hex(2)}"

    def stop(self) -> None:
        """Ends the measurement before its time; `run` returns what was measured."""
        self._is_stopped.set()

    def set_active(self, sessions: int) -> None:
        """So many sessions work from now on, while it runs; the others rest when they have ended
        what they are doing.
        """
        self._load.set_active(sessions)

    async def run(self) -> Result:
        """Raises LoadError, ConnectionLost and what the client raises."""
        if self.plan.proto == "rdma":
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
        try:
            async with await self._client(links[0]) as client:
                follower = Follower(self._load, calls.call, self._places, client)
                if self.plan.follow and self.plan.proto == "rdma":
                    follower.start()
                try:
                    return await self._measure(client)
                finally:
                    await follower.stop()
                    await self._clean_up(client)
        finally:
            calls.close()
            self._load.end()
            await asyncio.to_thread(thread.join)

    async def _client(self, link: int) -> Client:
        return await Client.connect(
            self._address,
            via=self._places.connections[link],
            minor=1,
            slots=_CONTROL_SLOTS,
            message_bytes=self.plan.size + _MESSAGE_EXTRA,
            credential=self._credential,
            call_s=_PATIENCE_S,
            patience_s=_PATIENCE_S,
        )

    # Sessions.

    async def _add(self, client: Client, number: int) -> None:
        with self._places.for_new(number) as link:
            await self._add_to(link, client, number)

    async def _add_to(self, link: int, client: Client, number: int) -> None:
        """Makes a session and its file, and leaves them to the load."""
        plan, state = self.plan, self._state
        session = await client.session(plan.depth, connection=self._places.connections[link])
        most = min(session.read_bytes, session.write_bytes)
        if most < plan.size:
            raise LoadError(f"the server takes {most} bytes a call at most: use --size {most}")
        handed = await session.hand_over()
        path = f"{plan.directory.rstrip('/')}/{self._prefix}-{number}"
        file = await client.open(path, "rw", create=True)
        state.files.append(file)
        stateid = Encoder()
        file.stateid.encode(stateid)
        added = self._load.add_session(
            link,
            session_id=handed.session_id,
            sequences=[slot.sequence - 1 for slot in handed.slots],
            handle=file.handle,
            stateid=bytes(stateid),
            credential=self._credential_bytes,
            seed=plan.session_seed(number),
            file_bytes=plan.file_bytes,
        )
        self._places.sessions[added] = handed.session_id

    async def _try_add(self, client: Client, number: int) -> None:
        try:
            await self._add(client, number)
        except OperationFailed as error:
            advice = _ADVICE.get(error.status, "")
            self._state.refused.append(f"session {number}: {error}{advice}")
        except RpcError as error:
            self._state.refused.append(f"session {number}: {error}")

    async def _add_all(self, client: Client) -> None:
        """All of them, with their files filled."""
        await self._add_some(client, range(self.plan.sessions))
        self._check(self._load.figures())
        self._check(await self._filled())

    async def _add_some(self, client: Client, numbers: Iterable[int]) -> None:
        turn = asyncio.Semaphore(_SETUPS_AT_ONCE)

        async def add(number: int) -> None:
            async with turn:
                await self._try_add(client, number)

        await asyncio.gather(*(add(number) for number in numbers))

    async def _filled(self) -> Figures:
        """When all files are, of sessions that work."""
        figures = self._look()
        end_s = time.monotonic() + _FILL_S
        while figures.filled + figures.failed < figures.sessions:
            if time.monotonic() > end_s:
                raise LoadError(
                    f"the files could not be written in {_FILL_S:g} s: use fewer --sessions or a "
                    "smaller --file-size"
                )
            self._tell(f"writing files: {figures.filled} of {figures.sessions}")
            await asyncio.sleep(_LOOK_S)
            figures = self._look()
        return figures

    def _look(self) -> Figures:
        """Figures of now; with the latencies since the look before, which nobody else sees."""
        return self._load.figures()

    def _check(self, figures: Figures) -> None:
        """There has to be a session that works."""
        if figures.sessions > figures.failed:
            return
        words = [self._load.session(i).words for i in range(figures.sessions)]
        why = next((named(one) for one in words if one), None)
        lost = next(iter(self._lost()), None)
        raise LoadError(why or lost or next(iter(self._state.refused), "no session was made"))

    async def _ramp(self, client: Client, numbers: Iterable[int], rate: float) -> None:
        """One session after the other, each at its time, however long another one takes."""
        started_s = time.monotonic()
        async with asyncio.TaskGroup() as group:
            for place, number in enumerate(numbers):
                due_s = started_s + place / rate
                await asyncio.sleep(max(due_s - time.monotonic(), 0))
                group.create_task(self._try_add(client, number))

    async def _tide(self) -> None:
        started_s = time.monotonic()
        while True:
            await asyncio.sleep(_TIDE_S)
            self.set_active(self.plan.active(time.monotonic() - started_s))

    # Measuring.

    async def _measure(self, client: Client) -> Result:
        await self._prepare(client)
        cpu_s = time.process_time()
        before = self._load.figures()
        self._load.begin()
        before = before._replace(now_ns=self._load.figures().began_ns)
        total = Latency()
        before = await self._go_on(client, before, total)
        self._load.stop()
        end_ns = before.now_ns
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
            refused=tuple(self._state.refused),
            lost=tuple(self._lost()),
            connections=self._places.opened,
            latency=total,
        )

    async def _prepare(self, client: Client) -> None:
        """What is there before anything is measured."""
        if self.plan.ramp is None:
            await self._add_all(client)
        if self.plan.tide is not None:
            self.set_active(self.plan.active(0))

    async def _go_on(self, client: Client, before: Figures, total: Latency) -> Figures:
        """Until time is up or no session is left; all latencies go into total. The last figures."""
        ramp = None
        if self.plan.ramp is not None:
            sessions = self._ramp(client, range(self.plan.sessions), self.plan.ramp)
            ramp = asyncio.create_task(sessions)
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
        self._show(Interval.between(before, after))
        return after

    async def _drain(self) -> Figures:
        """Until the last operation was answered, or nobody answers."""
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

    async def _clean_up(self, client: Client) -> None:
        """Leaves nothing behind, as far as the server can still be reached."""
        self._load.stop()
        if self._places.is_lost:
            return
        turn = asyncio.Semaphore(_SETUPS_AT_ONCE)

        async def remove(file: File) -> None:
            async with turn:
                await file.close()
                await client.remove(file.path)

        with contextlib.suppress(TimeoutError, RpcError, NfsError, LivedmaError):
            async with asyncio.timeout(_PATIENCE_S):
                await self._drain()
                await asyncio.gather(*(remove(file) for file in self._state.files))
                links = self._load.places()
                for number, session_id in self._places.sessions.items():
                    connection = self._places.connections.get(links[number])
                    if connection is not None and (transport := connection.transport) is not None:
                        destroy = destroy_session(session_id)
                        await connection.perform(transport, client.identity.terms, [destroy])


def _status_name(operation: int, status: int) -> str:
    try:
        return f"{Op(operation).name} {Status(status).name}"
    except ValueError:
        return f"operation {operation} status {status}"
