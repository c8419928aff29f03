# SPDX-License-Identifier: BSD-2-Clause
"""Generates random situations, each built so that its limit is known.

Where B data buffers, C credits and S slots of each session serve calls that each stay for the
store's delay d, the least of these decides: B/d, C/d, S*sessions/d, or the store's width/d. Each
recipe makes one of them clearly the least, and keeps the rate far below the processors' limit.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping

from livedma.control.diagnose.limits import Limit
from livedma.lab.experiment.situation import Situation

__all__ = ["LIMITS", "generate"]

_INLINE_BYTES = 8 << 10  # for each credit: its Receive and its reply
_BUFFER_BYTES = 64 << 10
_RATE_MOST = 2_500  # operations a second of 64 KiB, far from the processors' limit
_CALLS_MOST = 1_000


def generate(number: int, seed: int = 1) -> Situation:
    """Returns the same situation for the same number and seed; limits take turns."""
    chance = random.Random(f"{seed} {number}")
    return _RECIPES[LIMITS[number % len(LIMITS)]](chance)


def _buffers(mapped_bytes: int, credits_: int) -> int:
    return (mapped_bytes - credits_ * _INLINE_BYTES) // _BUFFER_BYTES


def _sharing(chance: random.Random, calls: float, depth_most: int = 6) -> tuple[int, int]:
    """Returns sessions and a depth that give about so many calls."""
    depth = chance.randint(1, depth_most)
    return max(round(min(calls, _CALLS_MOST) / depth), 1), depth


def _delay_s(chance: random.Random, at_a_time: int) -> float:
    """Returns a delay that keeps the rate within bounds, and is one that disks have."""
    least_s = max(at_a_time / _RATE_MOST, 0.004)
    return round(chance.uniform(least_s, max(2 * least_s, 0.03)), 4)


def _memory(chance: random.Random) -> Situation:
    window = chance.choice((8, 16, 32)) << 20
    mapped, part = chance.choice((("1/4", 4), ("1/8", 8))) if window > 8 << 20 else ("1/4", 4)
    credits_ = chance.choice((64, 96, 128))
    while _buffers(window // part, credits_) > credits_ * 0.9:
        credits_ *= 2
    buffers = _buffers(window // part, credits_)
    sessions, depth = _sharing(chance, buffers * chance.uniform(1.8, 3.5))
    return Situation(
        Limit.MEMORY,
        sessions=sessions,
        depth=depth,
        window_bytes=window,
        mapped=mapped,
        credits=credits_,
        store_delay_s=_delay_s(chance, buffers),
    )


def _credits(chance: random.Random) -> Situation:
    credits_ = chance.choice((8, 12, 16, 24, 32))
    sessions, depth = _sharing(chance, credits_ * chance.uniform(2.0, 4.0))
    return Situation(
        Limit.CREDITS,
        sessions=sessions,
        depth=depth,
        credits=credits_,
        store_delay_s=_delay_s(chance, credits_),
    )


def _slots(chance: random.Random) -> Situation:
    slots = chance.randint(1, 3)
    sessions = chance.randint(2, 24 // slots)
    return Situation(
        Limit.SLOTS,
        sessions=sessions,
        depth=slots * chance.randint(2, 4),
        slots=slots,
        store_delay_s=_delay_s(chance, slots * sessions),
    )


def _storage(chance: random.Random) -> Situation:
    width = chance.choice((1, 2, 4, 8))
    sessions, depth = _sharing(chance, width * 4 + chance.uniform(8, 120))
    return Situation(
        Limit.STORAGE,
        sessions=sessions,
        depth=depth,
        store_width=width,
        credits=chance.choice((64, 128)),
        window_bytes=32 << 20,
        store_delay_s=round(width / chance.uniform(600, _RATE_MOST), 5),
    )


def _cpu(chance: random.Random) -> Situation:
    sessions, depth = _sharing(chance, chance.uniform(24, 48))
    return Situation(
        Limit.CPU,
        sessions=sessions,
        depth=depth,
        size_bytes=chance.choice((512, 1024, 2048, 4096)),
        store_delay_s=0.0,
        is_verified=False,
    )


def _network(chance: random.Random) -> Situation:
    sessions, depth = _sharing(chance, chance.uniform(8, 32))
    return Situation(
        Limit.NETWORK,
        sessions=sessions,
        depth=depth,
        size_bytes=chance.choice((8, 16, 32)) << 10,
        store_delay_s=chance.uniform(0.001, 0.004),
        lost_share=chance.uniform(0.005, 0.03),
    )


def _nothing(chance: random.Random) -> Situation:
    """Makes few calls under way, or a rate that leaves most of the time idle."""
    delay_s = chance.uniform(0.002, 0.02)
    calls = chance.uniform(4, 24)
    sessions, depth = _sharing(chance, calls * 2, 4)
    return Situation(
        Limit.NOTHING,
        sessions=sessions,
        depth=depth,
        size_bytes=chance.choice((4, 16, 64)) << 10,
        store_delay_s=round(delay_s, 4),
        rate=round(min(calls / delay_s * 0.4, 1_200)),
    )


_RECIPES: Mapping[Limit, Callable[[random.Random], Situation]] = {
    Limit.MEMORY: _memory,
    Limit.CREDITS: _credits,
    Limit.SLOTS: _slots,
    Limit.STORAGE: _storage,
    Limit.CPU: _cpu,
    Limit.NETWORK: _network,
    Limit.NOTHING: _nothing,
}
LIMITS = tuple(_RECIPES)
