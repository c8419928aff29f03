# SPDX-License-Identifier: BSD-2-Clause
"""A client that sends whatever it likes, beside one that is served meanwhile."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rdma_peer import PATIENCE, Echo, Peer, data_reply, only_connection, serving, wait_until
from test_rdma_header import headers
from tests.rpc.rdma_chunks import ReadChunk, Segment
from tests.rpc.rdma_header import Header, Proc, encode_header


def with_keys(header: Header, peer: Peer, keys: list[bool]) -> Header:
    """Segments of the peer's memory, as far as keys say so; the others are nobody's."""
    left = iter(keys * 64)

    def real(segment: Segment) -> Segment:
        if not next(left):
            return segment
        return peer.segment(segment.offset % 1000, min(segment.length, 100_000))

    reads, position = [], 0
    for chunk in header.reads:
        segments = tuple(real(segment) for segment in chunk.segments)
        position = max(position, chunk.position)
        reads.append(ReadChunk(position, segments))
        if chunk.position:
            position += (reads[-1].length_bytes + 3) // 4 * 4
    writes = tuple(tuple(real(segment) for segment in chunk) for chunk in header.writes)
    reply = None if header.reply is None else tuple(real(segment) for segment in header.reply)
    return replace(header, reads=tuple(reads), writes=writes, reply=reply)


def test_any_call() -> None:
    """Calls with good and bad keys, cut, mutated or whole: the server outlives them all."""
    echo = Echo()
    echo.answer = data_reply(bytes(70_000))
    with serving(echo, credits=4, mapped_bytes=0) as (server, device):
        address = server.device.address
        with Peer(device, address) as fine:

            @settings(max_examples=40)
            @given(st.lists(st.tuples(headers(), st.lists(st.booleans(), min_size=1)), min_size=1,
                            max_size=6), st.data())  # fmt: skip
            def attack(calls: list[tuple[Header, list[bool]]], data: st.DataObject) -> None:
                with Peer(device, address) as peer:
                    for header, keys in calls:
                        sent = encode_header(with_keys(header, peer, keys))
                        if header.proc == Proc.RDMA_MSG:
                            sent += header.xid.to_bytes(4, "big") + bytes(400)
                        changed = bytearray(sent)
                        if data.draw(st.booleans()):
                            place = data.draw(st.integers(0, len(changed) - 1))
                            changed[place] ^= data.draw(st.integers(0, 255))
                        peer.send(bytes(changed[: data.draw(st.integers(1, 4096))]))
                    if data.draw(st.booleans()):
                        peer.take()
                _, message = fine.reply(fine.call(writes=((fine.segment(0, 70_000),),)))
                assert message[4:] == (70_000).to_bytes(4, "big") + b"tail"

            attack()
            wait_until(lambda: len(server.connections) == 1)
            connection = server.connections[0]
            wait_until(lambda: not connection.memory.data_pool.stats.data.taken)
            pool, posted = connection.memory.receive_pool, connection.statistics
            wait_until(lambda: pool.stats.data.taken == posted()["posted"] >= 4)


@pytest.mark.parametrize("operation", ["WRITE", "READ"])
@pytest.mark.parametrize("pool", ["receive_pool", "data_pool"])
def test_a_peer_has_no_right_in_the_servers_buffers(pool: str, operation: str) -> None:
    """In no direction, though it knows their address and the key of their region."""
    with serving(Echo()) as (server, device), Peer(device, server.device.address) as peer:
        memory = only_connection(server).memory
        with getattr(memory, pool).take(timeout=PATIENCE) as buffer:
            place = {"remote_va": buffer.va, "rkey": memory.window.key}
        peer.connection.qp.post_send(0, operation, [peer.region[:64]], **place)
        peer.await_end()
        assert peer.failed[0].status == "REM_INV_REQ_ERR"  # no such operation on this queue pair
