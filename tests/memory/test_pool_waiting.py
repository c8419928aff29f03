# SPDX-License-Identifier: BSD-2-Clause
"""Waiting for buffers: threads and tasks, in order, without losing one whatever comes between."""

from __future__ import annotations

import asyncio
import signal
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor

import pytest
from lender import Lender, Loan

from livedma._native.pool import Waiter
from livedma.memory import Buffer, Pool, PoolClosed
from livedma.memory.pool_stats import Waits

LIMIT_S = 60.0  # for what happens at once unless something is broken


def until(condition: Callable[[], object]) -> None:
    end = time.monotonic() + LIMIT_S
    while not condition():
        assert time.monotonic() < end, "it never happened"
        time.sleep(0.001)


async def until_async(condition: Callable[[], object]) -> None:
    end = time.monotonic() + LIMIT_S
    while not condition():
        assert time.monotonic() < end, "it never happened"
        await asyncio.sleep(0.001)


def full(buffers: int = 2, **bounds: int) -> tuple[Pool, list[Buffer]]:
    """A pool of one shard whose buffers for data are all taken."""
    pool = Pool(Lender(room=1), 4096, 4096 * buffers, **bounds)
    return pool, [pool.take() for _ in range(buffers - bounds.get("reserve", 0))]


def in_thread(pool: Pool, threads: ThreadPoolExecutor, control: bool = False) -> Future[Buffer]:
    """Comes back when it is in the queue."""
    waiting = pool.stats.waiting
    future = threads.submit(pool.take, control, LIMIT_S)
    until(lambda: pool.stats.waiting > waiting)
    return future


def test_threads_are_served_in_order_and_control_first() -> None:
    pool, (first, second) = full()
    with ThreadPoolExecutor(4) as threads:
        data = [in_thread(pool, threads) for _ in range(3)]
        control = in_thread(pool, threads, control=True)
        assert pool.stats.data.oldest_ns > 0
        first.release()
        control.result(LIMIT_S).release()
        for future in data:
            future.result(LIMIT_S).release()
        second.release()
    stats = pool.stats
    assert (stats.data.waits.count, stats.control.waits.count, stats.waiting) == (3, 1, 0)
    assert stats.data.waits.max_ns <= stats.data.waits.sum_ns
    assert stats.data.waits.quantile_ns(1) <= stats.data.waits.max_ns
    assert stats.taken == 0
    pool.close()


def test_nobody_overtakes_who_waits() -> None:
    pool, (first, second) = full()
    with ThreadPoolExecutor(1) as threads:
        waiting = in_thread(pool, threads)
        first.release()
        assert pool.try_take() is None  # it is the other's, whether or not it has noticed
        second.release()
        waiting.result(LIMIT_S).release()
    pool.close()


def test_a_timeout_says_so_and_loses_nothing() -> None:
    pool, (first, second) = full()
    with pytest.raises(TimeoutError, match="within"):
        pool.take(timeout=0.01)
    with pytest.raises(TimeoutError):
        pool.take(timeout=0)
    with pytest.raises(TimeoutError):
        pool.take(timeout=-1)
    first.release()
    second.release()
    assert (pool.stats.free, pool.stats.data.gave_up, pool.stats.data.waits.count) == (2, 3, 3)
    pool.close()


def test_a_buffer_that_comes_as_the_waiter_gives_up_is_its_own() -> None:
    pool, (first, _) = full()
    waiter = Waiter(pool)
    assert waiter.claim() is None
    waiter = Waiter(pool)
    first.release()
    buffer = waiter.claim()
    assert buffer is not None and waiter.claim() is None
    buffer.release()
    assert pool.stats.taken == 1
    pool.close()


def test_a_waiter_that_is_forgotten_leaves_the_queue_or_its_buffer() -> None:
    pool, (first, _) = full()
    waiter = Waiter(pool)
    del waiter
    assert pool.stats.waiting == 0
    waiter = Waiter(pool)
    first.release()
    assert pool.stats.taken == 2
    del waiter
    assert pool.stats.taken == 1
    pool.close()


def test_a_signal_ends_the_waiting() -> None:
    pool, taken = full()

    class Interrupted(Exception):
        pass

    def interrupt(*_: object) -> None:
        raise Interrupted

    before = signal.signal(signal.SIGUSR1, interrupt)
    main = threading.get_ident()

    def send() -> None:
        until(lambda: pool.stats.waiting)
        signal.pthread_kill(main, signal.SIGUSR1)

    sender = threading.Thread(target=send)
    try:
        sender.start()
        with pytest.raises(Interrupted):
            pool.take(timeout=LIMIT_S)
    finally:
        sender.join()
        signal.signal(signal.SIGUSR1, before)
    assert pool.stats.waiting == 0
    for buffer in taken:
        buffer.release()
    assert pool.stats.free == 2
    pool.close()


def test_a_source_that_recovers_ends_the_waiting() -> None:
    lender = Lender(room=1)
    pool = Pool(lender, 4096, 4096)
    pool.take()
    with ThreadPoolExecutor(1) as threads:
        waiting = in_thread(pool, threads)
        lender.room = 2
        waiting.result(LIMIT_S)  # nobody told the pool
        waiting = in_thread(pool, threads)
        lender.room = 3
        pool.tend()
        waiting.result(LIMIT_S)
    pool.close()


def test_close_ends_the_waiting_of_threads() -> None:
    pool, _ = full()
    with ThreadPoolExecutor(2) as threads:
        waiting = [in_thread(pool, threads) for _ in range(2)]
        pool.close()
        for future in waiting:
            with pytest.raises(PoolClosed, match="the pool is closed"):
                future.result(LIMIT_S)
    assert pool.stats.data.gave_up == 2


def test_tasks_wait_in_order() -> None:
    pool, (first, second) = full()
    order: list[int] = []

    async def use(number: int) -> None:
        buffer = await pool.take_async()
        order.append(number)
        await asyncio.sleep(0)
        buffer.release()

    async def main() -> None:
        tasks = []
        for number in range(5):
            tasks.append(asyncio.create_task(use(number)))
            await until_async(lambda: pool.stats.waiting == len(tasks))
        tasks[2].cancel()
        await until_async(lambda: pool.stats.waiting == 4)
        first.release()
        await asyncio.wait_for(asyncio.gather(*tasks, return_exceptions=True), LIMIT_S)
        (await pool.take_async()).release()  # no need to wait

    asyncio.run(main())
    asyncio.run(pool_is_usable_in_another_loop(pool, second))
    assert order == [0, 1, 3, 4]
    assert (pool.stats.free, pool.stats.data.gave_up) == (2, 1)
    pool.close()


async def pool_is_usable_in_another_loop(pool: Pool, taken: Buffer) -> None:
    other = await pool.take_async()
    task = asyncio.create_task(pool.take_async(timeout=LIMIT_S))
    await until_async(lambda: pool.stats.waiting == 1)
    taken.release()
    (await task).release()
    other.release()


def test_a_task_may_be_cancelled_as_its_buffer_comes() -> None:
    pool, (first, second) = full()

    async def main() -> None:
        task = asyncio.create_task(pool.take_async())
        await until_async(lambda: pool.stats.waiting == 1)
        first.release()  # the buffer is the task's, which has not run since
        assert pool.stats.taken == 2
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(main())
    second.release()
    assert (pool.stats.taken, pool.stats.refused) == (0, 0)
    pool.close()


def test_a_task_may_give_up_after_a_time() -> None:
    pool, taken = full()

    async def main() -> None:
        with pytest.raises(TimeoutError):
            await pool.take_async(timeout=0.01)
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(pool.take_async(), 0.01)

    asyncio.run(main())
    assert (pool.stats.waiting, pool.stats.data.gave_up) == (0, 2)
    assert len(taken) == 2
    pool.close()


def test_close_ends_the_waiting_of_tasks() -> None:
    pool, _ = full()

    async def main() -> None:
        tasks = [asyncio.create_task(pool.take_async(control=i > 0)) for i in range(3)]
        await until_async(lambda: pool.stats.waiting == 3)
        pool.close()
        for result in await asyncio.gather(*tasks, return_exceptions=True):
            assert isinstance(result, PoolClosed)

    asyncio.run(main())


def test_a_loop_that_ends_leaves_nobody_in_the_queue() -> None:
    pool, (first, _) = full()

    async def main() -> None:
        task = asyncio.create_task(pool.take_async())
        await until_async(lambda: pool.stats.waiting == 1)
        del task  # run() cancels it

    asyncio.run(main())
    assert pool.stats.waiting == 0
    first.release()
    assert pool.stats.free == 1
    pool.close()


def test_many_threads_at_once() -> None:
    """Each buffer has one user at a time, and none is lost."""
    lender = Lender(room=3)
    pool = Pool(lender, 256, 1024, reserve=1)

    def use(number: int) -> None:
        mark = bytes([number]) * 256
        for i in range(200):
            with pool.take(control=number == 0, timeout=LIMIT_S) as buffer:
                buffer.memory[:] = mark
                if i % 10 == 0:
                    time.sleep(0)
                assert buffer.memory == mark

    with ThreadPoolExecutor(16) as threads:
        for future in [threads.submit(use, number) for number in range(16)]:
            future.result(LIMIT_S * 3)
    stats = pool.stats
    assert (stats.taken, stats.waiting, stats.returns, stats.refused) == (0, 0, 3200, 0)
    pool.close()
    assert not lender.loans


def test_quantiles_of_the_histogram() -> None:
    waits = Waits(10, 1000, 500, ((8, 5), (64, 4), (480, 1)))
    found = [waits.quantile_ns(fraction) for fraction in (0, 0.5, 0.51, 0.9, 0.91, 1)]
    assert found == [8, 8, 64, 64, 480, 480]
    assert waits.mean_ns == 100
    assert (Waits(0, 0, 0, ()).quantile_ns(0.5), Waits(0, 0, 0, ()).mean_ns) == (0, 0)


def test_who_waits_lets_it_grow_while_its_bounds_are_set() -> None:
    """That all was there when its turn came was taken for a source without room."""

    class Slow(Lender):
        def take(self, size: int) -> Loan:
            is_asked.set()
            assert may_lend.wait(LIMIT_S)
            return super().take(size)

    is_asked, may_lend = threading.Event(), threading.Event()
    with Pool(Slow(), 4096, 8192, maximum=2) as pool, ThreadPoolExecutor() as threads:
        taken = threads.submit(pool.take, False, LIMIT_S)
        assert is_asked.wait(LIMIT_S)
        bounded = threads.submit(pool.set_bounds, 2, 2)
        until(lambda: pool.is_short())
        may_lend.set()
        bounded.result(LIMIT_S)
        taken.result(LIMIT_S).release()
        assert pool.stats.buffers == 2
