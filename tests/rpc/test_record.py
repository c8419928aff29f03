# SPDX-License-Identifier: BSD-2-Clause
"""Record marking: fragments, limits, and streams cut anywhere."""

from __future__ import annotations

import itertools
import tracemalloc

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.rpc.records import encode_record

from livedma.rpc.record import RecordError, RecordSplitter


def fragment(data: bytes, is_last: bool = True) -> bytes:
    return (len(data) | is_last << 31).to_bytes(4, "big") + data


def test_vectors() -> None:
    assert encode_record(b"hello") == bytes.fromhex("80000005") + b"hello"
    assert encode_record(b"hello", 2) == (
        bytes.fromhex("00000002")
        + b"he"
        + bytes.fromhex("00000002")
        + b"ll"
        + bytes.fromhex("80000001")
        + b"o"
    )
    assert encode_record(b"hell", 2).count(b"\x80") == 1
    assert encode_record(b"") == bytes.fromhex("80000000")
    for wrong in (0, -1, 1 << 31):
        with pytest.raises(ValueError, match="a fragment has"):
            encode_record(b"x", wrong)


def test_a_record_may_end_with_nothing() -> None:
    splitter = RecordSplitter(8)
    assert splitter.feed(fragment(b"ab", False) + fragment(b"")) == [b"ab"]
    assert splitter.is_between_records
    assert splitter.feed(fragment(b"")) == [b""]


def test_what_is_held() -> None:
    splitter = RecordSplitter(8)
    assert splitter.is_between_records and splitter.held_bytes == 0
    for data, held in ((b"\0\0", 2), (b"\0\3", 0), (b"ab", 2), (b"c", 3), (b"\x80", 4)):
        assert splitter.feed(data) == []
        assert (splitter.held_bytes, splitter.is_between_records) == (held, False)
    assert splitter.feed(b"\0\0\1d" + b"\x80") == [b"abcd"]
    assert (splitter.held_bytes, splitter.is_between_records) == (1, False)


@pytest.mark.parametrize(
    ("stream", "wrong"),
    [
        (fragment(bytes(9)), "a record of 9 bytes is above 8"),
        (b"\xff\xff\xff\xff", "a record of 2147483647 bytes is above 8"),
        (fragment(bytes(8), False) + fragment(b"x"), "a record of 9 bytes is above 8"),
        (fragment(b"", False) * 4, "a record of more than 3 fragments"),
        (fragment(b"x", False) * 3 + fragment(b"x"), "a record of more than 3 fragments"),
    ],
)
def test_limits(stream: bytes, wrong: str) -> None:
    splitter = RecordSplitter(8, fragments=3)
    with pytest.raises(RecordError, match=wrong) as caught:
        splitter.feed(fragment(b"before") + stream + fragment(b"after"))
    assert caught.value.records == [b"before"]
    assert splitter.held_bytes == 0
    with pytest.raises(RecordError, match=wrong) as caught:
        splitter.feed(fragment(b"after"))
    assert caught.value.records == []


def test_at_the_limits() -> None:
    splitter = RecordSplitter(8, fragments=3)
    parts = fragment(b"", False) + fragment(bytes(8), False) + fragment(b"")
    assert splitter.feed(parts * 2 + fragment(bytes(8))) == [bytes(8)] * 3


def test_an_announced_record_costs_nothing() -> None:
    splitter = RecordSplitter(1 << 31)
    tracemalloc.start()
    try:
        splitter.feed(b"\x7f\xff\xff\xffab")
        assert tracemalloc.get_traced_memory()[1] < 16384
    finally:
        tracemalloc.stop()


def split(stream: bytes, cuts: list[int]) -> tuple[list[bytes], str | None, int]:
    splitter = RecordSplitter(48, fragments=6)
    records: list[bytes] = []
    bounds = [0, *sorted(cut for cut in cuts if cut < len(stream)), len(stream)]
    for start, end in itertools.pairwise(bounds):
        try:
            records += splitter.feed(stream[start:end])
        except RecordError as wrong:
            return records + wrong.records, str(wrong), splitter.held_bytes
        assert splitter.held_bytes <= 48 + 4
    return records, None, splitter.held_bytes


CUTS = st.lists(st.integers(0, 200), max_size=20)
# Words as fragments' headers would be, and anything.
STREAMS = st.lists(
    st.binary(max_size=8)
    | st.builds(fragment, st.binary(max_size=12), st.booleans())
    | st.builds(lambda n: bytes([0x80, 0, 0, n]), st.integers(0, 60)),
    max_size=12,
).map(b"".join)


@given(st.lists(st.tuples(st.binary(max_size=48), st.integers(10, 60)), max_size=6), CUTS)
def test_records_survive(records: list[tuple[bytes, int]], cuts: list[int]) -> None:
    stream = b"".join(encode_record(data, size) for data, size in records)
    assert split(stream, cuts) == ([data for data, _ in records], None, 0)


@given(STREAMS, CUTS)
def test_where_a_stream_is_cut_does_not_matter(stream: bytes, cuts: list[int]) -> None:
    assert split(stream, cuts) == split(stream, []) == split(stream, list(range(len(stream))))
