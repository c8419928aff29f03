# SPDX-License-Identifier: BSD-2-Clause
"""Calls are executed exactly once, wherever their connection is lost."""

from __future__ import annotations

import asyncio
from collections import Counter

import pytest
from scripted_nfs import Fate, ScriptedServer

from livedma.nfs.client import Client, OperationFailed, OutcomeUnknown, WritesLost
from livedma.nfs.numbers import Op, Status
from livedma.rpc.client import ConnectionLost

pytestmark = pytest.mark.slow

LIMIT_S = 60.0
SETUP = 4  # calls until a client is connected
ONCE = (Op.CREATE, Op.RENAME, Op.REMOVE, Op.OPEN, Op.CLOSE, Op.LOCK, Op.LOCKU)


async def work(client: Client) -> None:
    """Things of which none works, or means the same, a second time."""
    await client.mkdir("/dir")
    await client.rename("/dir", "/renamed")
    async with await client.open("/file", "rw", create=True) as file:
        await file.write(0, b"first")
        await file.lock(0, 10)
        await file.write(3, b"second")
        assert await file.read(0, 100) == b"firsecond"
        await file.unlock(0, 10)
    await client.rename("/file", "/moved")
    await client.remove("/renamed")


async def run_with(fates: dict[int, Fate], **options: float) -> ScriptedServer:
    async with asyncio.timeout(LIMIT_S), ScriptedServer() as server:
        async with await server.client(**options) as client:
            server.fates = fates
            await work(client)
            server.fates = {}
            assert client.identity.recoveries == 0
        assert not server.stateids or set(server.stateids.values()) == {b"file"}
        assert server.files == {b"moved": bytearray(b"firsecond")}
        assert not server.locks and not server.sessions
    return server


def undisturbed() -> ScriptedServer:
    return asyncio.run(run_with({}))


def counts(server: ScriptedServer) -> Counter[Op]:
    return Counter(op for op in server.executed if op in ONCE)


CALLS = 16


def test_the_number_of_calls_is_known() -> None:
    """What the tests below go through is all that there is."""
    last = [index for index, ops in enumerate(undisturbed().calls) if Op.REMOVE in ops]
    assert last == [SETUP + CALLS - 5]


@pytest.mark.parametrize("fate", [Fate.LOSE_CALL, Fate.LOSE_REPLY, Fate.CUT_REPLY])
def test_a_connection_lost_at_any_point_goes_unnoticed(fate: Fate) -> None:
    expected = counts(undisturbed())
    for number in range(SETUP, SETUP + CALLS - 4):
        server = asyncio.run(run_with({number: fate}))
        assert counts(server) == expected, number


@pytest.mark.parametrize("fate", [Fate.LOSE_CALL, Fate.LOSE_REPLY])
def test_so_do_connections_lost_again_and_again(fate: Fate) -> None:
    expected = counts(undisturbed())
    for number in range(SETUP, SETUP + CALLS - 4, 3):
        server = asyncio.run(run_with({number + more: fate for more in range(5)}))
        assert counts(server) == expected, number


@pytest.mark.parametrize("fate", [Fate.LOSE_CALL, Fate.LOSE_REPLY, Fate.CUT_REPLY])
def test_a_connection_may_be_lost_while_a_client_is_made(fate: Fate) -> None:
    async def run(number: int) -> None:
        async with asyncio.timeout(LIMIT_S), ScriptedServer() as server:
            server.fates = {number: fate}
            async with await server.client() as client:
                await client.mkdir("/dir")
                assert len(server.sessions) == len(server.clients) == 1
            assert server.files == {b"dir": None}

    for number in range(SETUP):
        asyncio.run(run(number))


def test_sessions_made_at_once_are_not_taken_for_each_other() -> None:
    async def run() -> None:
        async with ScriptedServer() as server, await server.client() as client:
            for number in range(SETUP, SETUP + 20, 3):
                server.fates[number] = Fate.LOSE_REPLY
            sessions = await asyncio.gather(*(client.session(2) for _ in range(10)))
            assert len({session.session_id for session in sessions}) == 10
            assert len(server.sessions) == 11
            await asyncio.gather(*(one.mkdir(f"/{n}") for n, one in enumerate(sessions)))
            assert len(server.files) == server.executed.count(Op.CREATE) == 10

    asyncio.run(run())


def test_a_call_without_an_answer_costs_the_connection_and_no_more() -> None:
    expected = counts(undisturbed())
    for number in range(SETUP, SETUP + CALLS - 4, 4):
        server = asyncio.run(run_with({number: Fate.SILENCE}, call_s=0.2))
        assert counts(server) == expected, number


def test_a_repeated_call_has_the_same_slot_and_sequence_on_a_bound_connection() -> None:
    async def run() -> None:
        async with ScriptedServer() as server, await server.client() as client:
            server.fates = {SETUP: Fate.LOSE_REPLY}
            await client.mkdir("/dir")
            assert server.calls[SETUP:] == [
                [Op.SEQUENCE, Op.PUTROOTFH, Op.CREATE],
                [Op.BIND_CONN_TO_SESSION],
                [Op.SEQUENCE],  # answered from the cache: nothing behind it was looked at
            ]
            assert client.connection.made == 2

    asyncio.run(run())


def test_the_other_connection_takes_over() -> None:
    async def run() -> None:
        async with ScriptedServer() as server, await server.client() as client:
            second = client.connection_to("127.0.0.1", server.port)
            await client.through.bind(second)
            first = client.connection.transport
            assert first is not None and server.calls[-1] == [Op.BIND_CONN_TO_SESSION]
            server.fates = {len(server.calls): Fate.LOSE_REPLY}
            await client.mkdir("/dir")
            assert not first.is_open and client.connection.made == second.made == 1
            client.through.unbind(client.connection)
            await client.rename("/dir", "/other")
            assert server.files == {b"other": None}
            with pytest.raises(ValueError, match="needs a connection"):
                client.through.unbind(second)

    asyncio.run(run())


def test_without_a_server_patience_ends() -> None:
    async def run() -> None:
        async with ScriptedServer() as server:
            client = await server.client(patience_s=0.3)
        with pytest.raises(ConnectionLost):
            await client.mkdir("/dir")
        await client.close()

    asyncio.run(run())


def test_a_server_that_comes_back_in_time_is_all_that_it_takes() -> None:
    async def run() -> None:
        async with ScriptedServer() as server:
            client = await server.client()
            await client.mkdir("/dir")
        again = ScriptedServer()
        again.port, again.sessions, again.files = server.port, server.sessions, server.files
        call = asyncio.ensure_future(client.rename("/dir", "/other"))
        await asyncio.sleep(0.1)
        assert not call.done()
        async with again:
            await call
            assert again.files == {b"other": None}
            await client.close()

    asyncio.run(run())


# A server that forgets.


async def run_with_restart(number: int, fate: Fate) -> tuple[ScriptedServer, list[str]]:
    """The server restarts when a call comes: before it is executed, or behind that."""
    raised: list[str] = []
    async with asyncio.timeout(LIMIT_S), ScriptedServer() as server:
        async with await server.client() as client:

            def edit(call: int, reply: bytes) -> bytes:
                if call == number:
                    server.restart()
                return reply

            if fate == Fate.LOSE_CALL:
                server.before = lambda ops: restart_before(server, number)
            else:
                server.edit = edit
                server.fates = {number: fate}

            async def step(name: str, what: object) -> None:
                try:
                    await what  # type: ignore[misc]
                except (OutcomeUnknown, WritesLost) as error:
                    raised.append(f"{name}: {type(error).__name__}")

            await step("mkdir", client.mkdir("/dir"))
            async with await client.open("/file", "rw", create=True) as file:
                await file.write(0, b"first")
                await file.lock(0, 10)
                await file.write(3, b"second")
                assert await file.read(0, 100) == b"firsecond"
                await file.unlock(0, 10)
                await step("commit", file.commit())
            await step("rename", client.rename("/file", "/moved"))
            assert client.identity.recoveries == 1
        assert server.files == {b"dir": None, b"moved": bytearray(b"firsecond")}
        assert not server.locks
    return server, raised


def restart_before(server: ScriptedServer, number: int) -> None:
    if len(server.calls) - 1 == number and server.life == 1:
        server.restart(cuts=False)


def test_a_server_that_restarted_before_any_call_gets_it_again() -> None:
    for call in range(10):
        server, raised = asyncio.run(run_with_restart(SETUP + call, Fate.LOSE_CALL))
        # It found no session, and said so: nothing is in doubt but unstable data.
        assert raised == (["commit: WritesLost"] if 3 <= call <= 7 else []), call
        assert (Op.OPEN in server.reclaimed) == (2 <= call <= 8), call
        assert (Op.LOCK in server.reclaimed) == (4 <= call <= 6), call


def test_a_server_that_restarts_behind_a_call_leaves_only_the_unrepeatable_in_doubt() -> None:
    for call in range(10):
        _, raised = asyncio.run(run_with_restart(SETUP + call, Fate.LOSE_REPLY))
        in_doubt = {0: ["mkdir: OutcomeUnknown"], 9: ["rename: OutcomeUnknown"]}.get(call, [])
        assert [one for one in raised if "WritesLost" not in one] == in_doubt, call


def test_unstable_data_that_a_restart_loses_is_reported() -> None:
    async def run() -> None:
        async with ScriptedServer() as server, await server.client() as client:
            file = await client.open("/file", "rw", create=True)
            await file.write(0, b"data")
            server.restart()
            with pytest.raises(WritesLost, match="/file"):
                await file.close()
            assert not server.stateids

    asyncio.run(run())


def test_a_reply_that_the_server_did_not_keep_is_asked_for_again_if_that_does_no_harm() -> None:
    async def run() -> None:
        async with ScriptedServer() as server, await server.client() as client:
            await client.mkdir("/dir")
            server.fates = {len(server.calls): Fate.LOSE_REPLY}
            assert (await client.stat("/dir")).is_dir
            assert [ops for ops in server.calls if Op.GETATTR in ops and Op.LOOKUP in ops] == [
                [Op.SEQUENCE, Op.PUTROOTFH, Op.LOOKUP, Op.GETATTR]
            ] * 2

    asyncio.run(run())


@pytest.mark.parametrize("status", [Status.DELAY, Status.GRACE])
def test_who_is_told_to_come_again_does(status: Status) -> None:
    async def run() -> None:
        async with ScriptedServer() as server, await server.client() as client:
            left = [status] * 3
            server.before = lambda ops: left.pop() if ops[-1] == Op.CREATE and left else None
            await client.mkdir("/dir")
            assert server.executed.count(Op.CREATE) == 1 and not left

    asyncio.run(run())


def test_a_delay_behind_a_change_does_not_repeat_the_change() -> None:
    async def run() -> None:
        async with ScriptedServer() as server, await server.client() as client:
            server.before = lambda ops: Status.DELAY if ops[-1] == Op.GETFH else None
            with pytest.raises(OperationFailed, match="GETFH of /file: DELAY"):
                await client.open("/file", create=True)
            assert server.executed.count(Op.OPEN) == 1

    asyncio.run(run())


def test_errors_name_operation_and_path() -> None:
    async def run() -> None:
        async with ScriptedServer() as server, await server.client() as client:
            with pytest.raises(OperationFailed, match=r"^LOOKUP of /no/such: NOENT$") as caught:
                await client.stat("/no/such")
            assert caught.value.status == Status.NOENT and caught.value.errno == 2

    asyncio.run(run())
