# SPDX-License-Identifier: BSD-2-Clause
"""What a server shows, and what its levers do to clients: by the control socket, over RDMA."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from livedma._native.storage import SPARE_RECEIVES
from livedma.control.running import Options as Steering
from livedma.control.running import controlled
from livedma.nfs import Client
from livedma.nfs.client.errors import OperationFailed
from livedma.nfs.control import Control, ControlError
from livedma.nfs.numbers import Status
from livedma.nfs.server.service import NfsService
from livedma.rdma import Device
from livedma.rpc import rdma_client
from livedma.rpc.client import Transport
from livedma.rpc.rdma_server import Options
from served import served

pytestmark = pytest.mark.slow

SERVER, CLIENT, PORT = "127.0.0.2", "127.0.0.3", 20051
LIMIT_S = 60.0
MIB = 1 << 20


@pytest.fixture
def service(tmp_path: Path) -> Iterator[NfsService]:
    options = Options(window_bytes=8 * MIB, mapped_bytes=2 * MIB)
    steering = Steering("static", monitor="server")
    with (
        served(tmp_path, SERVER, PORT, control=tmp_path / "control", rdma=options) as service,
        controlled(service, steering) as it,
    ):
        it.start()
        yield service


@pytest.fixture
def control(service: NfsService, tmp_path: Path) -> Iterator[Control]:
    with Control(tmp_path / "control") as control:
        yield control


@asynccontextmanager
async def connected(**options: Any) -> AsyncIterator[Client]:
    with Device(CLIENT) as device:

        async def connect(address: str, port: int) -> Transport:
            return await rdma_client.connect(address, port, device=device)

        async with (
            asyncio.timeout(LIMIT_S),
            Client.connect(SERVER, PORT, connect, **options) as client,
        ):
            yield client


def with_client(work: Callable[[Client], Awaitable[None]], **options: Any) -> None:
    async def run() -> None:
        async with connected(**options) as client:
            await work(client)

    asyncio.run(run())


async def one_connection(control: Control) -> dict[str, Any]:
    """The client's, once the controller has seen it, too."""
    (found,) = control.ask("connections")
    seen: list[int] = []
    while found["number"] not in seen:
        await asyncio.sleep(0.02)
        with suppress(ControlError):  # there is no snapshot yet
            seen = [one["number"] for one in control.ask("snapshot")["connections"]]
    return dict(found)


async def use(client: Client) -> None:
    """Some of everything: what comes back is what went."""
    data = os.urandom(3 * 65536 + 5)
    async with client.open("/file", "rw", create=True) as file:
        await file.write(0, data)
        assert await file.read(0, len(data)) == data


def test_everything_is_shown(control: Control, service: NfsService) -> None:
    async def work(client: Client) -> None:
        await use(client)
        (connection,) = control.ask("connections")
        assert (connection["kind"], connection["peer"]) == ("rdma", CLIENT)
        assert connection["credits"] == connection["granted"] == 64
        assert connection["posted"] == 64 + SPARE_RECEIVES == 72  # as Linux's server has
        assert connection["calls"] == connection["fast_calls"] + connection["slow_calls"] > 5
        assert (connection["window"], connection["mapped"]) == (8 * MIB, 2 * MIB)
        (session,) = control.ask("sessions")
        assert session["connections"] == [connection["number"]]
        assert session["counters"]["executed"] > 5
        (shown,) = control.ask("clients")
        assert shown["number"] == session["client"] and shown["is_confirmed"]
        counters = control.ask("counters")
        assert counters["accelerator"]["taken"] == connection["fast_calls"] > 0
        assert counters["read"]["bytes"] == counters["write"]["bytes"] == 3 * 65536 + 5
        assert counters["storage"]["write"]["count"] > 0
        waits = control.ask("waits", connection=connection["number"])
        assert set(waits) == {"latency", "buffer_waits", "send_waits", "storage", "storage_queue"}

    with_client(work)
    assert control.ask("sessions") == control.ask("clients") == []
    assert control.ask("server")["export"] == str(service.directory)


def test_memory_grows_and_shrinks(control: Control) -> None:
    async def work(client: Client) -> None:
        before = await one_connection(control)
        control.ask("extend", connection=before["number"], bytes=MIB)
        (after,) = control.ask("connections")
        assert after["mapped"] == before["mapped"] + MIB
        assert after["buffers"] == before["buffers"] + 16
        await use(client)
        control.ask("shrink", connection=before["number"], bytes=MIB)
        (after,) = control.ask("connections")
        assert after["buffers_wanted"] == before["buffers"]
        await use(client)
        with pytest.raises(ControlError, match="has room for"):
            control.ask("extend", connection=before["number"], bytes=64 * MIB)
        control.ask("shrink", connection=before["number"], bytes=64 * MIB)
        (least,) = control.ask("connections")
        assert least["buffers_wanted"] == 1
        await use(client)  # one buffer is enough to go on

    with_client(work)


def test_credits_and_slots(control: Control) -> None:
    async def work(client: Client) -> None:
        before, (session,) = await one_connection(control), control.ask("sessions")
        for wanted in (200, 3, 64):
            control.ask("set_credits", connection=before["number"], credits=wanted)
            await use(client)
            (after,) = control.ask("connections")
            assert after["credits"] == after["granted"] == wanted
        control.ask("set_slots", session=session["id"], slots=3)
        for _ in range(3):
            await use(client)
        assert client.through.slots == 3

    with_client(work)


def test_sessions_are_refused_while_others_go_on(control: Control) -> None:
    async def work(client: Client) -> None:
        assert control.ask("refuse_sessions", refuse=True)["refuse"] is True
        with pytest.raises(OperationFailed) as refused:
            await client.session()
        assert refused.value.status == Status.NOSPC
        await use(client)
        control.ask("refuse_sessions", refuse=False)
        async with client.session() as another:
            assert another.session_id != client.through.session_id

    with_client(work)


@pytest.mark.parametrize(
    ("do", "parameters", "message"),
    [
        ("set_credits", {"connection": 99, "credits": 5}, "no connection 99"),
        ("set_credits", {"credits": 0}, "a positive number"),
        ("set_credits", {"credits": 5000}, "credits are 1 to 1024"),
        ("set_credits", {"credits": "many"}, "a positive number"),
        ("set_slots", {"session": "ab", "slots": 5}, "session ab has ended"),
        ("set_slots", {"session": "ab", "slots": 0}, "positive number of slots"),
        ("extend", {"bytes": -1}, "positive number"),
        ("shrink", {"bytes": 0.5}, "positive number"),
        ("refuse_sessions", {"refuse": 1}, "true or false"),
        ("cut", {"connection": 99}, "no connection 99"),
    ],
)
def test_what_makes_no_sense_is_said(
    control: Control, do: str, parameters: dict[str, object], message: str
) -> None:
    async def work(client: Client) -> None:
        connection = await one_connection(control)
        if do in ("set_credits", "extend", "shrink"):
            parameters.setdefault("connection", connection["number"])
        with pytest.raises(ControlError, match=message):
            control.ask(do, **parameters)
        await use(client)

    with_client(work)
