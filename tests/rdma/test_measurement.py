# SPDX-License-Identifier: BSD-2-Clause
"""The loops behind livedma perf, within one process."""

from __future__ import annotations

import mmap
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any, cast

import pytest
from pairs import RIGHTS, connected

from livedma._native.perf import Measurement
from livedma.memory import Pool, Registrar
from livedma.tools.perf_side import supervised

SIZE, SPAN = 1000, 64 << 10
OFFSETS = (0, 4096, 8192, 12288)  # of the buffers in a shard


@pytest.mark.parametrize(("iterations", "is_full"), [(1, False), (64, True), (500, True)])
def test_messages_go_round_the_span(iterations: int, is_full: bool) -> None:
    """Every place within the span gets one before any gets its second, and nothing lies beyond."""
    with connected() as (a, b):
        here = mmap.mmap(-1, 2 * SIZE)
        here[:SIZE] = b"x" * SIZE
        there = bytearray(2 * SPAN)
        source = a.pd.register(here)
        target = b.pd.register(there, *RIGHTS)
        measurement = Measurement(
            a.device.engine,
            a.cq,
            [(a.qp, target.va, target.rkey)],
            "WRITE",
            (source.key, source.va, memoryview(here)),
            SIZE,
            iterations=iterations,
            depth=16,
            span=SPAN,
        )
        measurement.stream()
        stride = Measurement.stride(SIZE)
        used = [there[at] == ord("x") for at in range(0, SPAN, stride)]
        assert used[0]
        assert all(used) == is_full
        assert not any(there[SPAN:])
        assert not any(there[at + SIZE] for at in range(0, SPAN, stride))
        source.close()


def test_receives_use_buffers_of_pools() -> None:
    """Every message lands in a buffer of its connection's pool, and all buffers come back."""
    with (
        connected(init={"max_recv": 8}) as (a, b),
        Pool(
            Registrar(b.device.engine, pd=b.pd), 4096, shard_size=16384, minimum=8, maximum=8
        ) as pool,
    ):
        here = mmap.mmap(-1, 2 * SIZE)
        here[:SIZE] = b"x" * SIZE
        source = a.pd.register(here)
        memory = (source.key, source.va, memoryview(here))
        there = mmap.mmap(-1, 2 * SIZE)
        sink = b.pd.register(there)
        receiving = Measurement(
            b.device.engine,
            b.cq,
            [(b.qp, 0, 0)],
            "SEND",
            (sink.key, sink.va, memoryview(there)),
            SIZE,
            iterations=100,
            receives=8,
            pools=[pool],
        )
        receiving.prepare()
        assert pool.stats.data.taken == 8
        with ThreadPoolExecutor(1) as threads:
            for _ in range(2):  # a stream, and another one
                draining = threads.submit(receiving.drain)
                sending = Measurement(
                    a.device.engine,
                    a.cq,
                    [(a.qp, 0, 0)],
                    "SEND",
                    memory,
                    SIZE,
                    iterations=100,
                    depth=4,
                )
                sending.stream()
                draining.result(20)
                assert receiving.done == 100
                assert receiving.refill_ns > 0
        assert pool.stats.data.takes == 8 + 200
        assert there[:] == bytes(2 * SIZE)
        b.qp.close()
        receiving.release()
        assert pool.stats.data.taken == 0
        landed = [bytes(lease.memory[at : at + SIZE]) for lease in pool.leases for at in OFFSETS]
        assert b"x" * SIZE in landed
        assert set(landed) <= {b"x" * SIZE, bytes(SIZE)}
        source.close()
        sink.close()


@pytest.mark.parametrize("wrong", [{"pools": []}, {"receives": 0}])
def test_a_measurement_that_makes_no_sense(wrong: dict[str, Any]) -> None:
    with connected() as (a, _):
        memory = (a.region.key, a.region.va, memoryview(a.memory))
        with pytest.raises(ValueError, match=r"one pool for each connection|nothing to measure"):
            Measurement(
                a.device.engine, a.cq, [(a.qp, 0, 0)], "SEND", memory, SIZE, iterations=1, **wrong
            )


class Loop:
    """What supervised runs and cancels, without a device."""

    def __init__(self) -> None:
        self.is_cancelled = self.is_running = False

    def cancel(self) -> None:
        self.is_cancelled = True

    def __call__(self) -> None:
        self.is_running = True
        while not self.is_cancelled:
            time.sleep(0.001)
        self.is_running = False


@pytest.mark.parametrize("has_begun", [True, False])
def test_no_loop_runs_on_when_an_interrupt_comes_early(
    has_begun: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """While the thread starts, when no caller knows of it yet that would wait for it."""
    loop, start, threads = Loop(), threading.Thread.start, threading.active_count()

    def interrupted(thread: threading.Thread) -> None:
        start(thread)
        while has_begun and not loop.is_running:
            time.sleep(0.001)
        raise KeyboardInterrupt

    monkeypatch.setattr(threading.Thread, "start", interrupted)
    with pytest.raises(KeyboardInterrupt):
        supervised(cast(Measurement, loop), loop, "nobody", lambda _: None)
    assert not loop.is_running  # and what it uses may go
    monkeypatch.undo()
    deadline_s = time.monotonic() + 60
    while threading.active_count() > threads and time.monotonic() < deadline_s:
        time.sleep(0.001)
    assert (threading.active_count(), loop.is_running) == (threads, False)
