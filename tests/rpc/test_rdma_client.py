# SPDX-License-Identifier: BSD-2-Clause
"""The caller's side of RPC-over-RDMA against a server that does as each test likes, on a wire."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import replace

import pytest
from scripted_server import PORT, Peer, peers, reply_message
from tests.rpc.rdma_chunks import Segment, filled
from tests.rpc.rdma_header import ErrorCode, ErrorHeader, Header, Proc, encode_header

from livedma.rdma import Device
from livedma.rpc.client import CallRefused, ConnectionLost
from livedma.rpc.message import Call, encode_call
from livedma.rpc.rdma_client import RdmaTransport, connect
from livedma.rpc.rdma_private import PrivateData

_NET = f"127.{1 + os.getpid() // 250 % 250}.{1 + os.getpid() % 250}"
MESSAGE = encode_call(Call(0, 100003, 4, 0))
PATIENCE = 20.0

Script = Callable[[RdmaTransport, Peer], Awaitable[None]]


@pytest.fixture(scope="module")
def devices() -> Iterator[tuple[Device, Device]]:
    with Device(f"{_NET}.1") as here, Device(f"{_NET}.2") as there:
        yield here, there


@pytest.fixture
def play(devices: tuple[Device, Device]) -> Callable[..., None]:
    def run(script: Script, *, said: PrivateData | None = None, calls: int = 64) -> None:
        async def main() -> None:
            async with asyncio.timeout(PATIENCE):
                async with peers(*devices, said=said, calls=calls) as (transport, peer):
                    await script(transport, peer)

        asyncio.run(main())

    return run


def test_a_call_and_its_reply(play: Callable[..., None]) -> None:
    async def script(transport: RdmaTransport, peer: Peer) -> None:
        asking = asyncio.create_task(transport.call(MESSAGE))
        header, inline = await peer.call()
        assert inline == header.xid.to_bytes(4, "big") + MESSAGE[4:]
        assert header.credits == 64
        assert (header.reads, header.writes) == ((), ())
        await peer.reply(header, b"fine")
        answer = await asking
        assert answer.message == reply_message(header.xid, b"fine")
        assert answer.placed is None

    play(script)


def test_replies_in_any_order(play: Callable[..., None]) -> None:
    async def script(transport: RdmaTransport, peer: Peer) -> None:
        await _one(transport, peer)
        asking = [
            asyncio.create_task(transport.call(MESSAGE + bytes([0, 0, 0, i]))) for i in (1, 2)
        ]
        first, second = await peer.call(), await peer.call()
        await peer.reply(second[0], b"to 2")
        await peer.reply(first[0], b"to 1")
        answers = [(await one).message[8:] for one in asking]
        by_call = {first[1][-1]: b"to 1", second[1][-1]: b"to 2"}
        assert answers == [by_call[1], by_call[2]]

    play(script)


def test_no_more_calls_than_granted(play: Callable[..., None]) -> None:
    async def script(transport: RdmaTransport, peer: Peer) -> None:
        asking = [asyncio.create_task(transport.call(MESSAGE)) for _ in range(6)]
        header, _ = await peer.call()  # one, until something was granted
        await asyncio.sleep(0.05)
        assert peer.waiting == 0
        await peer.reply(header, credits=3)
        three = [(await peer.call())[0] for _ in range(3)]
        await asyncio.sleep(0.05)
        assert peer.waiting == 0
        for header in three[:2]:
            await peer.reply(header, credits=1)  # fewer than are open now
        await asyncio.sleep(0.05)
        assert peer.waiting == 0
        await peer.reply(three[2], credits=10)
        for _ in range(2):
            await peer.reply((await peer.call())[0])
        assert all([(await one).message for one in asking])
        assert transport.counters["peak"] == 3

    play(script)


def test_who_gives_up_waiting_leaves_the_turn_to_others(play: Callable[..., None]) -> None:
    async def script(transport: RdmaTransport, peer: Peer) -> None:
        open_call, patient = asyncio.create_task(transport.call(MESSAGE)), None
        header, _ = await peer.call()
        waiting = asyncio.create_task(transport.call(MESSAGE))
        patient = asyncio.create_task(transport.call(MESSAGE))
        await asyncio.sleep(0)
        waiting.cancel()
        await peer.reply(header, credits=1)
        await open_call
        await peer.reply((await peer.call())[0], b"mine")
        assert (await patient).message.endswith(b"mine")

    play(script)


def test_data_is_placed(play: Callable[..., None]) -> None:
    async def script(transport: RdmaTransport, peer: Peer) -> None:
        memory = bytearray(100_000)
        asking = asyncio.create_task(transport.call(MESSAGE, receive_into=memory))
        header, _ = await peer.call()
        ((segment,),) = header.writes
        assert segment.length == len(memory)
        data = os.urandom(70_001)
        await peer.write(segment, data)
        await peer.reply(header, writes=[filled([segment], len(data))])
        answer = await asking
        assert answer.placed == len(data)
        assert memory == data + bytes(len(memory) - len(data))

    play(script)


def test_data_is_fetched(play: Callable[..., None]) -> None:
    async def script(transport: RdmaTransport, peer: Peer) -> None:
        data = os.urandom(65_537)
        asking = asyncio.create_task(transport.call(MESSAGE, send_data=data, position=40))
        header, inline = await peer.call()
        (chunk,) = header.reads
        assert (chunk.position, chunk.length_bytes, len(inline)) == (40, len(data), len(MESSAGE))
        assert await peer.read(chunk.segments[0]) == data
        await peer.reply(header)
        await asking

    play(script)


def test_long_messages_both_ways(play: Callable[..., None]) -> None:
    async def script(transport: RdmaTransport, peer: Peer) -> None:
        message = MESSAGE + os.urandom(8000)
        asking = asyncio.create_task(transport.call(message, reply_room=9000))
        header, inline = await peer.call()
        assert (header.proc, inline) == (Proc.RDMA_NOMSG, b"")
        (chunk,) = header.reads
        assert chunk.position == 0
        assert await peer.read(chunk.segments[0]) == header.xid.to_bytes(4, "big") + message[4:]
        assert header.reply is not None and header.reply[0].length == 9000
        reply = reply_message(header.xid, os.urandom(8504))
        await peer.write(header.reply[0], reply)
        back = Header(header.xid, 8, Proc.RDMA_NOMSG, reply=filled(header.reply, len(reply)))
        await peer.send(encode_header(back))
        assert (await asking).message == reply

    play(script)


def test_thresholds_are_the_smaller_ones(play: Callable[..., None]) -> None:
    async def script(transport: RdmaTransport, peer: Peer) -> None:
        asking = asyncio.create_task(transport.call(MESSAGE + bytes(1000), reply_room=1000))
        header, _ = await peer.call()
        # A call of 1040 bytes is too long for its Receives, and so may a reply of 1000 be.
        assert header.proc == Proc.RDMA_NOMSG and header.reply is not None
        await peer.reply(header)
        await asking

    play(script, said=PrivateData(1024, 1024))


def _with_length(segment: Segment, length: int) -> tuple[Segment, ...]:
    return (replace(segment, length=length),)


@pytest.mark.parametrize("spoil", ["too long", "key", "place"])
def test_a_chunk_that_was_not_offered_ends_the_call(play: Callable[..., None], spoil: str) -> None:
    async def script(transport: RdmaTransport, peer: Peer) -> None:
        asking = asyncio.create_task(transport.call(MESSAGE, receive_into=bytearray(64)))
        header, _ = await peer.call()
        ((segment,),) = header.writes
        wrong = {
            "too long": replace(segment, length=65),
            "key": replace(segment, handle=segment.handle ^ 1),
            "place": replace(segment, offset=segment.offset + 8),
        }[spoil]
        await peer.reply(header, writes=[(wrong,)])
        with pytest.raises(CallRefused, match="not offered"):
            await asking
        await _one(transport, peer)
        assert transport.counters["refused"] == 1

    play(script)


def test_rdma_error_ends_the_call(play: Callable[..., None]) -> None:
    async def script(transport: RdmaTransport, peer: Peer) -> None:
        asking = asyncio.create_task(transport.call(MESSAGE))
        header, _ = await peer.call()
        await peer.send(encode_header(ErrorHeader(header.xid, 8, ErrorCode.ERR_CHUNK)))
        with pytest.raises(CallRefused, match="RDMA_ERROR"):
            await asking
        await _one(transport, peer)

    play(script)


def test_a_reply_chunk_without_the_reply(play: Callable[..., None]) -> None:
    async def script(transport: RdmaTransport, peer: Peer) -> None:
        asking = asyncio.create_task(transport.call(MESSAGE, reply_room=9000))
        header, _ = await peer.call()
        assert header.reply is not None
        back = Header(header.xid, 8, Proc.RDMA_NOMSG, reply=filled(header.reply, 100))
        await peer.send(encode_header(back))  # and nothing was written there
        with pytest.raises(CallRefused, match="no reply in it"):
            await asking

    play(script)


def test_replies_to_nobody_are_ignored(play: Callable[..., None]) -> None:
    async def script(transport: RdmaTransport, peer: Peer) -> None:
        asking = asyncio.create_task(transport.call(MESSAGE))
        header, _ = await peer.call()
        await peer.reply(replace(header, xid=header.xid ^ 1))
        await peer.reply(header)
        await peer.reply(header)
        await asking
        await _one(transport, peer)
        assert transport.counters["strays"] == 2

    play(script)


@pytest.mark.parametrize("cut", [3, 15, 20, 26])
def test_what_nobody_understands_ends_the_connection(play: Callable[..., None], cut: int) -> None:
    async def script(transport: RdmaTransport, peer: Peer) -> None:
        asking = asyncio.create_task(transport.call(MESSAGE))
        header, _ = await peer.call()
        whole = encode_header(Header(header.xid, 8)) + reply_message(header.xid)
        await peer.send(whole[:cut])
        with pytest.raises(ConnectionLost):
            await asking
        assert not transport.is_open
        with pytest.raises(ConnectionLost, match="broke the rules"):
            await transport.call(MESSAGE)

    play(script)


def test_a_lost_connection_ends_all_calls(play: Callable[..., None]) -> None:
    async def script(transport: RdmaTransport, peer: Peer) -> None:
        asking = [asyncio.create_task(transport.call(MESSAGE)) for _ in range(3)]
        await peer.call()
        peer.close()
        for one in asking:
            with pytest.raises(ConnectionLost):
                await one
        assert not transport.is_open

    play(script)


def test_closing_ends_all_calls_and_twice_is_fine(play: Callable[..., None]) -> None:
    async def script(transport: RdmaTransport, peer: Peer) -> None:
        asking = [asyncio.create_task(transport.call(MESSAGE)) for _ in range(3)]
        await peer.call()
        transport.close()
        transport.close()
        for one in asking:
            with pytest.raises(ConnectionLost, match="closed"):
                await one

    play(script)


def test_a_cancelled_call_leaves_its_memory_alone(play: Callable[..., None]) -> None:
    async def script(transport: RdmaTransport, peer: Peer) -> None:
        memory = bytearray(64)
        asking = asyncio.create_task(transport.call(MESSAGE, receive_into=memory))
        header, _ = await peer.call()
        asking.cancel()
        with pytest.raises(asyncio.CancelledError):
            await asking
        ((segment,),) = header.writes
        await peer.write(segment, b"x" * 64)  # late, and still no harm to the connection
        await peer.reply(header, writes=[(segment,)])
        await _one(transport, peer)
        assert memory == bytes(64)

    play(script)


def test_nobody_there(devices: tuple[Device, Device]) -> None:
    here, there = devices

    async def main() -> None:
        with pytest.raises(ConnectionLost, match="rejected"):
            await connect(there.address, PORT, device=here)

    asyncio.run(main())


async def _one(transport: RdmaTransport, peer: Peer) -> None:
    """The connection works."""
    asking = asyncio.create_task(transport.call(MESSAGE))
    header, _ = await peer.call()
    await peer.reply(header)
    assert (await asking).message == reply_message(header.xid)
