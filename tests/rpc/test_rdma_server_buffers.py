# SPDX-License-Identifier: BSD-2-Clause
"""Data of any shape goes through few buffers; calls wait for them in turn, and that is recorded."""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rdma_peer import Echo, Peer, data_reply, only_connection, serving, wait_until
from tests.rpc.rdma_chunks import ReadChunk, Segment, filled
from tests.rpc.rdma_header import Proc

from livedma.rdma import Device
from livedma.rpc.rdma_server import RdmaConnection, RdmaServer

pytestmark = pytest.mark.slow

TIGHT = {"credits": 8, "mapped_bytes": 0, "workers": 8}  # one buffer for data


@contextmanager
def tight(echo: Echo, **options: object) -> Iterator[tuple[RdmaServer, Device, Peer]]:
    with (
        serving(echo, **{**TIGHT, **options}) as (server, device),
        Peer(device, server.device.address, size=4 << 20) as peer,
    ):
        yield server, device, peer


def nothing_is_taken(connection: RdmaConnection) -> bool:
    data = connection.memory.data_pool.stats.data
    return not data.taken and not data.waiting


def test_calls_share_one_buffer() -> None:
    """Replies and calls of many pieces each, all at once."""
    echo = Echo()
    data = random.Random(1).randbytes(200_001)
    echo.answer = data_reply(data)
    with tight(echo) as (server, _, peer):
        peer.memory[3 << 20 : (3 << 20) + len(data)] = data
        xids = []
        for i in range(8):
            chunk = (peer.segment(i * 300_000, 300_000),)
            reads = (ReadChunk(4, (peer.segment(3 << 20, len(data)),)),) if i % 2 else ()
            xids.append(peer.call(writes=(chunk,), reads=reads))
        for i, xid in enumerate(xids):
            header, _ = peer.reply(xid)
            assert sum(s.length for s in header.writes[0]) == len(data)
            assert peer.memory[i * 300_000 : i * 300_000 + len(data)] == data
        connection = only_connection(server)
        wait_until(lambda: nothing_is_taken(connection))
        stats = connection.statistics()
        count, total, longest, buckets = stats["buffer_waits"]
        assert count == sum(many for _, many in buckets) > 8
        assert 0 < longest <= total
        assert (stats["bytes_pushed"], stats["bytes_pulled"]) == (8 * len(data), 4 * len(data))
        assert connection.memory.data_pool.stats.buffers == 1 + connection.memory.reserve
        sent = sorted(len(message) for message in echo.messages)
        assert sent == [4] * 4 + [4 + 200_004] * 4


def test_what_is_gathered_is_bounded_together() -> None:
    """Long calls wait for each other, and none is lost."""
    echo = Echo()
    echo.answer = [b"word"]
    with tight(echo, message_bytes=100_000, gathered_bytes=150_000) as (server, _, peer):
        reads = (ReadChunk(4, (peer.segment(0, 90_000),)),)
        xids = [peer.call(reads=reads) for _ in range(8)]
        for xid in xids:
            peer.reply(xid)
        connection = only_connection(server)
        wait_until(lambda: not connection.statistics()["gathered_bytes"])
        assert sorted(map(len, echo.messages)) == [90_004] * 8


def test_many_segments_through_a_short_queue() -> None:
    """More requests than the send queue takes at a time go in their order."""
    echo = Echo()
    data = random.Random(2).randbytes(60_000)
    echo.answer = data_reply(data)
    with tight(echo, credits_max=8) as (server, _, peer):
        xids, chunks = [], []
        for i in range(8):
            base = i * 120_000
            chunks.append(tuple(peer.segment(base + j * 600, 300) for j in range(200)))
            xids.append(peer.call(writes=(chunks[i],)))
        for xid, chunk in zip(xids, chunks, strict=True):
            assert peer.reply(xid)[0].writes == (filled(chunk, len(data)),)
        for i in range(8):
            base = i * 120_000
            got = b"".join(peer.memory[base + j * 600 :][:300] for j in range(200))
            assert got == data
        assert only_connection(server).statistics()["send_waits"][0]


def cut(draw: st.DrawFn, length: int, base: int, peer: Peer) -> tuple[Segment, ...]:
    """The bytes from base on as segments, with gaps, some of them empty."""
    lengths, left = [], length
    while left and len(lengths) < 5:
        lengths.append(draw(st.integers(0, left)))
        left -= lengths[-1]
    lengths.append(left)
    segments, at = [], base
    for one in lengths:
        segments.append(peer.segment(at, one))
        at += one + draw(st.integers(0, 9))
    return tuple(segments)


def test_chunks_of_any_layout() -> None:
    """What comes out is what Python's rules say, whatever the chunks are like."""
    echo = Echo()
    with tight(echo) as (server, _, peer):

        @settings(max_examples=60)
        @given(st.data())
        def check(draw_from: st.DataObject) -> None:
            draw = draw_from.draw
            one_draw: st.DrawFn = draw  # type: ignore[assignment]
            source = random.Random(draw(st.integers(0, 99)))
            xid = draw(st.integers(1, 1 << 31))
            whole, reduced = xid.to_bytes(4, "big"), xid.to_bytes(4, "big")
            reads: list[ReadChunk] = []
            data = b""
            for i in range(draw(st.integers(0, 3))):
                # No two chunks are at one position.
                inline = source.randbytes(4 * draw(st.integers(0 if data else 1, 20)))
                data = source.randbytes(draw(st.integers(0, 150_000)))
                whole, reduced = whole + inline, reduced + inline
                segments = cut(one_draw, len(data), i << 18, peer)
                at = 0
                for segment in segments:
                    start = segment.offset - peer.region.va
                    peer.memory[start : start + segment.length] = data[at:][: segment.length]
                    at += segment.length
                reads.append(ReadChunk(len(whole), segments))
                whole += data + bytes(-len(data) % 4)
            reduced += b"end."
            whole += b"end."
            is_long = draw(st.booleans())
            if is_long:
                peer.memory[1 << 20 :][: len(reduced)] = reduced
                start = (1 << 20, (1 << 20) + len(reduced))
                peer.memory[start[0] : start[1]] = reduced
                reads.insert(0, ReadChunk(0, cut_exactly(peer, 1 << 20, len(reduced))))
            answer = source.randbytes(draw(st.integers(0, 150_000)))
            echo.answer = data_reply(answer)
            room = len(answer) + draw(st.integers(0, 100))
            offered = cut(one_draw, room, 2 << 20, peer)
            echo.messages.clear()
            proc = Proc.RDMA_NOMSG if is_long else Proc.RDMA_MSG
            peer.call(reduced[4:], xid=xid, proc=proc, reads=tuple(reads), writes=(offered,))
            header, message = peer.reply(xid)
            assert echo.messages == [whole]
            assert header.writes == (filled(offered, len(answer)),)
            assert message[4:] == len(answer).to_bytes(4, "big") + b"tail"
            placed = b"".join(
                bytes(peer.memory[s.offset - peer.region.va :][: s.length])
                for s in header.writes[0]
            )
            assert placed == answer

        check()
        wait_until(lambda: nothing_is_taken(only_connection(server)))


def cut_exactly(peer: Peer, base: int, length: int) -> tuple[Segment, ...]:
    half = length // 2
    return (peer.segment(base, half), peer.segment(base + half, length - half))
