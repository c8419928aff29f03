# SPDX-License-Identifier: BSD-2-Clause
"""Chunks: messages put together from their pieces, and chunks returned filled."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.rpc.rdma_chunks import (
    Inline,
    Padding,
    ReadChunk,
    Segment,
    filled,
    filled_bytes,
    layout,
)

from livedma.rpc.xdr import XdrError


def chunk(position: int, *lengths: int) -> ReadChunk:
    return ReadChunk(position, tuple(Segment(1, length, 0) for length in lengths))


def test_layout() -> None:
    assert layout((), 100) == (Inline(0, 100),)
    assert layout((), 0) == ()
    middle = chunk(40, 5, 6)
    assert layout((middle,), 44) == (Inline(0, 40), middle, Padding(1), Inline(40, 44))
    last = chunk(44, 8)
    assert layout((last,), 44) == (Inline(0, 44), last)
    # The second chunk's position counts the first one's data and padding.
    pair = chunk(8, 5), chunk(20, 4)
    assert layout(pair, 16) == (
        Inline(0, 8),
        pair[0],
        Padding(3),
        Inline(8, 12),
        pair[1],
        Inline(12, 16),
    )
    adjacent = chunk(8, 5), chunk(16, 4)
    assert layout(adjacent, 8) == (Inline(0, 8), adjacent[0], Padding(3), adjacent[1])


@pytest.mark.parametrize(
    ("reads", "wrong"),
    [
        ([chunk(48, 4)], "position 48 of a shorter message"),
        ([chunk(8, 5), chunk(60, 4)], "position 60 of a shorter message"),
        ([chunk(8, 5), chunk(12, 4)], "overlaps"),
        ([chunk(6, 4)], "which XDR does not have"),
    ],
)
def test_positions_that_cannot_be(reads: list[ReadChunk], wrong: str) -> None:
    with pytest.raises(XdrError, match=wrong):
        layout(reads, 44)


ITEMS = st.lists(st.tuples(st.booleans(), st.binary(min_size=1, max_size=20)), max_size=8)


@given(ITEMS)
def test_a_reduced_message_is_put_together_again(items: list[tuple[bool, bytes]]) -> None:
    whole, reduced = bytearray(words_of(1)), bytearray(words_of(1))
    reads, data = [], {}
    for is_moved, item in items:
        whole += words_of(len(item))
        reduced += words_of(len(item))
        if is_moved:
            reads.append(chunk(len(whole), len(item) // 2, len(item) - len(item) // 2))
            data[len(whole)] = item
        else:
            reduced += item + bytes(-len(item) % 4)
        whole += item + bytes(-len(item) % 4)
    found = bytearray()
    for piece in layout(reads, len(reduced)):
        if isinstance(piece, Inline):
            found += reduced[piece.start : piece.end]
        elif isinstance(piece, Padding):
            found += bytes(piece.length)
        else:
            assert len(found) == piece.position
            found += data[piece.position]
    assert found == whole


def words_of(value: int) -> bytes:
    return value.to_bytes(4, "big")


OFFERED = (Segment(1, 10, 100), Segment(2, 10, 200), Segment(3, 10, 300))


def test_filled() -> None:
    assert filled(OFFERED, 14) == (Segment(1, 10, 100), Segment(2, 4, 200), Segment(3, 0, 300))
    assert filled(OFFERED, 30) == OFFERED
    assert filled((), 0) == ()
    with pytest.raises(XdrError, match="no room for 1 of 31 bytes"):
        filled(OFFERED, 31)


@given(st.integers(0, 30))
def test_what_was_filled_is_known(length: int) -> None:
    assert filled_bytes(OFFERED, filled(OFFERED, length)) == length


@pytest.mark.parametrize(
    "returned",
    [
        OFFERED[:2],
        (*OFFERED, Segment(4, 0, 0)),
        (Segment(9, 10, 100), *OFFERED[1:]),
        (Segment(1, 10, 101), *OFFERED[1:]),
        (Segment(1, 9, 100), *OFFERED[1:]),
        (Segment(1, 11, 100), *OFFERED[1:]),
        (Segment(1, 11, 100), Segment(2, 0, 200), Segment(3, 0, 300)),
    ],
)
def test_what_cannot_have_been_filled(returned: tuple[Segment, ...]) -> None:
    with pytest.raises(XdrError, match=r"returned chunk is not|no room"):
        filled_bytes(OFFERED, returned)
