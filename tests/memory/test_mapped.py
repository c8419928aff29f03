# SPDX-License-Identifier: BSD-2-Clause
"""Receive buffers mapped in different ways: what is mapped, found, and refused."""

from __future__ import annotations

import ctypes
import gc
import weakref

import pytest

from livedma._native.mapped import Mapped, receive
from livedma._native.rdma import Engine

PAGE = 4096
BUFFERS = 32


def content(mapped: Mapped) -> list[bytes]:
    """The pages of the memory, each by its first bytes."""
    whole = ctypes.string_at(mapped.address, mapped.length)
    return [whole[at : at + 4] for at in range(0, len(whole), PAGE)]


@pytest.mark.parametrize(
    ("mapping", "piece", "mappings", "pieces"),
    [
        (PAGE, 0, 32, 32),
        (4 * PAGE, 0, 8, 8),
        (12 * PAGE, 0, 3, 3),  # the last one has four buffers more than are asked for
        (32 * PAGE, 0, 1, 1),
        (16 * PAGE, PAGE, 2, 32),
        (16 * PAGE, 8 * PAGE, 2, 4),
    ],
)
def test_all_buffers_are_usable(mapping: int, piece: int, mappings: int, pieces: int) -> None:
    engine = Engine()
    mapped = Mapped(engine, BUFFERS, PAGE, mapping, piece_size=piece)
    assert (mapped.mappings, mapped.pieces) == (mappings, pieces)
    assert mapped.length == mappings * mapping
    assert mapped.memory_ns > 0 < mapped.map_ns
    host_ns, device_ns = receive([mapped], b"here", BUFFERS)
    assert host_ns > 0 < device_ns
    assert content(mapped).count(b"here") == BUFFERS
    assert mapped.close() > 0
    assert mapped.close() == 0


def test_a_buffer_is_mapped_for_each_use() -> None:
    engine = Engine()
    mapped = Mapped(engine, BUFFERS, PAGE, BUFFERS * PAGE, piece_size=PAGE, per_use=True)
    assert (mapped.mappings, mapped.pieces) == (0, 0)
    receive([mapped], b"here", 100)
    assert mapped.mappings == BUFFERS + 100  # those posted at first, and one for each message
    assert content(mapped).count(b"here") == BUFFERS
    hits, misses = engine.translations
    assert (hits, misses) == (0, 100)  # an unmapping empties the cache


def test_the_cache_holds_what_is_one_piece() -> None:
    def misses(mapping: int, piece: int = 0) -> int:
        engine = Engine()
        mapped = Mapped(engine, BUFFERS, PAGE, mapping, piece_size=piece)
        receive([mapped], b"x", BUFFERS)
        before = engine.translations[1]
        receive([mapped], b"x", 1000)
        return engine.translations[1] - before

    assert misses(16 * PAGE) == 0
    assert misses(16 * PAGE, PAGE) == 1000
    assert misses(PAGE) > 500


def test_connections_take_turns() -> None:
    engine = Engine()
    each = [Mapped(engine, BUFFERS, PAGE, 16 * PAGE) for _ in range(3)]
    receive(each, b"here", 3 * 8)  # eight at a time
    assert [content(one).count(b"here") for one in each] == [8, 8, 8]
    receive(each, b"here", 4)
    assert sum(content(one).count(b"here") for one in each) == 28


@pytest.mark.parametrize(
    ("buffers", "size", "mapping", "piece", "per_use"),
    [
        (0, PAGE, PAGE, 0, False),
        (1, 0, PAGE, 0, False),
        (1, 100, PAGE, 0, False),  # buffers are whole pages
        (2, 2 * PAGE, 3 * PAGE, 0, False),  # a mapping has whole buffers
        (2, PAGE, 0, PAGE, False),
        (2, PAGE, 2 * PAGE, 512, False),
        (4, PAGE, 4 * PAGE, 3 * PAGE, False),  # pieces fill a mapping
        (4, PAGE, 4 * PAGE, 2 * PAGE, True),  # for each use: a buffer is a piece
    ],
)
def test_sizes_that_do_not_fit(
    buffers: int, size: int, mapping: int, piece: int, per_use: bool
) -> None:
    with pytest.raises(OSError, match="Invalid"):
        Mapped(Engine(), buffers, size, mapping, piece_size=piece, per_use=per_use)


def test_no_addresses_are_left() -> None:
    engine = Engine(iova_space=16 * PAGE)
    with pytest.raises(OSError, match="No space"):
        Mapped(engine, BUFFERS, PAGE, PAGE)
    Mapped(engine, 16, PAGE, PAGE)  # nothing of the other one is left


def test_what_is_closed_is_of_no_use() -> None:
    engine = Engine()
    mapped, other = (Mapped(engine, 1, PAGE, PAGE) for _ in range(2))
    mapped.close()
    with pytest.raises(ValueError, match="closed"):
        receive([other, mapped], b"x", 1)
    for name in ("address", "length", "mappings", "memory_ns", "map_ns"):
        with pytest.raises(ValueError, match="closed"):
            getattr(mapped, name)


@pytest.mark.parametrize(("count", "data"), [(0, b"x"), (1, b"")])
def test_nothing_to_receive(count: int, data: bytes) -> None:
    with pytest.raises(ValueError, match="something to receive"):
        receive([Mapped(Engine(), 1, PAGE, PAGE)] * count, data, 1)


def test_connections_are_of_one_engine() -> None:
    with pytest.raises(ValueError, match="of one engine"):
        receive([Mapped(Engine(), 1, PAGE, PAGE) for _ in range(2)], b"x", 1)


def test_a_message_longer_than_its_buffer() -> None:
    """The last buffer ends where the window ends."""
    mapped = Mapped(Engine(), 1, PAGE, PAGE)
    with pytest.raises(OSError, match="Input/output"):
        receive([mapped], bytes(PAGE + 1), 1)


def test_it_keeps_its_engine_alive() -> None:
    engine = Engine()
    seen, mapped = weakref.ref(engine), Mapped(engine, 1, PAGE, PAGE)
    del engine
    gc.collect()
    assert seen() is not None
    del mapped
    gc.collect()
    assert seen() is None
