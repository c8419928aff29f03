# SPDX-License-Identifier: BSD-2-Clause
"""Regions on demand, on real devices: nothing that a program does to its memory is missed."""

from __future__ import annotations

import mmap
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from loopback import wait_until
from on_demand import PAGES, World, noise, world
from pairs import RIGHTS

from livedma.errors import LivedmaError
from livedma.memory import MemoryEvents
from mapped import NONE, PAGE, READ, WRITE, advise, get, map_at, move, protect, put, unmap, view


@pytest.fixture
def w() -> Iterator[World]:
    with world() as one:
        yield one


def test_pages_come_when_a_peer_needs_them(w: World) -> None:
    data = noise(10 * PAGE)
    assert w.write(100, data) == "SUCCESS"
    assert get(w.base + 100, len(data)) == data
    assert w.naks > 0
    assert w.region.counters["resolved"] == w.region.present == 11
    assert w.read(100, len(data)) == data
    assert w.read(40 * PAGE, PAGE) == bytes(PAGE)


def test_a_region_takes_no_memory_by_itself() -> None:
    with world(pages=1 << 20) as w:  # 4 GiB, of which two pages are used
        for page in (0, (1 << 20) - 1):
            assert w.write(page * PAGE, b"x" * PAGE) == "SUCCESS"
        assert w.region.present == 2


def test_prefetching_avoids_the_nak(w: World) -> None:
    w.region.prefetch(0, 8 * PAGE)
    assert w.region.counters["prefetched"] == w.region.present == 8
    assert w.write(0, noise(8 * PAGE)) == "SUCCESS"
    assert w.naks == 0
    w.region.prefetch(write=False)
    assert w.region.present == PAGES
    assert w.read(20 * PAGE, PAGE) == bytes(PAGE)
    assert w.naks == 0


def test_prefetching_what_is_not_there(w: World) -> None:
    protect(w.at(3), 1, NONE)
    with pytest.raises(LivedmaError, match="cannot be brought in"):
        w.region.prefetch(0, 8 * PAGE)
    assert w.region.present == 3
    protect(w.at(3), 1, READ | WRITE)
    assert w.write(3 * PAGE, b"yes") == "SUCCESS"  # nobody was refused because of it


def test_own_requests_wait_for_their_pages(w: World) -> None:
    data = noise(3 * PAGE)
    put(w.at(10), data)
    w.b.qp.post_send(
        1, "WRITE", [w.region[10 * PAGE : 13 * PAGE]], remote_va=w.a.region.va, rkey=w.a.region.rkey
    )
    assert [c.status for c in w.b.complete()] == ["SUCCESS"]
    assert w.a.memory[: 3 * PAGE] == data
    w.b.qp.post_send(
        2, "READ", [w.region[20 * PAGE : 23 * PAGE]], remote_va=w.a.region.va, rkey=w.a.region.rkey
    )
    assert [c.status for c in w.b.complete()] == ["SUCCESS"]
    assert get(w.at(20), 3 * PAGE) == data
    assert w.b.device.counters["page_waits"] >= 2


def test_receives_on_demand(w: World) -> None:
    data = w.a.fill(0, 2 * PAGE)
    w.b.qp.post_recv(7, [w.region[5 * PAGE : 9 * PAGE]])
    w.a.qp.post_send(1, "SEND", [w.a.region[: 2 * PAGE]])
    assert [c.status for c in w.a.complete() + w.b.complete()] == ["SUCCESS", "SUCCESS"]
    assert get(w.at(5), 2 * PAGE) == data


def test_atomics(w: World) -> None:
    for expected in range(3):
        advise(w.at(9), 1) if not expected else w.region.invalidate_page(9 * PAGE)
        w.a.qp.post_send(
            1, "FETCH_ADD", [w.a.region[:8]], remote_va=w.region.va + 9 * PAGE, rkey=w.region.rkey,
            swap_add=1,
        )  # fmt: skip
        assert [c.status for c in w.a.complete()] == ["SUCCESS"]
        assert int.from_bytes(w.a.memory[:8], "little") == expected
    assert int.from_bytes(get(w.at(9), 8), "little") == 3


def test_what_is_emptied_is_zero_and_can_be_written_again(w: World) -> None:
    assert w.write(0, noise(4 * PAGE)) == "SUCCESS"
    advise(w.at(1), 2)
    assert w.region.present == 2
    assert w.read(PAGE, 2 * PAGE) == bytes(2 * PAGE)
    assert w.write(PAGE, b"again") == "SUCCESS"
    assert get(w.at(1), 5) == b"again"
    assert w.region.counters["invalidations"] >= 2


def test_what_is_unmapped_is_refused_and_not_touched(w: World) -> None:
    assert w.write(0, noise(8 * PAGE)) == "SUCCESS"
    unmap(w.at(2), 3)
    map_at(w.at(2), 3)  # somebody else's
    put(w.at(2), b"canary")
    assert w.write(2 * PAGE, b"foreign") == "REM_ACCESS_ERR"
    assert w.read_status(4 * PAGE, 8) == "REM_ACCESS_ERR"
    assert get(w.at(2), 7) == b"canary\0"
    assert w.write(5 * PAGE, b"mine") == "SUCCESS"
    w.region.update_range(2 * PAGE, 3 * PAGE)
    assert w.write(2 * PAGE, b"offered") == "SUCCESS"
    assert get(w.at(2), 7) == b"offered"
    advise(w.at(2), 1)  # and is watched again
    assert w.read(2 * PAGE, 8) == bytes(8)


def test_what_is_moved_is_refused(w: World) -> None:
    data = noise(4 * PAGE)
    assert w.write(0, data) == "SUCCESS"
    there = move(w.at(1), 2)
    try:
        assert w.write(PAGE, b"late") == "REM_ACCESS_ERR"
        assert get(there, 2 * PAGE) == data[PAGE : 3 * PAGE]
    finally:
        unmap(there, 2)
    map_at(w.at(1), 2)
    w.region.update_range(PAGE, 2 * PAGE)
    assert w.read(PAGE, 2 * PAGE) == bytes(2 * PAGE)


def test_protection_is_honoured_though_nobody_reports_it(w: World) -> None:
    data = noise(2 * PAGE)
    assert w.write(0, data) == "SUCCESS"
    protect(w.at(0), 1, READ)
    assert w.write(0, b"no") == "REM_ACCESS_ERR"
    assert w.read(0, 2 * PAGE) == data
    protect(w.at(0), 1, NONE)
    assert w.read_status(0, 8) == "REM_ACCESS_ERR"
    w.region.change_protection(0, PAGE)
    assert w.read_status(0, 8) == "REM_ACCESS_ERR"
    protect(w.at(0), 1, READ | WRITE)
    assert w.write(0, b"yes") == "SUCCESS"
    assert get(w.at(0), 3) == b"yes"
    assert w.region.counters["vanished"] >= 2
    assert w.region.counters["failed"] >= 3


@pytest.mark.slow
def test_who_did_not_ask_is_not_refused(w: World) -> None:
    """A peer asked for a page that could not be filled, and went; it can be filled now."""
    protect(w.at(0), 1, NONE)
    for end, other in ((w.a, w.b), (w.b, w.a)):  # it would come back in half a second
        end.qp.modify("RESET")
        end.connect(other, min_rnr_timer=31)
    w.a.qp.post_send(1, "WRITE", [w.a.region[:8]], remote_va=w.region.va, rkey=w.region.rkey)
    wait_until(lambda: w.region.counters["failed"] == 1)
    w.reconnect()
    protect(w.at(0), 1, READ | WRITE)
    time.sleep(3.1)  # as long as a refusal is remembered
    assert w.write(0, b"me") == "SUCCESS"


def test_what_was_written_since(w: World) -> None:
    w.region.prefetch()
    w.region.sync_range(0, PAGES * PAGE)
    assert w.region.sync_range(0, PAGES * PAGE) == []
    assert w.write(10 * PAGE, noise(2 * PAGE)) == "SUCCESS"
    put(w.at(30), b"the program's own")
    assert w.read(40 * PAGE, PAGE) == bytes(PAGE)  # writes nothing
    assert w.region.sync_range(0, PAGES * PAGE) == [(10 * PAGE, 2 * PAGE), (30 * PAGE, PAGE)]
    assert w.region.sync_range(0, PAGES * PAGE) == []
    put(w.at(30), b"x")
    assert w.write(PAGE - 4, b"12345678") == "SUCCESS"
    assert w.region.sync_range(0, 2 * PAGE) == [(0, 2 * PAGE)]
    assert not w.region.sync_page(0)
    assert w.region.sync_page(30 * PAGE) and not w.region.sync_page(30 * PAGE)


def test_more_written_than_fits_in_one_answer(w: World) -> None:
    with world(pages=1000) as w2:
        w2.region.prefetch()
        w2.region.sync_range(0, 1000 * PAGE)
        for page in range(0, 1000, 2):
            put(w2.at(page), b"x")
        assert w2.region.sync_range(0, 1000 * PAGE) == [
            (page * PAGE, PAGE) for page in range(0, 1000, 2)
        ]


def test_it_hears_of_memory(w: World) -> None:
    events: MemoryEvents = w.region
    assert w.write(0, b"x") == "SUCCESS"
    events.invalidate_page(0)
    assert w.region.present == 0
    events.update_page(0)
    events.release()
    assert w.region.closed


def test_ranges_are_within_the_region(w: World) -> None:
    for call in (w.region.prefetch, w.region.sync_range, w.region.invalidate_range,
                 w.region.update_range, w.region.change_protection):  # fmt: skip
        for offset, length in ((0, 0), (0, PAGES * PAGE + 1), (PAGES * PAGE, 1), (2**63, 2**63)):
            with pytest.raises(ValueError, match="are not in a region"):
                call(offset, length)


def test_two_regions_over_the_same_pages(w: World) -> None:
    other = w.b.pd.register(view(w.at(0) + 50, 4 * PAGE), "remote_write", mode="on demand")
    w.region.prefetch(0, 8 * PAGE)
    other.prefetch()
    advise(w.at(2), 1)
    assert (w.region.present, other.present) == (7, 4)
    other.close()
    advise(w.at(3), 1)  # still watched, for the first one
    assert w.region.present == 6


def test_writes_land_in_a_mapped_file(tmp_path: Path, w: World) -> None:
    path = tmp_path / "file"
    path.write_bytes(bytes(4 * PAGE))
    with path.open("r+b") as file, mmap.mmap(file.fileno(), 4 * PAGE) as mapped:
        with w.b.pd.register(mapped, *RIGHTS, mode="on demand") as region:
            w.a.memory[:4] = b"here"
            w.a.qp.post_send(
                1, "WRITE", [w.a.region[:4]], remote_va=region.va + PAGE, rkey=region.rkey
            )
            assert [c.status for c in w.a.complete()] == ["SUCCESS"]
            file.truncate(PAGE)  # what is cut off is refused, and ends nobody
            w.a.qp.post_send(
                2, "WRITE", [w.a.region[:4]], remote_va=region.va + PAGE, rkey=region.rkey
            )
            assert [c.status for c in w.a.complete()] == ["REM_ACCESS_ERR"]
            w.reconnect()
        assert path.stat().st_size == PAGE
