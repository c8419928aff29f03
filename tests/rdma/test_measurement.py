"""The loops behind livedma perf, within one process."""

from __future__ import annotations

import mmap

import pytest
from pairs import RIGHTS, connected

from livedma._native.perf import Measurement

SIZE, SPAN = 1000, 64 << 10


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
            a.device,
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
