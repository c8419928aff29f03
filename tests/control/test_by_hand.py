# SPDX-License-Identifier: BSD-2-Clause
"""All doors to a server's levers are one: the same budget, and an event whatever comes of it."""

from __future__ import annotations

import asyncio
import json
import os
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from http.client import HTTPConnection
from pathlib import Path
from typing import Any

import pytest
from tests.control.live import CLIENT, LIMIT_S, MIB, PORT, SERVER, running, wait_for
from tests.ui.terminal import Terminal

from livedma.cli import main
from livedma.control.running import Controlled, Options
from livedma.errors import BudgetError, LivedmaError
from livedma.memory import ledger
from livedma.monitor.snapshot import Connection
from livedma.nfs import Client
from livedma.nfs.control import Control, ControlError
from livedma.nfs.server.facts import Facts
from livedma.nfs.server.service import NfsService, ServiceOptions
from livedma.rdma import Device
from livedma.rpc import rdma_client
from livedma.rpc.client import Transport
from livedma.ui import feeds
from livedma.ui.web.server import Web

pytestmark = pytest.mark.slow

TOKEN = "the-token-of-a-page-with-levers"
BUDGET = 6 * MIB


@dataclass(frozen=True)
class Site:
    """A server with a budget, and a connection of 4 MiB."""

    it: Controlled
    control: Control
    path: Path
    number: int
    page_port: int

    @property
    def mapped(self) -> int:
        return self.it.budget.mapped_bytes

    def events(self, *kinds: str) -> list[dict[str, Any]]:
        return [one for one in self.control.ask("decisions")["events"] if one["kind"] in kinds]


@contextmanager
def connected(it: Controlled) -> Iterator[int]:
    async def connect(address: str, port: int) -> Transport:
        return await rdma_client.connect(address, port, device=device)

    def seen() -> Connection | None:
        """With its first call, which says how many credits it asks for: an extend goes by that."""
        view = it.controller.view(LIMIT_S)
        found = () if view is None else view.snapshot.connections
        return next((one for one in found if one.credits_asked), None)

    with Device(CLIENT) as device, asyncio.Runner() as runner:
        client = runner.run(Client.connect(SERVER, PORT, connect))
        yield wait_for(seen).number
        runner.run(client.close())


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    options = Options("static", budget_bytes=BUDGET, monitor="server")
    sock = socket.create_server(("127.0.0.1", 0))
    with (
        running(tmp_path, options) as (it, control),
        Web(it, sock, TOKEN),
        connected(it) as number,
    ):
        yield Site(it, control, tmp_path / "control", number, sock.getsockname()[1])


# Each door asks for more memory, and says why it got none.


def by_the_socket(site: Site, length: int) -> str:
    try:
        site.control.ask("extend", connection=site.number, bytes=length)
    except ControlError as error:
        return str(error)
    return ""


def by_the_page(site: Site, length: int) -> str:
    page = HTTPConnection("127.0.0.1", site.page_port, timeout=LIMIT_S)
    body = json.dumps({"connection": site.number, "bytes": length})
    headers = {"Authorization": f"Bearer {TOKEN}", "Content-Type": "application/json"}
    page.request("POST", "/do/extend", body, headers)
    answer = page.getresponse()
    said = json.loads(answer.read())
    page.close()
    assert answer.status in (200, 409), said
    return "" if answer.status == 200 else str(said["error"])


def by_top(site: Site, length: int) -> str:
    async def run() -> str:
        it = Terminal(act=partial(feeds.act, site.path))
        async with it.app.run_test(size=(200, 30)) as pilot:
            it.pilot = pilot
            await pilot.pause()
            await it.press("plus")
            await it.press(*f"{site.number}", "space", *f"{length}", "enter")
            async with asyncio.timeout(LIMIT_S):
                while not it.lines[-1].startswith(" extend"):
                    await it.settle()
            return it.lines[-1]

    said = asyncio.run(run())
    return "" if said.startswith(f" extend, connection {site.number}: mapped") else said


def by_the_command(site: Site, length: int) -> str:
    status = main(["extend", str(site.number), str(length), "--control", str(site.path)])
    return "" if status == 0 else "exceed the budget"  # its words: tests/cli/test_levers.py


def by_python(site: Site, length: int) -> str:
    try:
        site.it.by_hand.extend(site.number, length)
    except BudgetError as error:
        return str(error)
    return ""


DOORS = [by_the_socket, by_the_page, by_top, by_the_command, by_python]


@pytest.mark.parametrize("door", DOORS)
def test_beyond_the_budget_memory_stays_and_an_event_says_so(
    site: Site, door: Callable[[Site, int], str]
) -> None:
    before = site.mapped
    assert "exceed the budget" in door(site, 3 * MIB)
    assert site.mapped == before
    (told,) = site.events("failed")
    assert told["connection"] == site.number and "exceed the budget" in told["text"]
    assert told["data"] == {"by": "hand", "do": "extend", "bytes": 3 * MIB}
    assert not site.events("hand")
    assert door(site, MIB) == ""
    assert site.mapped == before + MIB
    (told,) = site.events("hand")
    assert told["data"]["action"] == "Extend" and told["data"]["bytes"] == MIB


def test_a_connection_that_was_just_made_is_found(site: Site) -> None:
    async def connect(address: str, port: int) -> Transport:
        return await rdma_client.connect(address, port, device=device)

    async def extended() -> str:
        async with Client.connect(SERVER, PORT, connect):
            number = max(one["number"] for one in site.control.ask("connections"))
            assert number > site.number
            return str(site.control.ask("extend", connection=number, bytes=MIB)["done"])

    site.it.budget.limit_bytes = None
    with Device("127.0.0.9") as device:
        assert asyncio.run(extended()).startswith("mapped 4 MiB -> 5")


def test_top_shows_what_the_budget_refused(site: Site, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(ControlError, match="exceed the budget"):
        site.control.ask("extend", connection=site.number, bytes=3 * MIB)
    capsys.readouterr()
    assert main(["top", "--once", "--control", str(site.path)]) == 0
    said = " ".join(capsys.readouterr().out.split())
    why = f"failed connection {site.number}: by hand, extend: 3 MiB more would exceed the budget"
    assert why in said, said


def test_what_python_asks_of_a_connection_is_within_the_budget_too(site: Site) -> None:
    (connection,) = site.it.service.rdma[0].connections
    before, granted = site.mapped, connection.credits
    for ask in (
        lambda: connection.memory.extend(3 * MIB),
        lambda: connection.memory.make_ready_for(512),
        lambda: connection.extend(3 * MIB, granted + 1),
        lambda: setattr(connection, "credits", 512),
    ):
        with pytest.raises(BudgetError):
            ask()
        assert (site.mapped, connection.credits) == (before, granted)


def test_a_part_of_a_buffer_is_charged_as_what_is_mapped(site: Site) -> None:
    """One byte more maps a whole buffer: the budget has to have room for that."""
    before = site.mapped
    site.it.budget.limit_bytes = before + 40_000
    with pytest.raises(BudgetError):
        site.it.by_hand.extend(site.number, 1)
    assert site.mapped == before


def test_each_lever_leaves_an_event(site: Site) -> None:
    (session,) = site.control.ask("sessions")
    for do, parameters in (
        ("extend", {"bytes": MIB}),
        ("shrink", {"bytes": MIB}),
        ("set_credits", {"credits": 32}),
        ("set_slots", {"session": session["id"], "slots": 3}),
        ("refuse_sessions", {"refuse": True}),
        ("refuse_sessions", {"refuse": False}),
        ("cut", {}),
    ):
        if "session" not in parameters and "refuse" not in parameters:
            parameters["connection"] = site.number
        done = site.control.ask(do, **parameters)["done"]
        assert site.events("hand")[-1]["text"] == done
    assert len(site.events("hand")) == 7
    assert not site.events("failed")


@pytest.mark.parametrize(
    ("do", "parameters", "why"),
    [
        ("extend", {"bytes": 64 * MIB}, "its window has room for"),
        ("set_credits", {"credits": 512}, "exceed the budget"),
        ("set_slots", {"session": "ab", "slots": 5}, "session ab has ended"),
        ("spread", {}, "does not ask"),
        ("migrate", {"bytes": 64 * MIB, "credits": 64}, "exceed the budget"),
        ("cut", {"connection": 99}, "no connection 99"),
        ("shrink", {"connection": 99, "bytes": MIB}, "no connection 99"),
        ("policy", {"name": "hope"}, "no policy 'hope'"),
    ],
)
def test_what_cannot_be_done_leaves_an_event(
    site: Site, do: str, parameters: dict[str, Any], why: str
) -> None:
    before = site.mapped
    if parameters.keys().isdisjoint({"session", "name"}):
        parameters = {"connection": site.number, **parameters}
    with pytest.raises(ControlError, match=why):
        site.control.ask(do, **parameters)
    (told,) = site.events("failed")
    assert why in told["text"] and told["data"]["do"] == do
    assert site.mapped == before and not site.events("hand")


def test_a_window_counts_what_its_server_maps(site: Site) -> None:
    def entry() -> ledger.Entry:
        found = ledger.read(os.getpid()) or []
        return max((one for one in found if one.kind == "window"), key=lambda one: one.reserved)

    (connection,) = site.it.service.rdma[0].connections
    window = connection.memory.window
    before, told = window.statistics(), entry()
    site.it.by_hand.extend(site.number, MIB)
    after = window.statistics()
    assert after.extends > before.extends and after.mapped == before.mapped + MIB
    assert after.last_extend_s != before.last_extend_s
    assert (entry().mapped, entry().links >= told.links) == (told.mapped + MIB, True)
    site.it.by_hand.shrink(site.number, MIB)
    wait_for(lambda: window.statistics().mapped == before.mapped)
    wait_for(lambda: entry().mapped == told.mapped)


def test_without_a_controller_there_is_no_lever(tmp_path: Path) -> None:
    (tmp_path / "export").mkdir()
    service_options = ServiceOptions(
        addresses=[SERVER],
        tcp_port=None,
        rdma_port=PORT,
        state=tmp_path / "state",
        control=tmp_path / "control",
    )
    with (
        NfsService(tmp_path / "export", service_options) as service,
        Control(tmp_path / "control") as control,
    ):
        assert set(Facts(service).methods()).isdisjoint({"extend", "shrink", "cut", "migrate"})
        with pytest.raises(ControlError, match="there is no 'extend'"):
            control.ask("extend", connection=1, bytes=MIB)
        with pytest.raises(LivedmaError, match="no connection 99"):
            service.cut(99)


def test_a_connection_with_more_receives_than_memory_is_charged_for_them(site: Site) -> None:
    """A client that was asked to move to little memory and many credits needs room for both."""
    server = site.it.service.rdma[0]
    asked: list[int] = []
    admitting = server.admitting

    def note(length: int) -> Any:
        asked.append(length)
        return admitting(length)

    server.admitting = note
    options = server.options
    server.options = replace(options, mapped_bytes=options.buffer_bytes, credits=256)
    before = site.mapped

    async def connect(address: str, port: int) -> Transport:
        return await rdma_client.connect(address, port, device=device)

    with Device("127.0.0.9") as device, pytest.raises(Exception):  # noqa: B017
        asyncio.run(Client.connect(SERVER, PORT, connect))
    assert asked and asked[0] > BUDGET - before
    assert site.mapped == before
