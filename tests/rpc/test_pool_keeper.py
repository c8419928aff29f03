# SPDX-License-Identifier: BSD-2-Clause
"""The thread that tends the pools of a server's connections."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

import pytest
from tests.memory.lender import Lender, Loan

from livedma._native.pool import Waiter
from livedma.memory import Pool
from livedma.rpc.pool_keeper import PoolKeeper

LIMIT_S = 60.0  # for what happens at once unless something is broken


def until(condition: Callable[[], object]) -> None:
    end = time.monotonic() + LIMIT_S
    while not condition():
        assert time.monotonic() < end, "it never happened"
        time.sleep(0.001)


def test_a_kept_pool_grows_and_shrinks() -> None:
    """Only the keeper's thread calls the pool's Python: C takes and returns the buffers."""
    lender = Lender()
    pool, keeper = Pool(lender, 4096, 4096), PoolKeeper()
    keeper.add(pool)
    waiters = [Waiter(pool) for _ in range(4)]
    assert all(waiter.wait(LIMIT_S) for waiter in waiters)  # it grew
    taken = [waiter.claim() for waiter in waiters]
    assert len(lender.loans) == 4
    for buffer in taken:
        assert buffer is not None
        buffer.release()
    until(lambda: len(lender.loans) == 1)  # and shrank
    keeper.remove(pool)
    keeper.close()
    pool.close()
    assert not lender.loans


def test_a_keeper_hears_what_was_called_before_and_survives_its_source(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    failures: list[threading.ExceptHookArgs] = []
    monkeypatch.setattr(threading, "excepthook", failures.append)
    lender = Lender()
    take = lender.take

    def fail(size: int) -> Loan:
        raise OSError(5, "I/O error")

    lender.take = fail  # type: ignore[method-assign]
    pool, keeper = Pool(lender, 4096, 4096), PoolKeeper()
    first = Waiter(pool)
    keeper.add(pool)
    until(lambda: failures)
    assert failures[0].exc_type is OSError
    lender.take = take  # type: ignore[method-assign]
    second = Waiter(pool)  # calls again
    assert first.wait(LIMIT_S) and second.wait(LIMIT_S)
    keeper.remove(pool)
    keeper.close()
    pool.close()
