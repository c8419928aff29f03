# SPDX-License-Identifier: BSD-2-Clause
"""The two codecs of RPC-over-RDMA headers, C's and Python's, agree on whatever comes."""

from __future__ import annotations

import struct

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from test_rdma_header import headers
from tests.rpc.native_header import NativeHeader
from tests.rpc.rdma_chunks import Segment, filled
from tests.rpc.rdma_header import (
    Done,
    ErrorHeader,
    Header,
    HeaderError,
    Limits,
    Proc,
    decode_header,
    encode_header,
    error_reply,
)

from livedma.wire.rpcrdma import DONE, ERROR

pytestmark = pytest.mark.slow

SMALL = Limits(chunks=3, segments=6, list_bytes=300)


def plain(segments: tuple[Segment, ...]) -> tuple[tuple[int, int, int], ...]:
    return tuple((s.handle, s.length, s.offset) for s in segments)


def decoded(data: bytes, limits: Limits) -> tuple[Header | ErrorHeader | Done, int] | HeaderError:
    try:
        return decode_header(data, limits)
    except HeaderError as wrong:
        return wrong


def agree(data: bytes, limits: Limits) -> NativeHeader:
    native = NativeHeader(data, limits.chunks, limits.segments, limits.list_bytes)
    found = decoded(data, limits)
    if isinstance(found, HeaderError):
        assert native.error == found.code
        assert native.encode_error(9) == error_reply(data, found, 9)
        return native
    header, end = found
    assert not native.error
    version = header.version if isinstance(header, ErrorHeader) else 1
    proc = native.fields[3]
    assert native.fields == (header.xid, version, header.credits, proc, end)
    if isinstance(header, ErrorHeader):
        assert (proc, native.rdma_error) == (ERROR, (header.code, header.versions))
    elif isinstance(header, Done):
        assert proc == DONE
    else:
        assert proc == header.proc
        assert native.reads == tuple((c.position, plain(c.segments)) for c in header.reads)
        assert native.writes == tuple(plain(chunk) for chunk in header.writes)
        assert native.reply == (None if header.reply is None else plain(header.reply))
        if header.credits:
            assert native.encode() == encode_header(header)
    return native


@given(headers(), st.booleans())
def test_good_headers(header: Header, is_small: bool) -> None:
    data = encode_header(header)
    if header.proc == Proc.RDMA_MSG:
        data += header.xid.to_bytes(4, "big") + b"more"
    agree(data, SMALL if is_small else Limits())


@given(headers(), st.data())
def test_mutated_headers(header: Header, data: st.DataObject) -> None:
    good = bytearray(encode_header(header) + header.xid.to_bytes(4, "big"))
    for _ in range(data.draw(st.integers(1, 3))):
        place = data.draw(st.integers(0, len(good) // 4 - 1)) * 4
        good[place : place + 4] = struct.pack(
            ">I", data.draw(st.sampled_from([0, 1, 2, 3, 4, 8, 0xFFFFFFFF]) | st.integers(0, 400))
        )
    cut = data.draw(st.integers(0, len(good)))
    agree(bytes(good), SMALL)
    agree(bytes(good[:cut]), Limits())


@settings(max_examples=400)
@given(st.sampled_from(range(6)), st.lists(st.sampled_from([0, 1, 2, 4, 8, 100]), max_size=40))
def test_any_words(proc: int, values: list[int]) -> None:
    agree(struct.pack(f">{4 + len(values)}I", 7, 1, 1, proc, *values), SMALL)


@given(st.binary(max_size=200))
def test_any_bytes(data: bytes) -> None:
    agree(data, Limits())


@given(headers(), st.data())
def test_replies(header: Header, data: st.DataObject) -> None:
    """Headers of replies are what Python makes of them."""
    tail = header.xid.to_bytes(4, "big") if header.proc == Proc.RDMA_MSG else b""
    native = agree(encode_header(header) + tail, Limits())
    room = sum(s.length for s in header.writes[0]) if header.writes else 0
    written = data.draw(st.integers(0, room))
    writes = tuple(filled(c, 0 if i else written) for i, c in enumerate(header.writes))
    expected = Header(header.xid, 9, writes=writes)
    assert native.encode_reply(9, written) == encode_header(expected)
    if header.reply:
        long = data.draw(st.integers(0, sum(s.length for s in header.reply)))
        expected = Header(
            header.xid, 9, Proc.RDMA_NOMSG, writes=writes, reply=filled(header.reply, long)
        )
        assert native.encode_reply(9, written, long) == encode_header(expected)


@given(headers())
def test_the_only_handle(header: Header) -> None:
    tail = header.xid.to_bytes(4, "big") if header.proc == Proc.RDMA_MSG else b""
    native = agree(encode_header(header) + tail, Limits())
    lists = [*(c.segments for c in header.reads), *header.writes, header.reply or ()]
    handles = {segment.handle for segments in lists for segment in segments}
    assert native.only_handle == (handles.pop() if len(handles) == 1 else 0)
