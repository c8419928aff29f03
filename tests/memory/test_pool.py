# SPDX-License-Identifier: BSD-2-Clause
"""Pools: sizes, shards that come and go, what is kept back, and every way to end one."""

from __future__ import annotations

import gc
import itertools

import pytest
from lender import Lender, Loan
from windowed import PAGE, World

from livedma.errors import BudgetError, InUseError, LimitError, NoRoomError
from livedma.memory import Buffer, Pool, PoolClosed, Registrar


def take_all(pool: Pool, control: bool = False) -> list[Buffer]:
    taken = []
    while (buffer := pool.try_take(control)) is not None:
        taken.append(buffer)
    return taken


def test_a_buffer_is_a_part_of_its_lease() -> None:
    lender = Lender()
    with Pool(lender, 4096) as pool:
        assert pool.stats.shards == 0  # nothing is asked for before it is needed
        first, second = pool.take(), pool.take()
        (loan,) = lender.loans
        assert (loan.length, pool.stats.buffers) == (65536, 16)
        assert (first.lkey, first.rkey, first.length, len(first)) == (17, 23, 4096, 4096)
        assert first.va - loan.va == first.address - loan.address
        first.memory[:5] = b"hello"
        second.memory[:5] = b"there"
        offset = first.address - loan.address
        assert loan.memory[offset : offset + 5] == b"hello"
        assert first.memory.nbytes == 4096


@pytest.mark.parametrize(
    ("buffer_size", "shard_size", "buffers", "lent"),
    [
        (4096, 65536, 16, 65536),
        (1, 65536, 1024, 65536),  # each has a cache line of its own
        (65, 4096, 32, 4096),
        (1000, 4096, 4, 4096),  # 1024 from one to the next
        (3000, 65536, 21, 65536),  # what is left over is not used
        (100_000, 65536, 1, 102_400),  # larger than the shard: one of its own, in whole pages
        (64, 64, 1, 4096),
        (5000, 5000, 1, 8192),
    ],
)
def test_sizes(buffer_size: int, shard_size: int, buffers: int, lent: int) -> None:
    lender = Lender(room=1)
    with Pool(lender, buffer_size, shard_size) as pool:
        taken = take_all(pool)
        assert (len(taken), lender.sizes, pool.shard_size) == (buffers, [lent], lent)
        places = sorted(buffer.va for buffer in taken)
        assert all(va % 64 == 0 for va in places)
        assert all(b - a >= buffer_size for a, b in itertools.pairwise(places))
        assert places[-1] + buffer_size <= lender.loans[0].va + lent
        assert {buffer.memory.nbytes for buffer in taken} == {buffer_size}


@pytest.mark.parametrize(
    ("sizes", "bounds"),
    [
        ((0,), {}),
        ((-1,), {}),
        ((1 << 32,), {}),
        ((4096, 0), {}),
        ((4096, -1), {}),
        ((64, 64 * 262_145), {}),
        ((64,), {"reserve": -1}),
        ((64,), {"minimum": -1}),
        ((64,), {"maximum": 0}),
        ((64,), {"maximum": -1}),
        ((64,), {"maximum": (1 << 30) + 1}),
        ((64,), {"maximum": 4, "reserve": 5}),
        ((64,), {"maximum": 4, "minimum": 5}),
    ],
)
def test_impossible_pools_are_refused(sizes: tuple[int, ...], bounds: dict[str, int]) -> None:
    lender = Lender()
    with pytest.raises(ValueError):
        Pool(lender, *sizes, **bounds)
    assert not lender.sizes


def test_a_maximum_cuts_the_last_shard() -> None:
    lender = Lender()
    with Pool(lender, 4096, maximum=20) as pool:
        assert len(take_all(pool)) == 20
        assert lender.sizes == [65536, 4 * 4096]
        assert lender.refusals == 0  # the source was not even asked


def test_minimum_and_reserve_are_there_from_the_start_and_stay() -> None:
    lender = Lender()
    with Pool(lender, 4096, 8192, reserve=3, minimum=5) as pool:
        assert (pool.stats.buffers, len(lender.loans)) == (6, 3)
        lender.room = 0
        assert pool.trim() == 0
        for buffer in take_all(pool):
            buffer.release()
        assert pool.trim() == 0
        assert len(lender.loans) == 3


def test_without_room_for_its_minimum_there_is_no_pool() -> None:
    lender = Lender(room=2)
    with pytest.raises(NoRoomError, match="buffers of 4096 bytes"):
        Pool(lender, 4096, 8192, minimum=5)
    assert not lender.loans


def test_a_source_that_fails_at_the_start_gets_all_back() -> None:
    class Breaking(Lender):
        def take(self, size: int) -> Loan:
            if self.loans:
                raise OSError(5, "I/O error")
            return super().take(size)

    lender = Breaking()
    with pytest.raises(OSError, match="I/O"):
        Pool(lender, 4096, 8192, minimum=5)
    assert not lender.loans


def test_data_never_gets_the_reserve() -> None:
    with Pool(Lender(room=2), 4096, 16384, reserve=3) as pool:
        data = take_all(pool)
        assert len(data) == 5
        control = take_all(pool, control=True)
        assert len(control) == 3
        control.pop().release()
        assert pool.try_take() is None
        data.pop().release()  # what data gave back it may have again, although control holds two
        assert pool.try_take() is not None
        assert pool.try_take() is None
        assert pool.try_take(control=True) is not None


def test_control_may_have_everything() -> None:
    with Pool(Lender(room=1), 4096, 16384, reserve=1) as pool:
        assert len(take_all(pool, control=True)) == 4


@pytest.mark.parametrize("error", [NoRoomError, BudgetError, LimitError])
def test_a_source_that_refuses_is_asked_again(error: type[Exception]) -> None:
    lender = Lender()
    take = lender.take

    def refuse(size: int) -> Loan:
        raise error("not now")

    with Pool(lender, 4096) as pool:
        lender.take = refuse  # type: ignore[method-assign]
        assert pool.try_take() is None
        lender.take = take  # type: ignore[method-assign]
        assert pool.try_take() is not None


def test_a_source_that_fails_is_heard() -> None:
    class Broken(Lender):
        def take(self, size: int) -> Loan:
            raise OSError(5, "I/O error")

    with Pool(Broken(), 4096) as pool:
        with pytest.raises(OSError, match="I/O"):
            pool.try_take()
        assert pool.stats.buffers == 0


@pytest.mark.parametrize("wrong", ["short", "address", "va"])
def test_a_lease_that_does_not_fit_goes_back(wrong: str) -> None:
    class Crooked(Lender):
        def take(self, size: int) -> Loan:
            loan = super().take(size)
            if wrong == "short":
                loan.length -= 1
            else:
                setattr(loan, wrong, getattr(loan, wrong) + 8)
            return loan

    lender = Crooked()
    with Pool(lender, 4096) as pool:
        with pytest.raises(ValueError, match=r"too few|multiple of 64"):
            pool.try_take()
        assert not lender.loans
        assert pool.stats.buffers == 0


def test_empty_shards_go_but_one() -> None:
    lender = Lender()
    with Pool(lender, 4096, 8192) as pool:
        taken = [pool.take() for _ in range(8)]
        assert len(lender.loans) == 4
        for buffer in taken:
            buffer.release()
        assert len(lender.loans) == 1
        for _ in range(10):  # the edge: nothing is mapped or unmapped
            pool.take().release()
        assert len(lender.sizes) == 4
        assert pool.trim() == 1
        assert not lender.loans
        pool.take()


def test_a_shard_goes_only_when_all_of_it_is_back() -> None:
    lender = Lender()
    with Pool(lender, 4096, 16384) as pool:
        taken = [pool.take() for _ in range(12)]
        kept = [
            buffer for buffer in taken if (buffer.address - 4096) % 16384 == 0 or buffer is taken[0]
        ]
        for buffer in taken:
            if buffer not in kept:
                buffer.release()
        pool.trim()
        for buffer in kept:
            assert any(
                loan.address <= buffer.address < loan.address + loan.length for loan in lender.loans
            )
        assert pool.stats.free == pool.stats.buffers - len(kept)


def test_a_lease_in_use_is_given_back_later() -> None:
    class Sticky(Loan):
        is_in_use = True

        def release(self) -> None:
            if self.is_in_use:
                raise InUseError("a packet is on its way")
            super().release()

    class Slow(Lender):
        def take(self, size: int) -> Loan:
            loan = super().take(size)
            loan.__class__ = Sticky
            return loan

    lender = Slow()
    pool = Pool(lender, 4096)
    pool.take().release()
    assert pool.trim() == 1
    assert pool.stats.shards == 0 and len(lender.loans) == 1
    with pytest.raises(InUseError):
        pool.close()
    Sticky.is_in_use = False
    pool.close()
    assert not lender.loans


def test_a_second_release_is_an_error_and_changes_nothing() -> None:
    with Pool(Lender(), 4096) as pool:
        with pool.take() as buffer:
            pass
        assert buffer.released
        other = pool.take()
        with pytest.raises(ValueError, match="released already"):
            buffer.release()
        with pytest.raises(BufferError, match="was released"):
            buffer.memory  # noqa: B018
        assert (pool.stats.refused, pool.stats.taken) == (1, 1)
        other.release()


def test_memory_is_not_reachable_after_the_release() -> None:
    with Pool(Lender(), 4096) as pool:
        buffer = pool.take()
        view = buffer.memory
        inner = view[:10]
        with pytest.raises(BufferError):
            buffer.release()
        assert pool.stats.taken == 1
        inner.release()
        buffer.release()
        for old in (view, inner):
            with pytest.raises(ValueError):
                old[0]


def test_close_waits_for_who_is_on_a_buffers_memory() -> None:
    """The program must not crash at an old view: the lease stays until it is gone."""
    lender = Lender()
    pool = Pool(lender, 4096)
    inner = pool.take().memory[:10]
    with pytest.raises(BufferError):
        pool.close()
    inner[:5] = b"hello"
    inner.release()
    pool.close()
    assert not lender.loans


def test_buffers_come_from_pools_alone() -> None:
    with pytest.raises(TypeError, match="from a pool"):
        Buffer()
    with pytest.raises(AttributeError):
        Buffer.__new__(Buffer).length  # noqa: B018


def test_close_with_buffers_taken() -> None:
    lender = Lender()
    pool = Pool(lender, 4096, reserve=2)
    taken = [pool.take() for _ in range(20)]
    view = taken[0].memory
    pool.close()
    assert not lender.loans
    assert all(buffer.released for buffer in taken)
    with pytest.raises(ValueError):
        view[0]
    with pytest.raises(BufferError):
        taken[1].memory  # noqa: B018
    for buffer in taken:
        buffer.release()  # nothing to give back
    assert (pool.stats.refused, pool.stats.buffers, pool.stats.taken) == (20, 0, 0)
    pool.close()
    for call in (pool.try_take, pool.take):
        with pytest.raises(PoolClosed):
            call()
    assert pool.trim() == 0
    pool.tend()


def test_close_before_first_use() -> None:
    pool = Pool(Lender(), 4096)
    pool.close()
    pool.close()


def test_a_forgotten_pool_gives_back_its_shards() -> None:
    lender = Lender()
    pool = Pool(lender, 4096)
    pool.take().release()
    assert lender.loans
    del pool
    gc.collect()
    assert not lender.loans


def test_a_forgotten_buffer_stays_taken() -> None:
    with Pool(Lender(), 4096) as pool:
        pool.take()
        gc.collect()
        assert pool.stats.taken == 1


@pytest.mark.parametrize("kind", ["window", "mapper", "registrar"])
def test_a_peer_writes_into_a_buffer(kind: str) -> None:
    """The real sources: what a peer writes at a buffer's address is in its memory."""
    world = World(64 * PAGE, mapped=32 * PAGE)
    rights = ("remote_write", "remote_read")
    registrar = Registrar(world.engine, *rights)
    source = {"window": world.window, "mapper": world.window.mapper(), "registrar": registrar}[kind]
    pool = Pool(source, 1024, 2 * PAGE, maximum=20)
    taken = take_all(pool)
    assert len(taken) == 20
    for number, buffer in enumerate(taken):
        a = world.pair.a
        a.memory[:1024] = bytes([number + 1]) * 1024
        a.qp.post_send(1, "WRITE", [a.at(0, 1024)], remote_va=buffer.va, rkey=buffer.rkey)
        assert world.finish() == "SUCCESS"
    for number, buffer in enumerate(taken):
        assert buffer.memory == bytes([number + 1]) * 1024
    pool.close()
    if kind == "window":
        world.window.shrink(32 * PAGE)  # nothing is lent any more
    a.qp.post_send(1, "WRITE", [a.at(0, 1)], remote_va=taken[0].va, rkey=taken[0].rkey)
    assert world.finish() == "REM_ACCESS_ERR"


def test_bounds_change_while_it_is_used() -> None:
    lender = Lender(room=4)
    with Pool(lender, 4096, 8192, minimum=2, maximum=2) as pool:
        taken = take_all(pool)
        assert len(taken) == 2
        pool.set_bounds(6, 6)
        assert (pool.stats.buffers, len(lender.loans)) == (6, 3)
        taken += take_all(pool)
        assert len(taken) == 6
        pool.set_bounds(2, 2)  # nothing is idle yet
        assert pool.stats.buffers == 6
        for buffer in taken[:4]:
            buffer.release()
        assert pool.try_take() is None
        assert (pool.stats.buffers, pool.stats.free) == (2, 0)
        assert len(lender.loans) == 1
        with pytest.raises(NoRoomError, match="its minimum"):
            pool.set_bounds(12, 12)
        with pytest.raises(ValueError, match="at least minimum"):
            pool.set_bounds(3, 2)
