# SPDX-License-Identifier: BSD-2-Clause
"""A client that cannot be asked to move: its connection is cut, and it comes back to a larger one.

Our own client without guidance does what the kernel's does: it connects again, and goes on.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import ExitStack, asynccontextmanager, contextmanager
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from livedma.control.act.budget import HostBudget
from livedma.control.act.hands import Progress, ServiceHands
from livedma.control.events import Event, Events
from livedma.control.policy.plan import Migrate
from livedma.errors import BudgetError, LivedmaError
from livedma.nfs import Client, File
from livedma.nfs.server.comebacks import Comeback
from livedma.nfs.server.config import Config
from livedma.nfs.server.service import NfsService, ServiceOptions
from livedma.rdma import Device
from livedma.rpc import rdma_client
from livedma.rpc.client import Transport
from livedma.rpc.rdma_server import Options, RdmaConnection
from livedma.rpc.rdma_terms import Terms
from needs import needs
from scale import at_scale

pytestmark = pytest.mark.slow

_NET = f"127.{1 + os.getpid() // 250 % 250}.{1 + os.getpid() % 250}"
SERVER, CLIENT, PORT = f"{_NET}.66", f"{_NET}.67", 20054
LIMIT_S = 90.0
MIB = 1 << 20
CHAINS, STEPS, BLOCK = 4, 40, 48 << 10
CUTS = at_scale(40, 10)


class Rig:
    """A server with hands, and what they tell."""

    def __init__(self, service: NfsService, budget: HostBudget) -> None:
        self.service, self.budget = service, budget
        self.events = Events()
        self.hands = ServiceHands(service, budget, self.events)

    @property
    def connections(self) -> list[RdmaConnection]:
        return self.service.rdma[0].connections

    @property
    def sessions(self) -> list[bytes]:
        return [one.id for one in self.service.server.sessions.all()]

    async def only(self) -> RdmaConnection:
        await until(lambda: len(self.connections) == 1 and self.connections[0].is_open)
        return self.connections[0]

    def begin(
        self, connection: RdmaConnection, length: int = 6 * MIB, granted: int = 100
    ) -> Migrate:
        ret = Migrate(connection.number, length, granted)
        assert "cannot be asked" in self.hands.carry_out(ret).text
        return ret

    def progress(self, action: Migrate) -> Progress:
        found = self.hands.progress(action)
        assert found is not None
        return found

    async def over(self, action: Migrate) -> Event:
        await until(lambda: self.progress(action).is_over)
        return next(
            one
            for one in reversed(self.events.after())
            if one.connection == action.connection and one.kind in ("done", "failed")
        )


@contextmanager
def rig(tmp_path: Path, budget: int | None = None, **config: Any) -> Iterator[Rig]:
    needs(os.geteuid() == 0, "a server that acts for several users needs root")
    export = tmp_path / "export"
    export.mkdir()
    service_options = ServiceOptions(
        addresses=[SERVER],
        tcp_port=None,
        rdma_port=PORT,
        state=tmp_path / "state",
        config=Config(squash="none", **config),
        rdma=Options(window_bytes=4 * MIB, mapped_bytes=2 * MIB),
    )
    with ExitStack() as stack:
        service = stack.enter_context(NfsService(export, service_options))
        ret = Rig(service, stack.enter_context(HostBudget(service, budget)))
        stack.callback(ret.hands.close)
        yield ret


async def until(condition: Callable[[], object]) -> None:
    async with asyncio.timeout(LIMIT_S):
        while not condition():
            await asyncio.sleep(0.005)


@asynccontextmanager
async def connected(device: Device) -> AsyncIterator[Client]:
    async def connect(address: str, port: int) -> Transport:
        return await rdma_client.connect(address, port, device=device)

    async with asyncio.timeout(LIMIT_S), Client.connect(SERVER, PORT, connect) as client:
        yield client


def with_client(work: Callable[[Client, Device], Awaitable[None]]) -> None:
    async def run() -> None:
        with Device(CLIENT) as device:
            async with connected(device) as client:
                await use(client)
                await work(client, device)
                await use(client)

    asyncio.run(run())


async def use(client: Client, name: str = "/file") -> None:
    data = os.urandom(3 * 65536 + 5)
    async with client.open(name, "rw", create=True) as file:
        await file.write(0, data)
        assert await file.read(0, len(data)) == data


def block(chain: int, step: int) -> bytes:
    return f"{chain:04}{step:04}".encode() * (BLOCK // 8)


def test_each_request_is_executed_once(tmp_path: Path) -> None:
    """A second RENAME of the same step would be NOENT, a second exclusive MKDIR EXIST."""
    done = asyncio.Event()
    steps = [0] * CHAINS

    async def rename_and_write(client: Client, file: File, chain: int) -> None:
        while not done.is_set() or steps[chain] < STEPS:
            step = steps[chain]
            await file.write(step * BLOCK, block(chain, step))
            await client.rename(f"/chain{chain}-{step}", f"/chain{chain}-{step + 1}")
            await client.mkdir(f"/step{chain}-{step}")
            steps[chain] += 1

    async def migrate(it: Rig) -> None:
        for number in range(CUTS):
            connection = await it.only()
            begun = sum(steps)
            await until(lambda at=begun: sum(steps) > at)  # type: ignore[misc]
            action = it.begin(connection, (4 + number % 3) * MIB, 80 + number)
            told = await it.over(action)
            assert told.kind == "done", told.line
            new = await it.only()
            assert told.data["successor"] == new.number
            assert told.line.startswith(
                f"done      connection {connection.number} -> {new.number}: 1 session in "
            )
            assert new.credits == 80 + number
            assert new.memory.window.linked > (4 + number % 3) * MIB - (128 << 10)
        done.set()

    with rig(tmp_path) as it:

        async def work(client: Client, _: Device) -> None:
            before = it.sessions
            files = []
            for chain in range(CHAINS):
                await client.mkdir(f"/chain{chain}-0")
                files.append(await client.open(f"/data{chain}", "rw", create=True))
            await asyncio.gather(
                migrate(it), *(rename_and_write(client, file, n) for n, file in enumerate(files))
            )
            for file in files:
                await file.close()
            assert it.sessions == before  # none was made anew
            assert it.hands.pause_s is not None and it.hands.pause_s > 0

        with_client(work)
        export = it.service.directory
        names = {path.name for path in export.iterdir()} - {"file"}
        made = {f"step{chain}-{step}" for chain in range(CHAINS) for step in range(steps[chain])}
        ends = {f"chain{chain}-{steps[chain]}" for chain in range(CHAINS)}
        assert names == made | ends | {f"data{chain}" for chain in range(CHAINS)}
        for chain in range(CHAINS):
            expected = b"".join(block(chain, step) for step in range(steps[chain]))
            assert (export / f"data{chain}").read_bytes() == expected


def test_without_the_memory_it_comes_back_as_any_other(tmp_path: Path) -> None:
    with rig(tmp_path) as it:

        async def work(client: Client, _: Device) -> None:
            action = it.begin(await it.only())
            await until(lambda: not it.connections)
            it.budget.limit_bytes = 3 * MIB  # as if others had taken the rest
            await use(client)
            told = await it.over(action)
            assert told.kind == "failed"
            assert "1 session in " in told.text and "budget" in told.text
            new = await it.only()
            assert told.data["successor"] == new.number
            assert (new.credits, new.memory.window.linked) == (64, 2 * MIB)
            assert new.memory.window.size == 6 * MIB  # it can still be extended

        with_client(work)


def test_a_client_that_stays_away_is_not_waited_for_for_ever(tmp_path: Path) -> None:
    with rig(tmp_path, lease_s=1, grace_s=1) as it:

        async def run() -> None:
            with Device(CLIENT) as device:
                gone = await gone_without_a_word(device, it)
                told = await it.over(gone)
                assert told.kind == "failed" and "has not come back within 1 s" in told.text
                async with connected(device) as client:
                    await use(client)
                    connection = await it.only()
                    assert connection.memory.window.size == 4 * MIB

        asyncio.run(run())


async def gone_without_a_word(device: Device, it: Rig) -> Migrate:
    """A client is told to come back, and does not; its session is still there."""

    async def connect(address: str, port: int) -> Transport:
        return await rdma_client.connect(address, port, device=device)

    client = await Client.connect(SERVER, PORT, connect)
    await use(client)
    ret = it.begin(await it.only())
    client.connection.close()  # it is not made again
    return ret


def test_what_is_prepared_can_be_given_up(tmp_path: Path) -> None:
    with rig(tmp_path) as it:

        async def work(client: Client, _: Device) -> None:
            action = it.begin(await it.only())
            await until(lambda: not it.connections)
            it.hands.give_up(action)
            told = await it.over(action)
            assert told.kind == "failed" and "nothing is kept for it any more" in told.text
            await use(client)
            assert (await it.only()).memory.window.size == 4 * MIB

        with_client(work)


def test_others_behind_the_same_address_get_no_memory(tmp_path: Path) -> None:
    """Only a connection by which one of the sessions comes gets what was prepared for these."""
    with rig(tmp_path) as it:

        async def work(client: Client, device: Device) -> None:
            action = it.begin(await it.only())
            await until(lambda: not it.connections)  # its client has no call to make just now
            async with connected(device) as stranger:
                await use(stranger, "/stranger")
                strange = await it.only()
                assert strange.memory.window.linked == 2 * MIB and strange.credits == 64
                assert not it.progress(action).is_over
                await use(client)
                told = await it.over(action)
                assert told.kind == "done" and told.data["successor"] != strange.number
                (new,) = [one for one in it.connections if one is not strange]
                assert new.memory.window.linked > 5 * MIB and new.credits == 100
                assert strange.memory.window.linked == 2 * MIB

        with_client(work)


def test_a_session_is_known_only_by_a_connection_that_was_expected() -> None:
    left = SimpleNamespace(peer="192.0.2.1", options=Options(), close=lambda _: None)
    comeback = Comeback(cast(Any, left), frozenset([b"its"]), Terms(8 * MIB, 8 * MIB, 100))
    assert not comeback.awaits("192.0.2.1")  # the connection is still there
    comeback.ends("")
    assert comeback.awaits("192.0.2.1") and not comeback.awaits("192.0.2.2")
    comeback.bound(b"its", 7)  # a connection that was there before, or from elsewhere
    assert comeback.successor is None
    for number in (8, 9):
        comeback.guest().came(cast(Any, SimpleNamespace(number=number)))
    comeback.bound(b"another's", 8)
    assert comeback.successor is None
    comeback.bound(b"its", 9)
    assert comeback.successor is not None and comeback.successor.number == 9
    assert not comeback.awaits("192.0.2.1")
    comeback.bound(b"its", 8)
    assert comeback.successor.number == 9 and comeback.wait(1, 0) == 1


def test_nobody_waits_long_for_the_memory_of_a_connection_that_does_not_end() -> None:
    """A peer that connects from the client's address occupies a thread that accepts."""
    waits: list[float] = []
    left = SimpleNamespace(
        peer="192.0.2.1",
        close=lambda _: None,
        wait_until_gone=lambda within_s: waits.append(within_s),
    )
    comeback = Comeback(cast(Any, left), frozenset([b"its"]), Terms(8 * MIB, 8 * MIB, 100))
    comeback.ends("")
    comeback.wait_until_left()
    assert len(waits) == 1 and 0 < waits[0] <= 1
    comeback._left_s -= 1
    comeback.wait_until_left()
    assert len(waits) == 1


def test_with_a_full_budget_it_waits_for_its_own_memory(tmp_path: Path) -> None:
    """The old connection has all that there is, and is at work in the store when it ends."""
    with rig(tmp_path, budget=2 * MIB, store_delay_s=0.3) as it:

        async def work(client: Client, _: Device) -> None:
            connection = await it.only()
            async with client.open("/busy", "rw", create=True) as file:
                writing = asyncio.create_task(file.write(0, bytes(65536)))
                await until(lambda: connection.statistics()["in_progress"])
                action = it.begin(connection, 2 * MIB, 64)
                await writing
            told = await it.over(action)
            assert told.kind == "done", told.line
            assert not it.service.rdma[0].refused

        with_client(work)


def test_what_cannot_be_moved_stays(tmp_path: Path) -> None:
    with rig(tmp_path) as it:

        async def work(client: Client, _: Device) -> None:
            connection = await it.only()
            for length, granted in ((1, 64), (1 << 60, 64), (MIB, 0), (MIB, 1 << 20)):
                with pytest.raises(ValueError):
                    it.hands.carry_out(Migrate(connection.number, length, granted))
            with pytest.raises(LivedmaError, match="connection 9999 has ended"):
                it.hands.carry_out(Migrate(9999, MIB, 64))
            it.budget.limit_bytes = 4 * MIB
            with pytest.raises(BudgetError, match="2 MiB are left"):
                it.hands.carry_out(Migrate(connection.number, 5 * MIB, 64))
            it.budget.limit_bytes = None
            await client.rest()
            with pytest.raises(LivedmaError, match="no session"):
                it.hands.carry_out(Migrate(connection.number, MIB, 64))
            assert connection.is_open
            await client.resume(client.connection)
            prepare = partial(it.service.comebacks.prepare, connection.number)
            comeback = prepare(mapped_bytes=4 * MIB, credits_wanted=64)
            with pytest.raises(LivedmaError, match="is being moved already"):
                it.begin(connection)
            it.service.comebacks.forget(comeback)
            action = it.begin(connection)
            await use(client)
            assert (await it.over(action)).kind == "done"

        with_client(work)
