# SPDX-License-Identifier: BSD-2-Clause
"""The change attribute: never the same for two contents, whatever the clock's ticks are."""

from __future__ import annotations

import threading

from hypothesis import given
from hypothesis import strategies as st

from livedma._native.nfs import Changes

TICK = 4_000_000


def test_unknown_file_has_its_ctime() -> None:
    assert Changes().value(1, 2, 12345) == 12345


def test_changes_within_a_tick_count() -> None:
    changes = Changes()
    seen = [changes.value(1, 2, TICK)] + [changes.bump(1, 2, TICK) for _ in range(5)]
    assert seen == list(range(TICK, TICK + 6))
    assert changes.value(1, 2, TICK) == seen[-1]
    assert changes.value(1, 3, TICK) == changes.value(2, 2, TICK) == TICK


def test_next_tick_is_later() -> None:
    changes = Changes()
    before = [changes.bump(1, 2, TICK) for _ in range(100)][-1]
    assert before < changes.value(1, 2, 2 * TICK) < changes.bump(1, 2, 2 * TICK)


def test_forgotten_files_do_not_go_back() -> None:
    """Many more files than it remembers, all changed within one tick."""
    changes = Changes()
    files = range(20_000)
    last = {inode: [changes.bump(7, inode, TICK) for _ in range(3)][-1] for inode in files}
    assert all(changes.value(7, inode, TICK) >= last[inode] for inode in files)
    assert all(changes.bump(7, inode, TICK) > last[inode] for inode in files)
    assert changes.value(7, 0, 2 * TICK) == 2 * TICK  # that was long ago


@given(
    st.lists(
        st.tuples(st.integers(0, 40_000), st.sampled_from(["bump", "value", "tick"])), max_size=300
    )
)
def test_values_never_fall(steps: list[tuple[int, str]]) -> None:
    changes, now, last = Changes(), TICK, dict[int, int]()
    ctimes = dict[int, int]()
    for inode, step in steps:
        if step == "tick":
            now += TICK
        elif step == "bump":
            ctimes[inode] = now
            value = changes.bump(1, inode, now)
            assert value > last.get(inode, 0)
            last[inode] = value
        elif inode in ctimes:
            value = changes.value(1, inode, ctimes[inode])
            assert value >= last[inode]
            last[inode] = value


def test_threads_get_values_of_their_own() -> None:
    changes = Changes()
    seen: list[int] = []

    def bump() -> None:
        seen.extend([changes.bump(1, 2, TICK) for _ in range(1000)])

    threads = [threading.Thread(target=bump) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert len(set(seen)) == 4000
