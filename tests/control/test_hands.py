# SPDX-License-Identifier: BSD-2-Clause
"""Hands on a real server: each action as a whole or not at all, within the budget."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from livedma.control.act.budget import HostBudget
from livedma.control.act.hands import ServiceHands
from livedma.control.policy.plan import (
    Action,
    Extend,
    RefuseSessions,
    SetCredits,
    SetSlots,
    Shrink,
    Spread,
)
from livedma.errors import BudgetError, LivedmaError, NoRoomError
from livedma.nfs import Client
from livedma.nfs.client.errors import OperationFailed
from livedma.nfs.server.service import NfsService
from livedma.rdma import Device
from livedma.rpc import rdma_client
from livedma.rpc.client import RpcError, Transport
from livedma.rpc.rdma_server import Options, RdmaConnection
from served import served

pytestmark = pytest.mark.slow

_NET = f"127.{1 + os.getpid() // 250 % 250}.{1 + os.getpid() % 250}"
SERVER, CLIENT, PORT = f"{_NET}.62", f"{_NET}.63", 20053
LIMIT_S = 60.0
MIB = 1 << 20


@pytest.fixture
def service(tmp_path: Path) -> Iterator[NfsService]:
    options = Options(window_bytes=8 * MIB, mapped_bytes=2 * MIB)
    with served(tmp_path, SERVER, PORT, rdma=options) as service:
        yield service


@asynccontextmanager
async def connected(device: Device, **options: Any) -> AsyncIterator[Client]:
    async def connect(address: str, port: int) -> Transport:
        return await rdma_client.connect(address, port, device=device)

    async with (
        asyncio.timeout(LIMIT_S),
        Client.connect(SERVER, PORT, connect, **options) as client,
    ):
        yield client


def with_client(
    service: NfsService, work: Callable[[Client, RdmaConnection], Awaitable[None]]
) -> None:
    async def run() -> None:
        with Device(CLIENT) as device:
            async with connected(device) as client:
                await use(client)
                (connection,) = service.rdma[0].connections
                await work(client, connection)
                await use(client)

    asyncio.run(run())


async def use(client: Client) -> None:
    data = os.urandom(3 * 65536 + 5)
    async with client.open("/file", "rw", create=True) as file:
        await file.write(0, data)
        assert await file.read(0, len(data)) == data


def undo(hands: ServiceHands, actions: tuple[Action, ...]) -> None:
    for action in actions:
        hands.carry_out(action)


def test_memory_credits_and_slots_grow_together_and_all_is_undone(service: NfsService) -> None:
    async def work(client: Client, connection: RdmaConnection) -> None:
        hands = ServiceHands(service, HostBudget(service))
        (session,) = service.server.sessions.all()
        slots, before = session.slots.target, connection.memory.buffers
        outcome = hands.carry_out(
            Extend(connection.number, MIB, 100, {session.id.hex(): 2 * slots, "gone": 5})
        )
        assert connection.memory.buffers == before + 16
        assert (connection.credits, session.slots.target) == (100, 2 * slots)
        assert "100 credits" in outcome.text
        await use(client)
        undo(hands, outcome.undo)
        assert (connection.memory.buffers, connection.credits) == (before, 64)
        assert session.slots.target == slots

    with_client(service, work)


def test_what_is_left_of_a_window_can_be_had_with_its_credits(service: NfsService) -> None:
    async def work(client: Client, connection: RdmaConnection) -> None:
        hands = ServiceHands(service, HostBudget(service))
        hands.carry_out(Extend(connection.number, connection.memory.room, 128))
        assert connection.memory.window.linked > 8 * MIB - (128 << 10)
        await use(client)
        with pytest.raises(NoRoomError):
            hands.carry_out(Extend(connection.number, 65536, 1000))
        assert connection.credits == 128

    with_client(service, work)


def test_memory_shrinks_and_credits_are_set(service: NfsService) -> None:
    async def work(client: Client, connection: RdmaConnection) -> None:
        hands = ServiceHands(service, HostBudget(service))
        hands.carry_out(Shrink(connection.number, MIB, 16))
        assert connection.credits == 16
        await use(client)
        outcome = hands.carry_out(SetCredits(connection.number, 80))
        await use(client)
        undo(hands, outcome.undo)
        assert connection.credits == 16

    with_client(service, work)


def test_the_budget_binds_what_is_there_and_what_comes(service: NfsService) -> None:
    async def work(client: Client, connection: RdmaConnection) -> None:
        with HostBudget(service, 3 * MIB) as budget, Device(f"{_NET}.64") as other:
            hands = ServiceHands(service, budget)
            assert budget.room().budget_bytes == MIB
            for action in (
                Extend(connection.number, 2 * MIB, 64),
                Extend(connection.number, MIB, 65),
                SetCredits(connection.number, 512),
            ):
                with pytest.raises(BudgetError, match="2 MiB of 3 MiB are mapped"):
                    hands.carry_out(action)
            assert (connection.credits, connection.memory.window.linked) == (64, 2 * MIB)
            with pytest.raises((RpcError, OSError, LivedmaError)):
                async with connected(other):
                    pytest.fail("another connection was made")
            hands.carry_out(Extend(connection.number, MIB, 64))
            assert budget.room().budget_bytes == 0

    with_client(service, work)


def test_after_the_budget_others_may_come(service: NfsService) -> None:
    async def work(client: Client, connection: RdmaConnection) -> None:
        with HostBudget(service, 2 * MIB):
            pass
        with Device(f"{_NET}.64") as other:
            async with connected(other) as another:
                await use(another)

    with_client(service, work)


def test_sessions_are_refused_and_admitted(service: NfsService) -> None:
    async def work(client: Client, connection: RdmaConnection) -> None:
        hands = ServiceHands(service, HostBudget(service))
        outcome = hands.carry_out(RefuseSessions(True))
        with pytest.raises(OperationFailed, match="NOSPC"):
            await client.session()
        await use(client)
        undo(hands, outcome.undo)
        async with client.session():
            pass

    with_client(service, work)


def test_a_client_that_does_not_ask_cannot_be_told(service: NfsService) -> None:
    async def work(client: Client, connection: RdmaConnection) -> None:
        hands = ServiceHands(service, HostBudget(service))
        with pytest.raises(LivedmaError, match="does not ask"):
            hands.carry_out(Spread(connection.number))

    with_client(service, work)


@pytest.mark.parametrize(
    "action", [Extend(9999, 1, 1), Shrink(9999, 1, 1), SetCredits(9999, 1), SetSlots("ab", 1)]
)
def test_what_has_ended_is_said(service: NfsService, action: Action) -> None:
    with pytest.raises(LivedmaError, match="has ended"):
        ServiceHands(service, HostBudget(service)).carry_out(action)
