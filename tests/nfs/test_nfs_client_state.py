# SPDX-License-Identifier: BSD-2-Clause
"""Leases, and state that a server takes away."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest
from scripted_nfs import ScriptedServer

from livedma.nfs.client import Client, Conflict, OperationFailed, StateLost
from livedma.nfs.client.codec.lock import Range
from livedma.nfs.client.ranges import added, without
from livedma.nfs.numbers import Op, Status

LIMIT_S = 30.0


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(LIMIT_S):
        while not condition():
            await asyncio.sleep(0.005)


def with_client(test: Callable[[ScriptedServer, Client], Awaitable[None]]) -> None:
    async def run() -> None:
        async with (
            asyncio.timeout(LIMIT_S),
            ScriptedServer() as server,
            await server.client() as client,
        ):
            await test(server, client)

    asyncio.run(run())


def test_an_idle_client_renews_its_lease() -> None:
    async def run() -> None:
        async with ScriptedServer() as server:
            server.lease_s = 1
            async with await server.client() as client:
                before = len(server.calls)
                assert client.identity.lease_s == 1
                await until(lambda: len(server.calls) > before + 1)
                assert server.calls[before:] == [[Op.SEQUENCE]] * (len(server.calls) - before)

    asyncio.run(run())


def test_an_idle_client_notices_a_restart_in_time_to_reclaim() -> None:
    async def run() -> None:
        async with ScriptedServer() as server:
            server.lease_s = 1
            async with await server.client() as client:
                file = await client.open("/file", "rw", create=True)
                server.restart()
                await until(lambda: server.reclaimed == [Op.OPEN] and not server.in_grace)
                await file.write(0, b"goes on")
                await file.close()

    asyncio.run(run())


def test_an_open_that_was_taken_away_is_opened_again() -> None:
    async def test(server: ScriptedServer, client: Client) -> None:
        file = await client.open("/file", "rw", create=True)
        old = file.stateid
        server.stateids.clear()
        await asyncio.gather(*(file.write(at, b"x") for at in range(5)))
        assert server.executed.count(Op.OPEN) == 2 and file.stateid != old
        server.stateids.clear()
        await file.lock(0, 1)
        assert server.executed.count(Op.OPEN) == 3
        await file.close()

    with_client(test)


def test_locks_that_were_taken_away_are_not_silently_had_again() -> None:
    async def test(server: ScriptedServer, client: Client) -> None:
        file = await client.open("/file", "rw", create=True)
        await file.lock(0, 10)
        server.stateids.clear()
        with pytest.raises(StateLost, match="/file: its locks are lost"):
            await file.write(0, b"x")
        with pytest.raises(StateLost):
            await file.lock(20, 10)
        assert server.executed.count(Op.OPEN) == 1
        await file.close()
        assert client.identity.opens == set()

    with_client(test)


def test_a_lock_that_cannot_be_reclaimed_loses_the_file() -> None:
    async def test(server: ScriptedServer, client: Client) -> None:
        file, other = [await client.open(f"/{name}", "rw", create=True) for name in "ab"]
        await file.lock(0, 10)
        server.restart()
        server.before = lambda ops: Status.RECLAIM_BAD if ops[-1] == Op.LOCK else None
        await other.write(0, b"unharmed")
        with pytest.raises(StateLost, match="LOCK of /a: RECLAIM_BAD"):
            await file.write(0, b"x")

    with_client(test)


def test_too_late_for_the_grace_period_opens_are_made_anew_and_locks_are_lost() -> None:
    async def test(server: ScriptedServer, client: Client) -> None:
        file, locked = [await client.open(f"/{name}", "rw", create=True) for name in "ab"]
        await locked.lock(0, 10)
        server.restart()
        server.in_grace = False
        await file.write(0, b"goes on")
        with pytest.raises(StateLost, match="NO_GRACE"):
            await locked.write(0, b"x")
        assert server.reclaimed == []

    with_client(test)


def test_a_server_that_takes_everything_away_again_and_again_is_given_up() -> None:
    async def test(server: ScriptedServer, client: Client) -> None:
        file = await client.open("/file", "rw", create=True)
        server.before = lambda ops: Status.EXPIRED if ops[-1] == Op.READ else None
        with pytest.raises(StateLost, match="again and again"):
            await file.read(0, 1)

    with_client(test)


def test_sessions_that_outlive_a_restart_reclaim_what_does_not() -> None:
    async def test(server: ScriptedServer, client: Client) -> None:
        file = await client.open("/file", "rw", create=True)
        await file.lock(0, 10)
        session_id = client.through.session_id
        server.stateids.clear()
        server.locks.clear()
        server.in_grace, server.flags = True, 0x100
        await client.stat("/file")
        await until(lambda: not server.in_grace)
        server.flags = 0
        await file.write(0, b"goes on")
        assert server.reclaimed == [Op.OPEN, Op.LOCK] and server.locks
        assert client.through.session_id == session_id
        await file.close()

    with_client(test)


def test_all_sessions_of_a_client_come_back_and_others_are_left_alone() -> None:
    async def test(server: ScriptedServer, client: Client) -> None:
        second = await client.session(2)
        stranger = await client.session(2, owner=b"somebody else")
        server.sessions.pop(second.session_id)
        kept = client.through.session_id, stranger.session_id
        await second.mkdir("/dir")  # only it was lost
        assert (client.through.session_id, stranger.session_id) == kept
        server.restart(cuts=False)
        await client.mkdir("/other")
        assert {client.through.session_id, second.session_id} <= set(server.sessions)
        assert stranger.session_id == kept[1]
        await stranger.rename("/dir", "/moved")
        assert stranger.session_id in server.sessions

    with_client(test)


def test_recovery_goes_on_when_who_began_it_does_not_wait() -> None:
    async def test(server: ScriptedServer, client: Client) -> None:
        file = await client.open("/file", "rw", create=True)
        await file.lock(0, 10)
        server.restart(cuts=False)
        gate = asyncio.Event()

        def hold_when_it_begins(ops: list[Op]) -> None:
            if ops == [Op.EXCHANGE_ID]:
                server.hold = gate

        server.before = hold_when_it_begins
        call = asyncio.ensure_future(client.stat("/file"))
        await until(lambda: server.hold is gate)
        call.cancel()
        with pytest.raises(asyncio.CancelledError):
            await call
        gate.set()
        await file.write(0, b"goes on")
        assert server.reclaimed == [Op.OPEN, Op.LOCK] and not server.in_grace
        await file.close()

    with_client(test)


def test_recovery_that_failed_is_finished_before_anything_else() -> None:
    async def test(server: ScriptedServer, client: Client) -> None:
        file = await client.open("/file", "rw", create=True)
        await file.lock(0, 10)
        server.restart(cuts=False)
        server.before = lambda ops: Status.SERVERFAULT if ops[-1] == Op.RECLAIM_COMPLETE else None
        with pytest.raises(OperationFailed, match="RECLAIM_COMPLETE: SERVERFAULT"):
            await client.stat("/file")
        server.before = lambda ops: None
        server.executed.clear()
        await client.stat("/file")
        assert server.executed.index(Op.RECLAIM_COMPLETE) < server.executed.index(Op.LOOKUP)
        await file.write(0, b"goes on")
        await file.close()

    with_client(test)


def test_a_session_that_is_new_to_a_server_that_has_restarted() -> None:
    async def test(server: ScriptedServer, client: Client) -> None:
        file = await client.open("/file", "rw", create=True)
        server.restart(cuts=False)
        session = await client.session(2)
        assert server.reclaimed == [Op.OPEN]
        await session.mkdir("/dir")
        await file.write(0, b"goes on")
        assert {session.session_id, client.through.session_id} == set(server.sessions)
        await file.close()

    with_client(test)


def test_what_somebody_else_holds_is_told() -> None:
    async def test(server: ScriptedServer, client: Client) -> None:
        file = await client.open("/file", "rw", create=True)
        server.conflict = (5, 7, b"the other")
        with pytest.raises(Conflict, match="a write lock from 5 to 12") as caught:
            await file.lock(0, 10)
        assert (caught.value.start, caught.value.length) == (5, 7)
        assert (caught.value.owner, caught.value.status) == (b"the other", Status.DENIED)
        server.conflict = None
        await file.lock(0, 10)
        await file.close()

    with_client(test)


def test_closing_leaves_nothing_behind() -> None:
    async def test(server: ScriptedServer, client: Client) -> None:
        file = await client.open("/file", "rw", create=True)
        await file.lock(0, 10)
        await client.session(2)
        await client.session(2, owner=b"somebody else")
        await client.close()
        await client.close()
        assert (
            not server.sessions and not server.locks and file.stateid.other not in server.stateids
        )
        assert server.executed.count(Op.DESTROY_CLIENTID) == 2
        with pytest.raises(StateLost, match="closed"):
            await file.read(0, 1)
        with pytest.raises(Exception, match="closed"):
            await client.stat("/")

    with_client(test)


def test_a_file_is_closed_once() -> None:
    async def test(server: ScriptedServer, client: Client) -> None:
        async with await client.open("/file", "rw", create=True) as file:
            await file.close()
        assert server.executed.count(Op.CLOSE) == 1
        with pytest.raises(StateLost, match="closed"):
            await file.read(0, 1)
        with pytest.raises(OperationFailed, match="NOENT"):
            await client.open("/none")

    with_client(test)


@pytest.mark.parametrize(
    ("cut", "left"),
    [
        ((0, None), []),
        ((0, 10), [(10, 10), (30, None)]),
        ((15, 2), [(10, 5), (17, 3), (30, None)]),
        ((5, 30), [(35, None)]),
        ((20, 10), [(10, 10), (30, None)]),
        ((40, 5), [(10, 10), (30, 10), (45, None)]),
        ((40, None), [(10, 10), (30, 10)]),
    ],
)
def test_bytes_are_taken_out_of_ranges(
    cut: tuple[int, int | None], left: list[tuple[int, int | None]]
) -> None:
    ranges = [Range(10, 10, True), Range(30, None, False)]
    assert [(one.start, one.length) for one in without(ranges, *cut)] == left


def test_the_newest_lock_says_how_its_bytes_are_locked() -> None:
    ranges = added([Range(0, 30, True)], Range(10, 10, False))
    assert ranges == [Range(0, 10, True), Range(10, 10, False), Range(20, 10, True)]
