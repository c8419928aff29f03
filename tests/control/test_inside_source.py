# SPDX-License-Identifier: BSD-2-Clause
"""Snapshots by the server itself, against what clients did and what was done to them."""

from __future__ import annotations

import asyncio
import json
import os
import socket
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from dataclasses import asdict
from pathlib import Path
from typing import Literal

import pytest
from tests.control.inside_server import CLIENT, PORT, SERVER, TCP_PORT, Load, serving, wait_until
from tests.rpc.rdma_peer import Peer

from livedma._native.nfs import SessionLook
from livedma.control.observe.inside import InsideSource
from livedma.monitor.snapshot import Connection, Inside, Snapshot, Times
from livedma.monitor.snapshot import Session as SessionSeen
from livedma.nfs import Client
from livedma.nfs.load import Plan
from livedma.nfs.numbers import PROGRAM, VERSION
from livedma.nfs.server.service import NfsService
from livedma.nfs.server.state.sessions import Session
from livedma.rdma import Device
from livedma.rpc import rdma_client, tcp_client
from livedma.rpc.client import Transport
from livedma.rpc.message import Call, encode_call
from livedma.rpc.rdma_server import Options

pytestmark = pytest.mark.slow

MIB = 1 << 20
MS = 1_000_000
LENGTH = 3 * 65536 + 5


def inside(connection: Connection) -> Inside:
    assert connection.inside is not None
    return connection.inside


def waited_ns(session: SessionSeen) -> int:
    assert session.inside is not None
    return session.inside.memory_waited_ns


def until(load: Load, source: InsideSource, is_enough: Callable[[Snapshot], object]) -> Snapshot:
    """The first snapshot that shows it, while the load runs."""
    while load.is_alive():
        load.join(0.1)
        snapshot = source.snapshot()
        if snapshot.connections and is_enough(snapshot):
            return snapshot
    raise AssertionError("the load is over, and it was not seen")


def use(*work: Callable[[], object], proto: Literal["rdma", "tcp"] = "rdma") -> None:
    """A client that does each work, and before and after it writes and reads a file."""

    async def connect(address: str, port: int) -> Transport:
        if proto == "tcp":
            return await tcp_client.connect(address, port)
        return await rdma_client.connect(address, port, device=device)

    async def transfer(client: Client) -> None:
        data = os.urandom(LENGTH)
        async with await client.open("/file", "rw", create=True) as file:
            await file.write(0, data)
            assert await file.read(0, len(data)) == data

    async def run() -> None:
        port = PORT if proto == "rdma" else TCP_PORT
        async with asyncio.timeout(60), await Client.connect(SERVER, port, connect) as client:
            for step in work:
                await transfer(client)
                step()

    with Device(CLIENT) if proto == "rdma" else nullcontext() as device:
        asyncio.run(run())


@pytest.fixture
def service(tmp_path: Path) -> Iterator[NfsService]:
    with serving(tmp_path, tcp=True) as service:
        yield service


@pytest.mark.parametrize(
    ("rw", "size"), [("read", 1024), ("read", 65536), ("write", 4096), ("mix", 3 * 65536)]
)
def test_a_session_knows_what_its_client_did(
    service: NfsService, rw: Literal["read", "write", "mix"], size: int
) -> None:
    """In all its life: inline, by chunks, in several pieces."""
    ended = []

    def look(session: Session) -> None:
        _, (_, operations, *moved, _, _), times = SessionLook().again(session.slots)
        executed = session.slots.counters["executed"]
        assert operations == executed == (0 if times is None else times[0])
        ended.append((operations, *moved))

    service.server.sessions.on_gone.append(look)
    plan = Plan(sessions=6, connections=2, size=size, rw=rw, seconds=0.3, file_bytes=12 * 65536)
    with Load(plan) as load:
        pass
    wait_until(lambda: not len(service.server.sessions))
    operations, read, written = map(sum, zip(*ended, strict=True))
    assert read == service.accelerator.served("read")["bytes"]
    assert written == service.accelerator.served("write")["bytes"]
    counters = load.result.counters
    filled = 0 if rw == "write" else plan.sessions * plan.file_bytes  # before they are read
    assert (read, written) == (counters.read_bytes, counters.written_bytes + filled)
    assert operations > load.result.operations


def test_each_source_has_intervals_of_its_own(service: NfsService) -> None:
    often, seldom = InsideSource(service), InsideSource(service)
    sums = [0] * 4

    def look() -> None:
        snapshot = often.snapshot()
        (session,), (connection,) = snapshot.sessions, snapshot.connections
        assert session.read_bytes == session.written_bytes == LENGTH
        assert session.latency.count == session.operations > 0
        figures = session.operations, session.bytes, connection.operations, connection.bytes
        sums[:] = map(int.__add__, sums, figures)

    def look_at_all() -> None:
        look()
        snapshot = seldom.snapshot()
        (session,), (connection,) = snapshot.sessions, snapshot.connections
        figures = [session.operations, session.bytes, connection.operations, connection.bytes]
        assert figures == sums
        assert connection.operations > session.operations  # EXCHANGE_ID is of no session
        nothing = often.snapshot()
        assert nothing.sessions[0].operations == nothing.connections[0].operations == 0
        assert nothing.sessions[0].latency == nothing.connections[0].latency == Times()

    use(look, look, look_at_all)
    wait_until(lambda: not often.snapshot().connections)
    assert often.snapshot().sessions == ()


def test_everything_is_filled(service: NfsService) -> None:
    source = InsideSource(service)

    def look() -> None:
        snapshot = source.snapshot()
        assert snapshot == Snapshot.from_json(json.loads(json.dumps(asdict(snapshot))))
        (connection,), (rdma,) = snapshot.connections, service.rdma[0].connections
        assert snapshot.connection(rdma.number) is connection
        assert (connection.server, connection.client) == (SERVER, CLIENT)
        assert (connection.server_qpn, connection.client_qpn) == rdma.qpns
        assert min(rdma.qpns) > 1
        assert (connection.sessions, connection.in_flight) == (1, 0)
        assert connection.credits_asked > 0
        assert connection.credits_granted == 64
        mine, memory = inside(connection), rdma.memory
        assert (mine.window_bytes, mine.mapped_bytes) == (64 * MIB, 16 * MIB)
        assert (mine.first_bytes, mine.room_bytes) == (16 * MIB, memory.room)
        assert (mine.buffers, mine.buffer_bytes) == (memory.buffers, 65536)
        assert (mine.credits, mine.credits_max, mine.receives_posted) == (64, 1024, 72)
        assert mine.storage.count >= 8  # accesses, a piece each
        assert mine.storage.sum_ns >= mine.storage_queue.sum_ns
        (session,) = snapshot.sessions
        assert session.connections == (connection.number,)
        assert session.inside is not None
        assert session.inside.slots == session.inside.slots_target >= session.inside.slots_used_most
        assert session.inside.slots_used_most > 0
        assert session.inside.slots_asked == session.inside.slots
        assert 0 < session.inside.storage_ns <= mine.storage.sum_ns
        assert snapshot.host.mapped_bytes == 16 * MIB
        assert snapshot.host.cpu_busy is not None
        assert 0 < snapshot.host.cpu_busy <= 1
        assert not snapshot.host.refuses_sessions

    use(look)
    sessions = service.server.sessions
    sessions.refuse(True)
    assert source.snapshot().host.refuses_sessions


def test_a_connection_that_refuses_sessions_is_shown(service: NfsService) -> None:
    source = InsideSource(service)

    def look() -> None:
        (connection,) = service.rdma[0].connections
        for is_refused in (True, False, True):
            assert service.server.sessions.refuse_on(connection, is_refused) is not is_refused
            (shown,) = source.snapshot().connections
            assert shown.refuses_sessions is is_refused
        assert not source.snapshot().host.refuses_sessions

    use(look)
    wait_until(lambda: not source.snapshot().connections)
    assert not any(map(service.server.sessions.refuses_on, range(10_000)))


def test_calls_that_python_serves_count_as_well(service: NfsService) -> None:
    source = InsideSource(service)

    def leave_all_to_python() -> None:
        for session in service.server.sessions.all():
            service.accelerator.sessions.remove(session.slots)
        source.snapshot()

    def look() -> None:
        snapshot = source.snapshot()
        (session,), (connection,) = snapshot.sessions, snapshot.connections
        assert (session.read_bytes, session.written_bytes) == (LENGTH, LENGTH)
        assert (connection.read_bytes, connection.written_bytes) == (LENGTH, LENGTH)
        assert session.operations == connection.operations == session.latency.count
        assert not inside(connection).storage.count  # no buffer is held for it

    use(leave_all_to_python, look)


def test_sessions_over_tcp_are_shown(service: NfsService) -> None:
    source = InsideSource(service)

    def look() -> None:
        # A reply is sent first, and counted as no longer under way then.
        wait_until(lambda: not any(one.outstanding for one in service.tcp[0].open_connections()))
        snapshot = source.snapshot()
        assert snapshot == Snapshot.from_json(json.loads(json.dumps(asdict(snapshot))))
        (connection,), (session,) = snapshot.connections, snapshot.sessions
        (tcp,) = service.tcp[0].connections()
        assert (connection.transport, connection.server) == ("tcp", SERVER)
        assert (connection.client, connection.client_port) == (tcp.peer, tcp.port)
        assert connection.client_name == socket.gethostname()
        assert (connection.number, connection.sessions) == (tcp.number, 1)
        assert session.connections == (tcp.number,)
        assert session.read_bytes == session.written_bytes == LENGTH
        assert (connection.read_bytes, connection.written_bytes) == (LENGTH, LENGTH)
        assert connection.operations == connection.latency.count >= session.operations > 0
        assert (connection.in_flight, connection.credits_granted) == (0, 0)
        assert connection.inside is None and connection.tcp is not None
        assert connection.tcp.storage.count >= 2
        assert connection.tcp.thread_waits.count == connection.operations
        assert session.inside is not None
        assert session.inside.storage_ns == connection.tcp.storage.sum_ns > 0
        assert snapshot.host.mapped_bytes == 0
        assert snapshot.host.tcp_busy is not None and snapshot.host.tcp_busy > 0

    def nothing() -> None:
        source.snapshot()
        (connection,) = source.snapshot().connections
        assert (connection.operations, connection.bytes, connection.latency) == (0, 0, Times())

    use(look, nothing, proto="tcp")
    wait_until(lambda: not source.snapshot().connections)


def test_both_transports_at_once_add_up(service: NfsService) -> None:
    source = InsideSource(service)

    def look() -> None:
        snapshot = source.snapshot()
        by = {one.transport: one for one in snapshot.connections}
        assert by.keys() == {"tcp", "rdma"}
        assert by["tcp"].number != by["rdma"].number
        assert {one.connections for one in snapshot.sessions} == {
            (by["tcp"].number,),
            (by["rdma"].number,),
        }
        assert sum(one.bytes for one in snapshot.connections) == 4 * LENGTH
        assert sum(one.bytes for one in snapshot.sessions) == 4 * LENGTH
        assert by["rdma"].inside is not None and by["tcp"].inside is None
        assert snapshot.host.mapped_bytes == by["rdma"].inside.mapped_bytes

    def look_beside_tcp() -> None:
        with ThreadPoolExecutor(1) as thread:  # this one has a loop
            thread.submit(use, look, proto="tcp").result()

    use(look_beside_tcp)


def test_waits_for_memory(tmp_path: Path) -> None:
    """Each access takes 20 ms, and there are few buffers."""
    options = Options(window_bytes=4 * MIB, mapped_bytes=MIB)  # 7 buffers, beside Receives
    # and the one that is kept back
    plan = Plan(sessions=8, depth=4, seconds=2)
    with serving(tmp_path, options, store_delay_s=0.02) as service, Load(plan) as load:
        source = InsideSource(service)
        snapshot = until(
            load, source, lambda seen: inside(seen.connections[0]).memory_waits.count > 5
        )
        mine = inside(snapshot.connections[0])
        assert mine.buffers == 7
        assert mine.memory_waits.max_ns >= mine.memory_waits.p99_ns >= mine.memory_waits.p50_ns > 0
        assert mine.storage.p50_ns > 19 * MS
        assert mine.storage_queue.sum_ns < mine.storage.sum_ns - mine.storage.count * 19 * MS
        until(load, source, lambda seen: inside(seen.connections[0]).buffers_wanted)
        mine_too = [one.inside for one in snapshot.sessions if one.inside]
        assert max(one.slots_used_most for one in mine_too) == 4
        # A session hears of it when its call ends.
        until(load, source, lambda seen: any(map(waited_ns, seen.sessions)))


def test_slots_that_a_client_asked_for_and_did_not_get(tmp_path: Path) -> None:
    plan = Plan(sessions=1, depth=4, seconds=1)
    with serving(tmp_path, slots=2) as service, Load(plan) as load:
        until(
            load,
            InsideSource(service),
            lambda seen: any(
                one.inside and (one.inside.slots_asked or 0) >= plan.depth > one.inside.slots == 2
                for one in seen.sessions
            ),
        )


def test_a_store_that_is_too_narrow(tmp_path: Path) -> None:
    """Two accesses at a time: the others queue in the store, with buffers that are there."""
    plan = Plan(sessions=8, depth=4, seconds=2)
    with serving(tmp_path, store_delay_s=0.002, store_width=2) as service, Load(plan) as load:
        source = InsideSource(service)
        snapshot = until(
            load, source, lambda seen: inside(seen.connections[0]).storage_queue.max_ns > 20 * MS
        )
        mine = inside(snapshot.connections[0])
        assert mine.buffers_wanted == mine.memory_waits.count == 0
        assert mine.storage.sum_ns >= mine.storage_queue.sum_ns + mine.storage.count * 2 * MS


def test_a_client_that_keeps_no_rules(tmp_path: Path) -> None:
    """It sends more than it was granted, and what nobody can answer."""
    with (
        serving(tmp_path, Options(credits=1)) as service,
        Device(CLIENT) as device,
        Peer(device, SERVER, port=PORT) as peer,
    ):
        source = InsideSource(service)
        null = encode_call(Call(0, PROGRAM, VERSION, 0))[4:]
        for xid in [peer.call(null, credits=7) for _ in range(24)]:
            peer.reply(xid)
        peer.call(b"no call", credits=9)
        seen: list[Connection] = []
        wait_until(
            lambda: (
                seen.extend(source.snapshot().connections) or sum(one.unanswered for one in seen)
            )
        )
        assert sum(one.unanswered for one in seen) == 1
        assert sum(one.operations for one in seen) == sum(one.latency.count for one in seen) == 24
        assert sum(one.rnr_naks for one in seen) > 0
        assert (seen[-1].credits_asked, seen[-1].credits_granted) == (9, 1)
        assert seen[-1].sessions == 0


def test_an_idle_thread_is_not_busy(service: NfsService) -> None:
    """Though it looks for work a while before it sleeps."""
    source = InsideSource(service)
    use(lambda: source.snapshot())
    wait_until(lambda: (source.snapshot().host.cpu_busy or 0) < 0.05)


def test_looking_while_connections_come_and_go(service: NfsService) -> None:
    source = InsideSource(service)
    for _ in range(3):
        with Load(Plan(sessions=4, connections=2, size=4096, seconds=0.1)) as load:
            while load.is_alive():
                source.snapshot()
    wait_until(lambda: source.snapshot().connections == ())
