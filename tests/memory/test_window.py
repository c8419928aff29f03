# SPDX-License-Identifier: BSD-2-Clause
"""Windows: the rules of mapping in two steps as a program meets them, growing and shrinking."""

from __future__ import annotations

import errno
import gc
import mmap
import os
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from windowed import PAGE, RIGHTS, World, mapped_by_us

from engines import connect
from livedma._native.rdma import Engine
from livedma.errors import InUseError, LivedmaError, NoRoomError
from livedma.memory import Anonymous, Backing, Block, Registrar, Source, Window, ledger


@pytest.fixture
def world() -> Iterator[World]:
    world = World()
    yield world
    world.window.close()


def pages(count: int) -> mmap.mmap:
    return mmap.mmap(-1, count * PAGE)


class Empty(Backing):
    """Has no memory, as soon as it is told so."""

    def __init__(self) -> None:
        self.is_empty = True
        self.real = Anonymous()

    def _allocate(self, offset: int, length: int, granule: int, node: int | None) -> Block:
        if self.is_empty:
            raise NoRoomError("none left")
        return self.real.allocate(offset, length, granule, node)


# The contract of two steps


def test_reserving_takes_addresses_and_no_memory() -> None:
    window = Window(Engine(), 1 << 40)
    assert (window.size, window.linked, window.parts) == (1 << 40, 0, ())
    assert mapped_by_us() == []


def test_a_refusal_names_the_way_out_and_the_way_works() -> None:
    pair = connect("RC", init={"iova_space": 1 << 20})
    with pytest.raises(NoRoomError, match="buffer by buffer") as caught:
        Window(pair.b.engine, 2 << 20, PAGE, *RIGHTS)
    assert isinstance(caught.value, LivedmaError)
    source: Source = Registrar(pair.b.engine, *RIGHTS)
    with source.take(10_000) as lease:
        assert lease.length == 3 * PAGE
        lease.memory[:5] = b"there"
        a = pair.a
        a.memory[:4] = b"from"
        where = {"remote_va": lease.va, "rkey": lease.rkey}
        for number, (operation, piece) in enumerate((("READ", (100, 5)), ("WRITE", (0, 4)))):
            a.qp.post_send(number, operation, [a.at(*piece)], **where)
            pair.run()
            assert a.statuses() == [(number, "SUCCESS")]
        assert (a.data(100, 5), bytes(lease.memory[:5])) == (b"there", b"frome")
    assert mapped_by_us() == []
    a.qp.post_send(3, "WRITE", [a.at(0, 4)], **where)
    pair.run()
    assert a.statuses() == [(3, "REM_ACCESS_ERR")]


def recorded() -> list[ledger.Entry]:
    """Windows in this process's ledger, but for those that tests before have forgotten."""
    gc.collect()
    return [entry for entry in ledger.read(os.getpid()) or [] if entry.kind == "window"]


@pytest.mark.parametrize(
    ("size", "granule"), [(0, PAGE), (PAGE, 2048), (PAGE, 3 * PAGE), (1 << 60, PAGE)]
)
def test_impossible_windows(size: int, granule: int) -> None:
    before = recorded()
    with pytest.raises((ValueError, NoRoomError)):
        Window(Engine(), size, granule)
    assert recorded() == before


def test_what_is_linked_is_used_from_sync_on(world: World) -> None:
    memory = pages(2)
    world.window.link(4 * PAGE, memory)
    assert world.write(4 * PAGE, b"early") == "REM_ACCESS_ERR"
    world.window.sync(4 * PAGE, 2 * PAGE)
    assert world.write(5 * PAGE - 2, b"over") == "SUCCESS"
    assert memory[PAGE - 2 : PAGE + 2] == b"over"


def test_links_are_on_granules(world: World) -> None:
    memory = memoryview(pages(3))
    for offset, part in ((PAGE, memory[512 : PAGE + 512]), (PAGE + 512, memory[:PAGE])):
        with pytest.raises(OSError) as caught:
            world.window.link(offset, part)
        assert caught.value.errno == errno.EIO
    with pytest.raises(OSError):
        world.window.link(15 * PAGE, memory[: 2 * PAGE])
    world.window.link(0, memory)  # none of the refusals took addresses
    assert world.window.linked == 3 * PAGE


def test_a_window_may_begin_and_end_within_granules() -> None:
    world = World(PAGE, pad=512)
    memory = memoryview(pages(2))
    world.window.link(0, memory[512 : PAGE + 100])
    world.window.sync(0, PAGE - 412)
    assert world.write(0, b"first") == "SUCCESS"
    assert memory[512:517] == b"first"
    assert world.write(PAGE - 412, b"x") == "REM_ACCESS_ERR"
    with pytest.raises(ValueError, match="by hand"):
        world.window.extend(PAGE)


def test_links_do_not_overlap_parts_and_the_other_way_round(world: World) -> None:
    world.window.link(4 * PAGE, pages(1))
    part = world.window.extend(8 * PAGE)  # the first gap is too small
    assert part.offset == 5 * PAGE
    with pytest.raises(OSError) as caught:
        world.window.link(6 * PAGE, pages(1))
    assert caught.value.errno == errno.EEXIST
    with pytest.raises(ValueError, match="shrink"):
        world.window.unlink(5 * PAGE, PAGE)
    world.window.unlink(4 * PAGE, PAGE)
    assert world.window.extend(5 * PAGE).offset == 0


def test_the_window_holds_what_is_linked_and_no_longer(world: World) -> None:
    memory = pages(4)
    world.window.link(0, memory)
    with pytest.raises(BufferError):
        memory.close()
    world.window.unlink(PAGE, PAGE)  # some of it is linked still
    with pytest.raises(BufferError):
        memory.close()
    world.window.unlink(0, PAGE)
    world.window.unlink(2 * PAGE, 2 * PAGE)
    memory.close()


@pytest.mark.parametrize("memory", [b"1234" * 1024, memoryview(bytearray(2 * PAGE))[::2]])
def test_memory_is_writable_and_in_one_piece(world: World, memory: bytes) -> None:
    with pytest.raises(ValueError, match="in one piece"):
        world.window.link(0, memory)


def test_free_wants_nothing_linked_and_destroy_one_piece(world: World) -> None:
    window, memory = world.window, pages(4)
    window.link(0, memory)
    for call in (window.free, lambda: window.destroy(2 * PAGE)):
        with pytest.raises(OSError):
            call()
    window.unlink(PAGE, PAGE)
    with pytest.raises(OSError):
        window.destroy(4 * PAGE)
    window.link(PAGE, memoryview(memory)[PAGE : 2 * PAGE])
    window.destroy(4 * PAGE)
    assert window.closed
    memory.close()


# Growing and shrinking


def test_a_quarter_at_a_time(world: World) -> None:
    parts = [world.window.extend() for _ in range(4)]
    assert [part.offset for part in parts] == [0, 4 * PAGE, 8 * PAGE, 12 * PAGE]
    with pytest.raises(NoRoomError, match="64 of 64 KiB"):
        world.window.extend()
    assert world.write(4 * PAGE - 100, bytes(range(200))) == "SUCCESS"  # from part to part
    assert world.read(4 * PAGE - 100, 200) == bytes(range(200))
    assert world.window.shrink(5 * PAGE) == 8 * PAGE
    assert [part.offset for part in world.window.parts] == [0, 4 * PAGE]
    assert world.write(8 * PAGE, b"x") == "REM_ACCESS_ERR"
    assert world.write(8 * PAGE - 1, b"x") == "SUCCESS"
    assert world.window.shrink(1 << 40) == 8 * PAGE
    assert (world.window.shrink(), mapped_by_us()) == (0, [])


def test_the_rest_is_smaller_than_a_part() -> None:
    window = Window(Engine(), 10 * PAGE, part=4 * PAGE, mapped=4 * PAGE)
    assert [window.extend().length for _ in range(2)] == [4 * PAGE, 2 * PAGE]
    with pytest.raises(NoRoomError):
        window.extend()


def test_large_parts_come_and_go_in_steps() -> None:
    step = 8192 * PAGE
    world = World(3 * step)
    world.window.extend(2 * step + PAGE)
    for offset in (step - 100, 2 * step - 100):
        assert world.write(offset, bytes(range(200))) == "SUCCESS"
        assert world.read(offset, 200) == bytes(range(200))
    assert world.write(2 * step + PAGE - 1, b"xx") == "REM_ACCESS_ERR"
    assert world.window.shrink() == 2 * step + PAGE
    for offset in (0, step, 2 * step):
        assert world.write(offset, b"x") == "REM_ACCESS_ERR"
    assert world.window.statistics().mapped == 0


def test_no_memory_changes_nothing() -> None:
    backing = Empty()
    world = World(backing=backing)
    for length in (None, PAGE, 16 * PAGE):
        with pytest.raises(NoRoomError, match="none left"):
            world.window.extend(length)
    assert (world.window.linked, world.window.statistics().extends) == (0, 0)
    backing.is_empty = False
    assert world.window.extend(16 * PAGE).length == 16 * PAGE
    backing.is_empty = True
    with pytest.raises(NoRoomError):
        World(backing=Empty(), mapped=PAGE)
    world.window.close()
    assert mapped_by_us() == []


def test_more_than_the_machine_has_is_not_tried() -> None:
    window = Window(Engine(), 1 << 46)
    with pytest.raises(NoRoomError, match="sets the limit"):
        window.extend(1 << 45)
    assert (window.linked, mapped_by_us()) == (0, [])


def test_memory_is_there_before_it_is_used(world: World) -> None:
    part = world.window.extend(8 * PAGE)
    about = Path("/proc/self/smaps").read_text().partition("memfd:livedma-window")[2]
    resident = about.partition("\nRss:")[2].split()[0]
    assert int(resident) * 1024 == part.length


def test_leases_are_carved_from_parts(world: World) -> None:
    window = world.window
    with pytest.raises(NoRoomError, match="extend"):
        window.take(64)
    window.extend(2 * PAGE)
    window.extend(2 * PAGE)
    small, other = window.take(1), window.take(100)
    assert (small.va - window.va, other.va - window.va) == (0, 64)
    large = window.take(PAGE)
    assert large.va - window.va == PAGE
    two = window.take(2 * PAGE)
    assert two.va - window.va == 2 * PAGE
    with pytest.raises(NoRoomError):  # never across parts, though there would be room
        window.take(PAGE)
    assert world.write(PAGE, b"peer's") == "SUCCESS"
    assert bytes(large.memory[:6]) == b"peer's"
    large.memory[:4] = b"ours"
    assert world.read(PAGE, 6) == b"ours's"
    for lease in (small, other, large, two, small):
        lease.release()
    with pytest.raises(ValueError, match="released"):
        _ = small.memory
    assert window.statistics().leased == 0
    assert window.take(2 * PAGE).va == window.va


def test_the_emptiest_part_goes_first(world: World) -> None:
    window = world.window
    first, second, third = (window.extend() for _ in range(3))
    lease = window.take(PAGE)
    kept = window.take(2 * PAGE)  # both in the first
    assert window.shrink(timeout=0) == third.length
    assert window.shrink(timeout=0) == second.length
    with pytest.raises(InUseError, match="2 leases"):
        window.shrink(timeout=0)
    assert window.parts == (first,)
    again = window.take(PAGE)  # it is open again
    for one in (lease, kept, again):
        one.release()
    assert window.shrink(timeout=0) == first.length


def test_shrinking_waits_for_leases(world: World) -> None:
    world.window.extend()
    lease = world.window.take(100)
    with ThreadPoolExecutor(1) as thread:
        shrinking = thread.submit(world.window.shrink, timeout=20)
        while not world.window.parts[0].is_leaving:
            time.sleep(0.001)
        assert world.write(0, b"still") == "SUCCESS"  # its rights last as long as the lease
        with pytest.raises(NoRoomError):
            world.window.take(100)
        lease.release()
        assert shrinking.result(20) == 4 * PAGE
    assert world.write(0, b"gone") == "REM_ACCESS_ERR"


def test_shrinking_waits_for_views(world: World) -> None:
    part = world.window.extend()
    view = world.window.view(PAGE, 5)
    assert world.write(PAGE, b"seen!") == "SUCCESS"
    assert bytes(view) == b"seen!"
    with pytest.raises(InUseError, match="1 views"):
        world.window.shrink(timeout=0)
    del view
    assert world.window.shrink(timeout=0) == part.length
    for offset, length in ((0, 1), (0, 5 * PAGE), (PAGE, -1)):
        with pytest.raises(ValueError, match="within one part"):
            world.window.view(offset, length)


def test_shrinking_waits_for_what_is_posted(world: World) -> None:
    world.window.extend()
    lease = world.window.take(64)
    world.pair.b.qp.post_recv(1, [lease.piece])
    lease.release()
    with pytest.raises(InUseError, match="posted"):
        world.window.shrink(timeout=0)
    assert world.write(0, b"open") == "SUCCESS"
    world.pair.a.qp.post_send(2, "SEND", inline=b"hello")
    world.pair.run()
    assert [status for _, status in world.pair.b.statuses()] == ["SUCCESS"]
    assert bytes(world.window.view(0, 5)) == b"hello"
    assert world.window.shrink(timeout=0) == 4 * PAGE


@pytest.mark.parametrize("operation", ["WRITE", "READ"])
def test_messages_that_have_begun_end_well(operation: str) -> None:
    world = World()
    world.window.extend()
    world.pair.a.fill(0, 4 * PAGE)
    world.start(operation, 0, 4 * PAGE)
    world.until("peer")
    with ThreadPoolExecutor(1) as thread:
        shrinking = thread.submit(world.window.shrink, timeout=20)
        world.until()
        assert shrinking.result(20) == 4 * PAGE
    assert world.finish() == "SUCCESS"
    assert world.window.statistics().cut == 0


def when_drained(world: World, act: Callable[[], object]) -> None:
    """The program cannot see the moment; a test can."""
    drain = world.window.drain

    def drain_and_act(offset: int, length: int) -> None:
        drain(offset, length)
        act()

    world.window.drain = drain_and_act  # type: ignore[method-assign]


def test_no_message_begins_in_a_part_that_is_leaving(world: World) -> None:
    world.window.extend()
    drained = threading.Event()
    when_drained(world, drained.set)
    for number in range(2):
        va, rkey, a = world.window.va, world.window.key, world.pair.a
        a.qp.post_send(number, "WRITE", [a.at(0, 4 * PAGE)], remote_va=va, rkey=rkey)
    world.until("peer")
    with ThreadPoolExecutor(1) as thread:
        shrinking = thread.submit(world.window.shrink, timeout=20)
        assert drained.wait(20)
        world.pair.run()
        assert shrinking.result(20) == 4 * PAGE
    assert a.statuses() == [(0, "SUCCESS"), (1, "REM_ACCESS_ERR")]
    assert world.window.statistics().cut == 0


def test_what_is_posted_meanwhile_keeps_the_part(world: World) -> None:
    window = world.window
    window.extend()
    piece = (window.key, window.va, 64)
    when_drained(world, lambda: world.pair.b.qp.post_recv(1, [piece]))
    world.start("WRITE", 0, 4 * PAGE)
    world.until("peer")
    with pytest.raises(InUseError, match="posted"):
        window.shrink(timeout=0)
    assert world.finish() == "SUCCESS"
    assert world.write(PAGE, b"new messages begin again") == "SUCCESS"
    assert window.statistics().cut == 0


@pytest.mark.parametrize("operation", ["WRITE", "READ"])
def test_a_peer_does_not_hold_memory_for_ever(operation: str) -> None:
    world = World()
    part = world.window.extend()
    world.start(operation, 0, 4 * PAGE)
    world.until("peer")  # and there it stops
    assert world.window.shrink(timeout=0.01) == part.length
    assert (world.window.statistics().cut, mapped_by_us()) == (1, [])
    assert world.finish() == "REM_ACCESS_ERR"


def test_threads_extend_and_shrink_at_once() -> None:
    world = World(64 * PAGE, part=PAGE)
    window, ready = world.window, threading.Barrier(4)

    def work() -> None:
        ready.wait(20)
        for _ in range(50):
            part = window.extend()
            lease = window.take(100)
            lease.memory[:4] = b"mine"
            lease.release()
            assert part.length == PAGE
            assert window.shrink() == PAGE

    with ThreadPoolExecutor(4) as threads:
        for done in [threads.submit(work) for _ in range(4)]:
            done.result(60)
    seen = window.statistics()
    assert (seen.extends, seen.shrinks, seen.mapped, seen.cut) == (200, 200, 0, 0)
    assert window.extend(64 * PAGE).length == 64 * PAGE


def test_each_lease_of_a_mapper_is_a_mapping(world: World) -> None:
    source: Source = world.window.mapper(timeout=0)
    one, other = source.take(100), source.take(2 * PAGE)
    assert (one.length, other.length) == (PAGE, 2 * PAGE)
    seen = world.window.statistics()
    assert (seen.mapped, seen.leased, seen.leases, seen.parts) == (3 * PAGE, 3 * PAGE, 2, 2)
    assert seen.extends == 2 and seen.last_extend_s > 0
    assert (world.window.shrink(), len(mapped_by_us())) == (0, 2)
    with pytest.raises(NoRoomError):
        world.window.take(64)  # they are lent as a whole
    assert world.write(0, b"to one") == "SUCCESS"
    assert bytes(one.memory[:6]) == b"to one"
    world.pair.b.qp.post_recv(1, [one.piece])
    with pytest.raises(InUseError):
        one.release()
    world.pair.a.qp.post_send(2, "SEND", inline=b"more")
    world.pair.run()
    world.pair.a.statuses()
    one.release()
    assert world.write(0, b"gone") == "REM_ACCESS_ERR"
    assert world.write(PAGE, b"there") == "SUCCESS"
    other.release()
    assert (world.window.linked, mapped_by_us()) == (0, [])


def test_statistics_and_the_ledger_add_up(world: World) -> None:
    def entry() -> ledger.Entry:
        (found,) = (e for e in recorded() if e not in others)
        return found

    window = world.window
    others = recorded()
    window.extend(3 * PAGE)
    window.link(8 * PAGE, pages(1))
    lease = window.take(100)
    seen = window.statistics()
    assert (seen.reserved, seen.mapped, seen.parts) == (16 * PAGE, 4 * PAGE, 1)
    assert (seen.leased, seen.leases, seen.pieces) == (128, 1, 2)
    assert (seen.descriptors, seen.descriptors_otherwise) == (4, 1)
    assert 0 < seen.last_extend_s < 60
    assert (entry().reserved, entry().mapped, entry().descriptors, entry().links) == (
        16 * PAGE,
        4 * PAGE,
        4,
        2,
    )
    world.write(0, b"x" * PAGE)
    assert window.statistics().hits > 0 < window.statistics().misses
    lease.release()
    window.shrink()
    assert entry().mapped == PAGE
    window.close()
    assert not any(entry.kind == "window" for entry in ledger.read(os.getpid()) or [])


def test_a_window_that_is_dropped_leaves_nothing() -> None:
    engine = Engine()
    window = Window(engine, 4 * PAGE, mapped=PAGE)
    lease = window.take(64)
    del window
    gc.collect()
    lease.memory[:2] = b"ok"  # a lease keeps it
    del lease
    gc.collect()
    assert mapped_by_us() == []
    assert not any(entry.kind == "window" for entry in ledger.read(os.getpid()) or [])


def test_closing_takes_all_and_views_outlive_it(world: World) -> None:
    window = world.window
    window.extend()
    lease = window.take(PAGE)
    memory = lease.memory
    window.close()
    window.close()
    memory[:3] = b"ok!"  # nobody's memory any more but ours
    assert world.write(0, b"gone") == "REM_ACCESS_ERR"
    lease.release()
    del memory
    assert mapped_by_us() == []
    with pytest.raises(ValueError, match="freed"):
        window.extend()
    assert window.shrink() == 0
