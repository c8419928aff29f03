# SPDX-License-Identifier: BSD-2-Clause
"""The client's slots: given out in order, grown and shrunk as the server says, never in doubt."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scripted_nfs import Fate, ScriptedServer

from livedma.nfs.client import Client, OutcomeUnknown
from livedma.nfs.client.hand_over import HandedSlot
from livedma.nfs.client.slots import Slot, SlotTable
from livedma.nfs.numbers import Op, Status
from livedma.rpc.client import RpcError

LIMIT_S = 30.0


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(LIMIT_S):
        while not condition():
            await asyncio.sleep(0.005)


async def taken(table: SlotTable) -> Slot:
    slot = await table.acquire()
    assert slot is not None
    return slot


def test_the_lowest_comes_first_and_who_waits_is_served_in_turn() -> None:
    async def run() -> None:
        table = SlotTable(b"", 2)
        first, second = await taken(table), await taken(table)
        assert (first.number, second.number, table.highest_used) == (0, 1, 1)
        waiting = [asyncio.ensure_future(taken(table)) for _ in range(3)]
        await asyncio.sleep(0)
        assert table.waiting == 3
        table.release(second)
        table.release(first)
        assert [(await one).number for one in waiting[:2]] == [1, 0]
        waiting[2].cancel()
        await asyncio.gather(waiting[2], return_exceptions=True)
        table.release(first)
        assert (await taken(table)) is first and table.waiting == 0

    asyncio.run(run())


def test_a_turn_that_was_given_to_somebody_who_left_goes_to_the_next() -> None:
    async def run() -> None:
        table = SlotTable(b"", 1)
        slot = await taken(table)
        leaves, stays = (asyncio.ensure_future(taken(table)) for _ in range(2))
        await asyncio.sleep(0)
        table.release(slot)  # now belongs to the leaving call, which does not know it yet
        leaves.cancel()
        assert await stays is slot
        assert table.in_use == 1

    asyncio.run(run())


def test_growing_wakes_who_waits_and_new_slots_begin_at_one() -> None:
    async def run() -> None:
        table = SlotTable(b"", 1)
        slot = await taken(table)
        slot.advance()
        waiting = [asyncio.ensure_future(taken(table)) for _ in range(3)]
        await asyncio.sleep(0)
        table.update(table.next_call(), 3, 2)
        await until(lambda: waiting[1].done())
        assert [one.result().number for one in waiting[:2]] == [1, 2]
        assert {one.result().sequence for one in waiting[:2]} == {1}
        assert not waiting[2].done() and table.limit == 3
        table.release(slot)
        assert (await waiting[2]).sequence == 2

    asyncio.run(run())


def test_shrinking_takes_slots_away_when_they_are_free() -> None:
    async def run() -> None:
        table = SlotTable(b"", 3)
        slots = [await taken(table) for _ in range(3)]
        for slot in slots:
            slot.advance()
        table.update(table.next_call(), 2, 0)
        assert table.limit == 1
        waiting = asyncio.ensure_future(taken(table))
        await asyncio.sleep(0)
        table.release(slots[2])
        table.release(slots[1])
        await asyncio.sleep(0)
        assert not waiting.done()
        table.release(slots[0])
        assert await waiting is slots[0]
        # The server kept the others: their count goes on. What it has forgotten begins anew.
        table.update(table.next_call(), 2, 2)
        assert (await taken(table)).sequence == 2
        table.update(table.next_call(), 1, 1)
        table.update(table.next_call(), 2, 2)
        assert [slot.sequence for slot in table.slots] == [2, 2, 1]

    asyncio.run(run())


def test_a_reply_that_was_overtaken_does_not_bring_old_slots_back() -> None:
    table = SlotTable(b"", 8)
    early, late = table.next_call(), table.next_call()
    table.update(late, 7, 1)
    table.update(early, 7, 7)
    assert table.limit == 2


def test_a_server_cannot_make_us_keep_any_number_of_slots() -> None:
    table = SlotTable(b"", 1)
    table.update(table.next_call(), 0xFFFFFFFF, 0xFFFFFFFF)
    assert table.limit == 1024
    table.update(table.next_call(), 0xFFFFFFFF, 0)
    assert table.limit == 1


def test_slots_in_doubt_come_last() -> None:
    async def run() -> None:
        table = SlotTable(b"", 2)
        doubtful = await taken(table)
        doubtful.in_doubt = True
        table.release(doubtful)
        assert [(await taken(table)).number for _ in range(2)] == [1, 0]

    asyncio.run(run())


@given(
    st.lists(
        st.one_of(
            st.tuples(st.just("take"), st.just(0), st.just(0)),
            st.tuples(st.just("give"), st.integers(0, 9), st.booleans()),
            st.tuples(st.just("size"), st.integers(0, 9), st.integers(0, 9)),
        ),
        max_size=60,
    )
)
def test_no_slot_is_given_to_two(steps: list[tuple[str, int, int]]) -> None:
    async def run() -> None:
        table = SlotTable(b"", 4)
        held: list[Slot] = []
        waiting: list[asyncio.Future[Slot]] = []
        for what, one, other in steps:
            if what == "take":
                waiting.append(asyncio.ensure_future(taken(table)))
            elif what == "give" and held:
                slot = held.pop(one % len(held))
                slot.in_doubt = bool(other)
                table.release(slot)
            elif what == "size":
                table.update(table.next_call(), one, other)
            for _ in range(3):
                await asyncio.sleep(0)
            held += [turn.result() for turn in waiting if turn.done()]
            waiting = [turn for turn in waiting if not turn.done()]
            assert len({slot.number for slot in held}) == len(held) == table.in_use
            free = table.limit - sum(slot.number < table.limit for slot in held)
            assert not waiting or free == 0
        for turn in waiting:
            turn.cancel()
        await asyncio.gather(*waiting, return_exceptions=True)

    asyncio.run(run())


# With a server.


async def make_many(client: Client, count: int) -> list[asyncio.Future[None]]:
    return [asyncio.ensure_future(client.mkdir(f"/{number}")) for number in range(count)]


def test_calls_under_way_follow_the_server_up_and_down() -> None:
    async def run() -> None:
        async with ScriptedServer() as server, await server.client(slots=4) as client:
            for highest, target in ((3, 3), (15, 15), (15, 1), (1, 1), (7, 5)):
                server.set_slots(highest, target)
                await client.through.compound()  # says so
                server.hold = asyncio.Event()
                before = len(server.calls)
                calls = await make_many(client, 20)
                expected = before + target + 1
                await until(lambda: len(server.calls) == expected)  # noqa: B023
                assert client.through.waiting == 20 - target - 1
                server.hold.set()
                async with asyncio.timeout(LIMIT_S):
                    await asyncio.gather(*calls)
                server.hold = None
                assert len(server.files) == 20
                server.files.clear()
            assert client.identity.recoveries == 0

    asyncio.run(run())


def test_a_slot_that_the_server_does_not_have_is_left_and_the_call_made_in_another() -> None:
    async def run() -> None:
        async with ScriptedServer() as server, await server.client(slots=4) as client:
            server.set_slots(0, 0)  # which the client has not heard of yet
            server.hold = asyncio.Event()
            server.hold.set()
            async with asyncio.timeout(LIMIT_S):
                await asyncio.gather(*await make_many(client, 8))
            assert server.executed.count(Op.CREATE) == 8 and client.identity.recoveries == 0

    asyncio.run(run())


@pytest.mark.parametrize("is_executed", [True, False])
def test_a_cancelled_call_leaves_a_slot_that_is_asked_about(is_executed: bool) -> None:
    async def run() -> None:
        async with ScriptedServer() as server, await server.client(slots=1) as client:
            fate = Fate.SILENCE if is_executed else Fate.SWALLOW
            server.fates = {len(server.calls): fate}
            call = asyncio.ensure_future(client.mkdir("/dir"))
            await until(lambda: len(server.calls) > min(server.fates))
            call.cancel()
            with pytest.raises(asyncio.CancelledError):
                await call
            await client.mkdir("/other")
            wanted = {b"dir", b"other"} if is_executed else {b"other"}
            assert set(server.files) == wanted
            assert client.identity.recoveries == 0

    asyncio.run(run())


def test_a_session_that_was_counted_otherwise_is_made_anew() -> None:
    async def run() -> None:
        async with ScriptedServer() as server, await server.client(slots=1) as client:
            old = client.through.session_id
            left = [Status.SEQ_MISORDERED] * 2
            server.before = lambda ops: left.pop() if left and ops == [Op.SEQUENCE] else None
            await client.mkdir("/dir")
            assert client.through.session_id != old and client.identity.recoveries == 1
            assert server.executed.count(Op.CREATE) == 1

    asyncio.run(run())


def test_a_server_that_never_counts_as_we_do_is_given_up() -> None:
    async def run() -> None:
        async with ScriptedServer() as server, await server.client(slots=1) as client:
            server.before = lambda ops: Status.SEQ_MISORDERED if ops == [Op.SEQUENCE] else None
            async with asyncio.timeout(LIMIT_S):
                with pytest.raises(RpcError):
                    await client.mkdir("/dir")
            server.before = lambda ops: None

    asyncio.run(run())


@pytest.mark.slow
def test_a_slot_that_is_busy_is_waited_for_as_long_as_patience_lasts() -> None:
    async def run() -> None:
        async with ScriptedServer() as server, await server.client(slots=1) as client:
            left = [Status.DELAY] * 10
            server.before = lambda ops: left.pop() if left and ops == [Op.SEQUENCE] else None
            # As in nfsd, which says so about a slot whose call it still works on.
            async with asyncio.timeout(LIMIT_S):
                await client.mkdir("/dir")
            assert server.executed.count(Op.CREATE) == 1

    asyncio.run(run())


def test_a_server_that_claims_to_have_answered_everything_is_given_up() -> None:
    async def run() -> None:
        async with ScriptedServer() as server, await server.client(slots=1) as client:
            server.before = lambda ops: Status.RETRY_UNCACHED_REP if ops[-1] == Op.LOOKUP else None
            async with asyncio.timeout(LIMIT_S):
                with pytest.raises(OutcomeUnknown):
                    await client.stat("/file")

    asyncio.run(run())


def test_handing_over_waits_for_calls_under_way() -> None:
    async def run() -> None:
        async with ScriptedServer() as server, await server.client() as client:
            session = await client.session(2)
            server.set_slots(0, 0)  # which the reply to the call will say
            server.hold = asyncio.Event()
            call = asyncio.ensure_future(session.mkdir("/dir"))
            await until(lambda: Op.CREATE in server.executed)
            handing = asyncio.ensure_future(session.hand_over())
            await asyncio.sleep(0.05)
            assert not handing.done()
            server.hold.set()
            await call
            assert (await handing).slots == (HandedSlot(0, 2),)

    asyncio.run(run())


def test_a_session_handed_over_can_be_used_by_another() -> None:
    async def run() -> None:
        async with ScriptedServer() as server, await server.client() as client:
            server.set_slots(2, 2)
            session = await client.session(3)
            file = await session.open("/file", "rw", create=True)
            handed = await session.hand_over()
            assert handed.session_id == session.session_id and handed.minor == 2
            assert [(slot.number, slot.sequence) for slot in handed.slots] == [
                (0, 2),
                (1, 1),
                (2, 1),
            ]
            assert server.stateids[file.stateid.other] == file.handle == b"file"
            with pytest.raises(RpcError, match="handed over"):
                await session.stat("/file")
            await session.close()  # leaves it alone
            assert handed.session_id in server.sessions
            await file.write(0, b"through another session")
            await file.close()

    asyncio.run(run())
