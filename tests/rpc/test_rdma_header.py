# SPDX-License-Identifier: BSD-2-Clause
"""RPC-over-RDMA headers: vectors by hand, every rule broken once, round trips, any bytes."""

from __future__ import annotations

import struct
import tracemalloc
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.rpc.rdma_chunks import ReadChunk, Segment
from tests.rpc.rdma_header import (
    Done,
    ErrorCode,
    ErrorHeader,
    Header,
    HeaderError,
    Limits,
    Proc,
    decode_header,
    encode_header,
    error_reply,
)

from livedma.rpc.xdr import XdrError


def words(*values: int) -> bytes:
    return struct.pack(f">{len(values)}I", *values)


def segment(length: int = 8, offset: int = 0x1_0000_0002, handle: int = 5) -> bytes:
    return struct.pack(">IIQ", handle, length, offset)


def read(position: int, length: int = 8) -> bytes:
    return words(1, position) + segment(length)


RPC = words(7, 0, 2)
START, NOMSG = words(7, 1, 32, 0), words(7, 1, 32, 1)
PLAIN = START + words(0, 0, 0)
S = Segment(5, 8, 0x1_0000_0002)


def test_a_short_message() -> None:
    assert decode_header(PLAIN + RPC) == (Header(7, 32), 28)
    assert encode_header(Header(7, 32)) == PLAIN


def test_no_credits_are_asked_for() -> None:
    """Which is no reason to refuse a call (section 3.3.1 forbids to grant none)."""
    assert decode_header(words(7, 1, 0, 0, 0, 0, 0) + RPC) == (Header(7, 0), 28)


def test_all_lists() -> None:
    data = START + read(148) + read(148) + read(164, 6) + words(0)
    data += words(1, 2) + segment() * 2 + words(1, 0) + words(0)
    data += words(1, 1) + segment()
    six = Segment(5, 6, S.offset)
    header = Header(
        7,
        32,
        reads=(ReadChunk(148, (S, S)), ReadChunk(164, (six,))),
        writes=((S, S), ()),
        reply=(S,),
    )
    assert decode_header(data + RPC) == (header, len(data))
    assert encode_header(header) == data


def test_read_segments_of_several_chunks_may_be_mixed() -> None:
    data = START + read(164) + read(148, 4) + read(164, 12) + words(0, 0, 0)
    header, _ = decode_header(data + RPC)
    assert isinstance(header, Header)
    found = [(chunk.position, [s.length for s in chunk.segments]) for chunk in header.reads]
    assert found == [(148, [4]), (164, [8, 12])]


def test_long_messages() -> None:
    call = NOMSG + read(0, 2000) + read(148) + words(0, 0, 0)
    header, end = decode_header(call)
    assert isinstance(header, Header) and header.proc == Proc.RDMA_NOMSG and end == len(call)
    assert [chunk.position for chunk in header.reads] == [0, 148]
    assert encode_header(header) == call
    reply = NOMSG + words(0, 0, 1, 1) + segment()
    assert decode_header(reply) == (Header(7, 32, Proc.RDMA_NOMSG, reply=(S,)), len(reply))


@pytest.mark.parametrize(
    ("data", "header"),
    [
        (words(7, 1, 32, 4, 2), ErrorHeader(7, 32, ErrorCode.ERR_CHUNK)),
        (words(7, 1, 32, 4, 1, 1, 2), ErrorHeader(7, 32, ErrorCode.ERR_VERS, (1, 2))),
        (words(7, 9, 32, 4, 1, 1, 1), ErrorHeader(7, 32, ErrorCode.ERR_VERS, (1, 1), 9)),
    ],
)
def test_errors(data: bytes, header: ErrorHeader) -> None:
    assert decode_header(data) == (header, len(data))
    # What follows it does not make it say less.
    assert decode_header(data + bytes(8)) == (header, len(data))
    assert encode_header(header) == data


def test_done_is_known() -> None:
    assert decode_header(words(7, 1, 0, 3)) == (Done(7, 0), 16)


SMALL = Limits(chunks=2, segments=3, list_bytes=24)
CHUNK = ErrorCode.ERR_CHUNK


@pytest.mark.parametrize(
    ("data", "wrong", "code"),
    [
        (words(7, 2, 32, 0, 0, 0, 0), "RPC-over-RDMA version 2 at byte 4", ErrorCode.ERR_VERS),
        (words(7, 0, 32, 3), "RPC-over-RDMA version 0 at byte 4", ErrorCode.ERR_VERS),
        (words(7, 1, 32, 5), "RPC-over-RDMA procedure 5 at byte 12", CHUNK),
        (words(7, 1, 32, 2, 64, 512, 0, 0, 0) + RPC, "RDMA_MSGP is not used at byte 12", CHUNK),
        (words(7, 1, 32), "bytes end inside a 4-byte word at byte 12", CHUNK),
        (START + words(2), "boolean is 0x2 at byte 16", CHUNK),
        (PLAIN[:-4], "bytes end inside a 4-byte word at byte 24", CHUNK),
        (PLAIN, "bytes end inside a 4-byte word at byte 28", CHUNK),
        (PLAIN + words(8), "the RPC message has another XID than its header at byte 28", CHUNK),
        (START + read(0) + words(0, 0, 0) + RPC, "RDMA_MSG with a read chunk at pos", CHUNK),
        (START + read(146) + words(0, 0, 0) + RPC, "position 146, which XDR does not", CHUNK),
        (START + read(8) + read(12) + words(0, 0, 0) + RPC, "12 overlaps the one before", CHUNK),
        (START + read(8, 5) + read(12) + words(0, 0, 0) + RPC, "12 overlaps the one", CHUNK),
        (NOMSG + words(0, 0, 0), "without a chunk that the message could be in", CHUNK),
        (NOMSG + read(8) + words(0, 0, 0), "without a chunk that the message could", CHUNK),
        (NOMSG + read(8) + words(0, 0, 1, 1) + segment(), "without a chunk that", CHUNK),
        (NOMSG + words(0, 1, 1) + segment() + words(0, 0), "without a chunk that", CHUNK),
        (NOMSG + words(0, 0, 1, 0), "without a chunk that the message could be in", CHUNK),
        (NOMSG + read(0) + words(0, 0, 0, 0), "4 bytes too many", CHUNK),
        (START + words(1, 8) + segment(2, (1 << 64) - 1), "beyond the last address", CHUNK),
        (START + read(8) * 4 + words(0, 0, 0) + RPC, "list of more than 24 bytes", CHUNK),
        (START + read(8, 0) * 4 + words(0, 0, 0) + RPC, "more than 3 segments", CHUNK),
        (START + read(8, 25) + words(0, 0, 0) + RPC, "list of more than 24 bytes", CHUNK),
        (START + read(8) + read(16) + read(24) + words(0, 0, 0), "more than 2 read ch", CHUNK),
        (START + words(0) + words(1, 0) * 3 + words(0, 0), "more than 2 items", CHUNK),
        (START + words(0, 1, 4) + segment() * 4 + words(0, 0), "count 4 is above 3", CHUNK),
        (START + read(8) * 2 + words(0, 0, 1, 2) + segment() * 2, "count 2 is above 1", CHUNK),
        (START + words(0, 1, 3) + segment() * 2, "3 items cannot be in 32 bytes", CHUNK),
    ],
)
def test_rules(data: bytes, wrong: str, code: ErrorCode) -> None:
    with pytest.raises(HeaderError) as caught:
        decode_header(data, SMALL)
    assert wrong in str(caught.value)
    assert caught.value.code == code
    reply = error_reply(data, caught.value, 9)
    if 16 > len(data):
        assert reply is None
        return
    xid, version = struct.unpack_from(">II", data)
    assert reply == words(xid, version, 9, 4, *((1, 1, 1) if code == ErrorCode.ERR_VERS else (2,)))
    assert isinstance(decode_header(reply)[0], ErrorHeader)


def test_at_the_limits() -> None:
    data = START + read(8) + words(0) + words(1, 1) + segment(24) + words(1, 0, 0)
    header, _ = decode_header(data + words(1, 1) + segment(24) + RPC, SMALL)
    assert isinstance(header, Header)
    assert (len(header.reads), len(header.writes), header.reply) == (
        1,
        2,
        (Segment(5, 24, S.offset),),
    )
    edge = START + words(1, 8) + segment(2, (1 << 64) - 2) + words(0, 0, 0) + RPC
    assert isinstance(decode_header(edge)[0], Header)


def test_no_error_answers_an_error() -> None:
    for data in (words(7, 1, 32, 4, 3), words(7, 1, 32, 4), words(7, 1, 32, 4, 1, 1)):
        with pytest.raises(HeaderError) as caught:
            decode_header(data)
        assert error_reply(data, caught.value, 9) is None


@pytest.mark.parametrize(
    ("header", "wrong"),
    [
        (Header(7, 0), "0 credits"),
        (ErrorHeader(7, 0, ErrorCode.ERR_CHUNK), "0 credits"),
        (ErrorHeader(7, 1, ErrorCode.ERR_CHUNK, (1, 1)), "versions do not go with ERR_CHUNK"),
        (ErrorHeader(7, 1, ErrorCode.ERR_VERS), "versions do not go with ERR_VERS"),
        (Header(7, 1, reads=(ReadChunk(0, (S,)),)), "RDMA_MSG with a read chunk at position 0"),
        (Header(7, 1, reads=(ReadChunk(8, ()),)), "without segments"),
        (Header(7, 1, reads=(ReadChunk(8, (S,)), ReadChunk(4, (S,)))), "overlaps"),
        (Header(7, 1, reads=(ReadChunk(8, (S,)), ReadChunk(8, (S,)))), "two read chunks at"),
        (Header(7, 1, Proc.RDMA_NOMSG), "without a chunk"),
        (Header(7, 1, writes=((Segment(1, 1 << 32, 0),),)), "not an unsigned 32-bit"),
    ],
)
def test_what_is_not_sent(header: Header | ErrorHeader, wrong: str) -> None:
    with pytest.raises(XdrError, match=wrong):
        encode_header(header)


@pytest.mark.parametrize(
    "data",
    [
        START + words(0, 1, 0xFFFFFFFF) + bytes(64),
        START + words(0, 0, 1, 0xFFFFFFFF) + bytes(64),
        START + words(0) + words(1, 0) * 8000,
        START + read(8, 0) * 8000,
    ],
)
def test_hostile_lists_cost_little(data: bytes) -> None:
    tracemalloc.start()
    try:
        with pytest.raises(HeaderError):
            decode_header(data)
        assert tracemalloc.get_traced_memory()[1] < 128 << 10
    finally:
        tracemalloc.stop()


WORD = st.integers(0, 0xFFFFFFFF)
CREDITS = st.integers(1, 0xFFFFFFFF)
SEGMENTS = st.builds(Segment, WORD, st.integers(0, 4096), st.integers(0, (1 << 64) - 4096))
LISTS = st.lists(SEGMENTS, max_size=4).map(tuple)
CHUNKS = st.lists(SEGMENTS, min_size=1, max_size=4).map(tuple)


@st.composite
def headers(draw: st.DrawFn) -> Header:
    reads, position = [], 0
    proc = draw(st.sampled_from(Proc))
    reply = draw(st.none() | LISTS)
    is_long_call = proc == Proc.RDMA_NOMSG and (not reply or draw(st.booleans()))
    if is_long_call:
        reads.append(ReadChunk(0, draw(CHUNKS)))
    if proc == Proc.RDMA_MSG or is_long_call:
        for segments in draw(st.lists(CHUNKS, max_size=3)):
            position += 4 * draw(st.integers(1, 50))
            reads.append(ReadChunk(position, segments))
            position += (reads[-1].length_bytes + 3) // 4 * 4
    writes = tuple(draw(st.lists(LISTS, max_size=4)))
    return Header(draw(WORD), draw(CREDITS), proc, tuple(reads), writes, reply)


ERRORS = st.builds(ErrorHeader, WORD, CREDITS, st.just(ErrorCode.ERR_CHUNK), version=WORD) | (
    st.builds(ErrorHeader, WORD, CREDITS, st.just(ErrorCode.ERR_VERS), st.tuples(WORD, WORD), WORD)
)


@given(headers() | ERRORS)
def test_headers_survive(header: Header | ErrorHeader) -> None:
    data = encode_header(header)
    is_short = isinstance(header, Header) and header.proc == Proc.RDMA_MSG
    assert decode_header(data + (data[:4] if is_short else b"")) == (header, len(data))


def checked(data: bytes) -> None:
    """`data` is a header, or an error that is answered well or not at all."""
    found: Any
    try:
        found, end = decode_header(data, SMALL)
    except HeaderError as wrong:
        reply = error_reply(data, wrong, 1)
        if reply is not None:
            assert isinstance(decode_header(reply)[0], ErrorHeader)
            assert reply[:8] == data[:8]
        return
    assert end <= len(data)
    if isinstance(found, Header) and found.credits:
        again = encode_header(found)
        assert len(again) == end
        assert decode_header(again + data[end:], SMALL) == (found, end)


@given(st.binary(max_size=120))
def test_any_bytes(data: bytes) -> None:
    checked(data)


@given(st.sampled_from([0, 1]), st.lists(st.sampled_from([0, 1, 2, 3, 4, 7, 8]), max_size=32))
def test_any_words(proc: int, values: list[int]) -> None:
    checked(words(7, 1, 1, proc, *values))


@given(headers(), st.data())
def test_one_wrong_byte(header: Header, data: st.DataObject) -> None:
    good = bytearray(encode_header(header) + words(header.xid))
    good[data.draw(st.integers(0, len(good) - 1))] ^= data.draw(st.integers(1, 255))
    checked(bytes(good))
