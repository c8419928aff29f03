# SPDX-License-Identifier: BSD-2-Clause
"""Windows: the rules of mapping in two steps, and what peers may do meanwhile."""

from __future__ import annotations

import ctypes
import errno
import mmap
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from engines import ALL, Pair, Side, connect
from livedma._native.rdma import Engine
from livedma._native.window import Window

PAGE = 4096


class Memory:
    """Pages whose address is known, and on a granule."""

    def __init__(self, pages: int, granule: int = PAGE) -> None:
        self.map = mmap.mmap(-1, pages * PAGE + granule)
        start = ctypes.addressof(ctypes.c_char.from_buffer(self.map))
        self.address = -(-start // granule) * granule
        self.view = memoryview(self.map)[self.address - start :]


@contextmanager
def refused(code: int) -> Iterator[None]:
    with pytest.raises(OSError) as caught:
        yield
    assert caught.value.errno == code, errno.errorcode[caught.value.errno or 0]


@pytest.fixture
def engine() -> Engine:
    return Engine()


@pytest.fixture
def memory() -> Memory:
    return Memory(64)


def test_reserving_costs_nothing_and_may_be_refused() -> None:
    engine = Engine(iova_space=1 << 20)
    first = Window(engine, 512 << 10)
    second = Window(engine, 256 << 10)
    with refused(errno.ENOSPC):
        Window(engine, 512 << 10)
    third = Window(engine, 256 << 10)
    assert len({w.va for w in (first, second, third)}) == 3
    first.free()
    again = Window(engine, 512 << 10)  # what is given back is used again
    assert again.va == first.va
    assert (again.linked, again.pieces) == (0, 0)
    with refused(errno.ENOSPC):
        Window(engine, PAGE)


@pytest.mark.parametrize(
    ("size", "granule", "pad"), [(0, 4096, 0), (4096, 2048, 0), (4096, 4096, 4096)]
)
def test_impossible_windows(engine: Engine, size: int, granule: int, pad: int) -> None:
    with refused(errno.EINVAL):
        Window(engine, size, granule, pad=pad)


def test_links_are_on_granules(engine: Engine, memory: Memory) -> None:
    window = Window(engine, 16 * PAGE)
    for offset, address, length in (
        (PAGE, memory.address + 512, PAGE),  # unaligned memory at an offset
        (PAGE + 512, memory.address, PAGE),
        (0, memory.address + 512, PAGE),  # the window was not reserved for that
    ):
        with refused(errno.EIO):
            window.link(offset, address, length)
    for offset, length in ((0, 0), (0, 17 * PAGE), (16 * PAGE, PAGE), (2**64 - PAGE, PAGE)):
        with refused(errno.EINVAL):
            window.link(offset, memory.address, length)
    assert window.linked == 0


def test_the_first_link_may_begin_and_the_last_may_end_anywhere(
    engine: Engine, memory: Memory
) -> None:
    window = Window(engine, 8 * PAGE, pad=512)
    with refused(errno.EIO):
        window.link(0, memory.address, PAGE)
    window.link(0, memory.address + 512, PAGE - 512)
    window.link(2 * PAGE - 512, memory.address + 8 * PAGE, PAGE)
    with refused(errno.EIO):  # something is linked behind it
        window.link(PAGE - 512, memory.address + 4 * PAGE, 100)
    window.link(4 * PAGE - 512, memory.address + 10 * PAGE, 100)
    with refused(errno.EIO):  # it would follow the last one
        window.link(5 * PAGE - 512, memory.address + 11 * PAGE, PAGE)
    with refused(errno.ENOENT):
        window.sync(4 * PAGE - 512, 101)
    window.sync(4 * PAGE - 512, 100)
    window.unlink(4 * PAGE - 512, 100)
    window.link(5 * PAGE - 512, memory.address + 11 * PAGE, PAGE)


def test_links_do_not_overlap(engine: Engine, memory: Memory) -> None:
    window = Window(engine, 16 * PAGE)
    window.link(4 * PAGE, memory.address, 4 * PAGE)
    for offset, pages in ((4, 1), (7, 1), (3, 2), (0, 16)):
        with refused(errno.EEXIST):
            window.link(offset * PAGE, memory.address + 8 * PAGE, pages * PAGE)
    assert window.linked == 4 * PAGE


def test_neighbours_merge(engine: Engine, memory: Memory) -> None:
    window = Window(engine, 16 * PAGE)
    window.link(0, memory.address, 2 * PAGE)
    window.link(4 * PAGE, memory.address + 4 * PAGE, 2 * PAGE)
    assert window.pieces == 2
    window.link(2 * PAGE, memory.address + 2 * PAGE, 2 * PAGE)
    assert window.pieces == 1
    window.link(6 * PAGE, memory.address + 32 * PAGE, PAGE)  # a neighbour here, not in memory
    assert window.pieces == 2
    window.unlink(PAGE, PAGE)
    assert window.pieces == 3
    assert window.linked == 6 * PAGE


def test_sync_and_unlink_want_no_holes(engine: Engine, memory: Memory) -> None:
    window = Window(engine, 16 * PAGE)
    window.link(0, memory.address, PAGE)
    window.link(2 * PAGE, memory.address + 2 * PAGE, PAGE)
    for call in (window.sync, window.unlink, window.drain):
        with refused(errno.ENOENT):
            call(0, 3 * PAGE)
        with refused(errno.EINVAL):
            call(0, 17 * PAGE)
    with refused(errno.EIO):
        window.unlink(0, 100)
    with refused(errno.EBUSY):
        window.free()
    with refused(errno.EINVAL):  # a hole
        window.destroy(3 * PAGE)
    with refused(errno.EINVAL):  # not all
        window.destroy(PAGE)
    window.unlink(2 * PAGE, PAGE)
    window.destroy(PAGE)
    assert window.closed


def test_long_links_go_in_steps(engine: Engine) -> None:
    size = 100 << 20
    address = Memory(size // PAGE).address
    window = Window(engine, size - 512, pad=512)
    window.link(0, address + 512, size - 512)
    assert (window.linked, window.pieces) == (size, 1)
    window.destroy(size - 512)


class Windowed:
    """A pair, where b offers a window of 16 granules, of which 0-3 and 8-11 are usable."""

    def __init__(self, granule: int = PAGE) -> None:
        self.pair: Pair = connect("RC")
        self.side: Side = self.pair.b
        self.window = Window(self.side.engine, 16 * granule, granule, ALL)
        self.memory = Memory(16 * granule // PAGE, granule)
        for first, source in ((0, 12), (1, 3), (2, 7), (3, 8), (8, 0)):  # scattered
            count = 4 if first == 8 else 1
            self.window.link(
                first * granule, self.memory.address + source * granule, count * granule
            )
        self.window.sync(0, 4 * granule)
        self.window.sync(8 * granule, 4 * granule)

    def write(self, offset: int, data: bytes) -> str:
        self.pair.a.memory[: len(data)] = data
        return self.run("WRITE", offset, len(data))

    def read(self, offset: int, length: int) -> bytes | str:
        status = self.run("READ", offset, length)
        return status if status != "SUCCESS" else self.pair.a.data(0, length)

    def run(self, operation: str, offset: int, length: int) -> str:
        a = self.pair.a
        a.qp.post_send(
            1, operation, [a.at(0, length)], remote_va=self.window.va + offset, rkey=self.window.key
        )
        self.pair.run()
        ((_, status),) = a.statuses()
        return status


def test_peers_use_what_is_synced() -> None:
    world = Windowed()
    data = bytes(range(256)) * 64  # all four granules, which are nowhere near each other
    assert world.write(0, data) == "SUCCESS"
    assert world.memory.view[12 * PAGE : 13 * PAGE] == data[:PAGE]
    assert world.memory.view[3 * PAGE : 4 * PAGE] == data[PAGE : 2 * PAGE]
    assert world.memory.view[8 * PAGE : 9 * PAGE] == data[3 * PAGE :]
    assert world.read(100, 9000) == data[100:9100]
    hits, misses = world.side.engine.translations
    assert hits > 0
    assert 0 < misses < hits


@pytest.mark.parametrize("operation", ["WRITE", "READ"])
@pytest.mark.parametrize(
    ("offset", "length"),
    [
        (4 * PAGE, 8),
        (0, 4 * PAGE + 1),
        (7 * PAGE + 4000, 200),
        (16 * PAGE - 1, 1),
        (16 * PAGE - 1, 2),
    ],
)
def test_holes_are_denied_whole(operation: str, offset: int, length: int) -> None:
    world = Windowed()
    before = bytes(world.memory.view)
    world.pair.a.memory[:length] = b"x" * length
    assert world.run(operation, offset, length) == "REM_ACCESS_ERR"
    assert bytes(world.memory.view) == before


def test_what_is_linked_is_unusable_before_sync() -> None:
    world = Windowed()
    world.window.link(4 * PAGE, world.memory.address + 5 * PAGE, PAGE)
    assert world.write(4 * PAGE, b"early") == "REM_ACCESS_ERR"
    world = Windowed()
    world.window.link(4 * PAGE, world.memory.address + 5 * PAGE, PAGE)
    world.window.sync(4 * PAGE, PAGE)
    assert world.write(4 * PAGE, b"in time") == "SUCCESS"


def test_nothing_is_reachable_after_unlink() -> None:
    world = Windowed()
    assert world.write(8 * PAGE, b"there") == "SUCCESS"  # and in the cache
    world.window.unlink(8 * PAGE, 4 * PAGE)
    assert world.write(8 * PAGE, b"gone!") == "REM_ACCESS_ERR"
    assert bytes(world.memory.view[:5]) == b"there"


def test_the_end_of_a_link_within_a_granule_is_the_end() -> None:
    pair = connect("RC")
    memory = Memory(4)
    window = Window(pair.b.engine, 4 * PAGE, PAGE, ALL, pad=512)
    window.link(0, memory.address + 512, PAGE)
    window.sync(0, PAGE)
    a = pair.a
    for number, (offset, length, expected) in enumerate(
        ((0, PAGE, "SUCCESS"), (PAGE - 1, 1, "SUCCESS"), (PAGE - 1, 2, "REM_ACCESS_ERR"))
    ):
        a.qp.post_send(
            number, "WRITE", [a.at(0, length)], remote_va=window.va + offset, rkey=window.key
        )
        pair.run()
        assert a.statuses() == [(number, expected)]


def test_draining_lets_messages_end_and_none_begin() -> None:
    world = Windowed()
    pair, a, window = world.pair, world.pair.a, world.window
    a.memory[: 4 * PAGE] = b"d" * 4 * PAGE
    a.qp.post_send(1, "WRITE", [a.at(0, 4 * PAGE)], remote_va=window.va + 8 * PAGE, rkey=window.key)
    while not window.users(8 * PAGE, 4 * PAGE):
        assert pair.step()
    assert window.users(8 * PAGE, 4 * PAGE) == {"peer"}
    assert not window.users(0, 4 * PAGE)
    window.drain(8 * PAGE, 4 * PAGE)
    pair.run()
    assert a.statuses() == [(1, "SUCCESS")]
    assert not window.users(8 * PAGE, 4 * PAGE)
    assert bytes(world.memory.view[: 4 * PAGE]) == bytes(a.memory[: 4 * PAGE])
    window.reopen(8 * PAGE, 4 * PAGE)
    assert world.write(8 * PAGE, b"again") == "SUCCESS"
    window.drain(8 * PAGE, 4 * PAGE)
    assert world.write(8 * PAGE, b"late") == "REM_ACCESS_ERR"


def test_what_the_host_posted_uses_the_window() -> None:
    world = Windowed()
    b, window = world.side, world.window
    assert not window.users(0, 16 * PAGE)
    b.qp.post_recv(1, [(window.key, window.va + 9 * PAGE, 64)])
    assert window.users(9 * PAGE, PAGE) == {"host"}
    assert not window.users(8 * PAGE, PAGE)
    a = world.pair.a
    a.memory[:5] = b"hello"
    a.qp.post_send(2, "SEND", [a.at(0, 5)])
    world.pair.run()
    assert bytes(world.memory.view[PAGE : PAGE + 5]) == b"hello"
    assert not window.users(0, 16 * PAGE)
    b.qp.post_send(3, "SEND", [(window.key, window.va + PAGE - 2, 4)])
    assert window.users(0, PAGE) == {"host"}


def test_a_closed_window_is_gone() -> None:
    world = Windowed()
    key, va = world.window.key, world.window.va
    world.window.close()
    a = world.pair.a
    a.qp.post_send(1, "WRITE", [a.at(0, 8)], remote_va=va, rkey=key)
    world.pair.run()
    assert a.statuses() == [(1, "REM_ACCESS_ERR")]
    with pytest.raises(ValueError, match="freed"):
        world.window.sync(0, PAGE)
    assert Window(world.side.engine, 16 * PAGE).va == va


def test_a_large_granule() -> None:
    world = Windowed(granule=2 << 20)
    data = bytes(range(256)) * 1024
    offset = (2 << 20) - 100_000  # from the first granule into the second, which is elsewhere
    assert world.write(offset, data) == "SUCCESS"
    assert world.read(offset, len(data)) == data
    first = 12 * (2 << 20) + offset
    assert world.memory.view[first : first + 100_000] == data[:100_000]


def test_atomics_in_a_window() -> None:
    world = Windowed()
    a = world.pair.a
    for number in range(3):
        a.qp.post_send(
            number,
            "FETCH_ADD",
            [a.at(0, 8)],
            remote_va=world.window.va + 2 * PAGE,
            rkey=world.window.key,
            swap_add=7,
        )
    world.pair.run()
    assert [status for _, status in a.statuses()] == ["SUCCESS"] * 3
    assert int.from_bytes(world.memory.view[7 * PAGE : 7 * PAGE + 8], "little") == 21


def test_whole_blocks_of_the_table_are_found_at_once_and_lost_at_once() -> None:
    """512 granules that are one piece are one line of the cache, until one of them goes."""
    pair = connect("RC")
    a, pages = pair.a, 3 * 512 + 7
    memory = Memory(pages)
    window = Window(pair.b.engine, pages * PAGE, PAGE, ALL)
    window.link(0, memory.address, pages * PAGE)
    window.sync(0, pages * PAGE)

    def write(page: int, data: bytes, offset: int = 0) -> str:
        a.memory[: len(data)] = data
        at = window.va + page * PAGE + offset
        a.qp.post_send(1, "WRITE", [a.at(0, len(data))], remote_va=at, rkey=window.key)
        pair.run()
        ((_, status),) = a.statuses()
        return status

    def misses() -> int:
        return pair.b.engine.translations[1]

    assert write(5, b"first") == "SUCCESS"
    before = misses()
    for page in (0, 100, 511):
        assert write(page, bytes([page % 251]) * 8) == "SUCCESS"
        assert memory.view[page * PAGE] == page % 251
    assert misses() == before
    assert write(511, b"from one into the other", PAGE - 10) == "SUCCESS"
    assert bytes(memory.view[512 * PAGE - 10 :][:23]) == b"from one into the other"
    assert write(3 * 512 + 6, b"end") == "SUCCESS"  # of a block that is not full
    window.unlink(700 * PAGE, PAGE)
    for page in (699, 701, 1023):
        assert write(page, b"beside") == "SUCCESS"
        assert bytes(memory.view[page * PAGE :][:6]) == b"beside"
    # Other memory in the hole is another piece.
    other = Memory(1)
    window.link(700 * PAGE, other.address, PAGE)
    window.sync(700 * PAGE, PAGE)
    assert write(699, b"two pieces", PAGE - 3) == "SUCCESS"
    assert bytes(other.view[:7]) == b" pieces"
    assert bytes(memory.view[700 * PAGE :][:7]) != b" pieces"
    window.drain(600 * PAGE, PAGE)
    assert write(600, b"drained") == "REM_ACCESS_ERR"
