# SPDX-License-Identifier: BSD-2-Clause
"""RPC over TCP from the caller's side, against servers that do as they like."""

from __future__ import annotations

import asyncio
import contextlib
import struct
from collections.abc import AsyncIterator, Awaitable, Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.rpc.records import encode_record

from livedma.rpc import tcp_client
from livedma.rpc.client import Answer, ConnectionLost
from livedma.rpc.tcp_client import TcpTransport

LIMIT_S = 30.0

Handler = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


@contextlib.asynccontextmanager
async def served(handler: Handler, **options: int) -> AsyncIterator[TcpTransport]:
    """A transport whose other end is `handler`."""
    tasks: list[asyncio.Task[None]] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        tasks.append(asyncio.current_task())  # type: ignore[arg-type]
        try:
            await handler(reader, writer)
        except (ConnectionError, asyncio.IncompleteReadError):
            pass
        finally:
            writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    transport = await tcp_client.connect("127.0.0.1", port, **options)
    try:
        async with asyncio.timeout(LIMIT_S):
            yield transport
    finally:
        transport.close()
        server.close()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def next_call(reader: asyncio.StreamReader) -> bytes:
    word = struct.unpack(">I", await reader.readexactly(4))[0]
    assert word & 0x80000000
    return await reader.readexactly(word & 0x7FFFFFFF)


def reply_to(call: bytes, body: bytes = b"") -> bytes:
    return encode_record(call[:4] + struct.pack(">I", 1) + body)


def message(number: int) -> bytes:
    return struct.pack(">III", 0, 0, number)


def test_replies_in_any_order_reach_their_calls() -> None:
    async def backwards(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        calls = [await next_call(reader) for _ in range(50)]
        for call in reversed(calls):
            writer.write(reply_to(call, call[8:]))

    async def run() -> None:
        async with served(backwards) as transport:
            answers = await asyncio.gather(*(transport.call(message(n)) for n in range(50)))
            assert [answer.message[8:] for answer in answers] == [
                struct.pack(">I", n) for n in range(50)
            ]
            assert all(answer.placed is None for answer in answers)
            assert transport.in_flight == 0

    asyncio.run(run())


@pytest.mark.parametrize("length", [0, 1, 3, 4, 70001])
def test_data_is_joined_with_its_padding_where_it_belongs(length: int) -> None:
    data = bytes(range(256)) * 300
    data = data[:length]
    seen: list[bytes] = []

    async def once(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        seen.append(await next_call(reader))
        writer.write(reply_to(seen[0]))

    async def run() -> None:
        async with served(once) as transport:
            await transport.call(b"....aaaabbbb", send_data=memoryview(data), position=8)

    asyncio.run(run())
    assert seen[0][4:] == b"aaaa" + data + bytes(-length % 4) + b"bbbb"


def test_calls_in_flight_have_xids_of_their_own_whatever_the_messages_say() -> None:
    async def collect(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        calls = [await next_call(reader) for _ in range(20)]
        assert len({call[:4] for call in calls}) == 20
        for call in calls:
            writer.write(reply_to(call))

    async def run() -> None:
        async with served(collect) as transport:
            transport._xid = 0xFFFFFFFA  # the count passes its end
            await asyncio.gather(*(transport.call(message(0)) for _ in range(20)))

    asyncio.run(run())


async def _close(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    await next_call(reader)


async def _half_a_reply(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    writer.write(reply_to(await next_call(reader), bytes(100))[:50])


async def _too_long(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    await next_call(reader)
    writer.write(struct.pack(">I", 0x80000000 | 4097))
    await asyncio.sleep(LIMIT_S)


async def _too_short(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    call = await next_call(reader)
    writer.write(encode_record(call[:7]))
    await asyncio.sleep(LIMIT_S)


async def _endless_fragments(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    await next_call(reader)
    writer.write(bytes(4) * 1000)
    await asyncio.sleep(LIMIT_S)


@pytest.mark.parametrize(
    "server", [_close, _half_a_reply, _too_long, _too_short, _endless_fragments]
)
def test_all_calls_learn_that_the_connection_is_lost(server: Handler) -> None:
    async def run() -> None:
        async with served(server, record_bytes=4096) as transport:
            calls = [asyncio.ensure_future(transport.call(message(n))) for n in range(10)]
            done = await asyncio.gather(*calls, return_exceptions=True)
            assert all(isinstance(one, ConnectionLost) for one in done)
            assert not transport.is_open
            with pytest.raises(ConnectionLost):
                await transport.call(message(0))

    asyncio.run(run())


def test_what_answers_nothing_is_counted_and_dropped() -> None:
    async def chatter(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        call = await next_call(reader)
        stranger = bytes([call[0] ^ 0xFF]) + call[1:4]
        writer.write(reply_to(stranger, b"no!!"))
        writer.write(encode_record(call[:4] + struct.pack(">I", 0) + b"call"))  # a callback
        writer.write(reply_to(call, b"yes!"))
        writer.write(reply_to(call, b"no!!"))
        writer.write(reply_to(await next_call(reader), b"yes?"))

    async def run() -> None:
        async with served(chatter) as transport:
            assert (await transport.call(message(0))).message[8:] == b"yes!"
            assert (await transport.call(message(0))).message[8:] == b"yes?"
            assert transport.strays == 3

    asyncio.run(run())


def test_a_cancelled_call_is_forgotten_and_harms_nobody() -> None:
    async def late(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        first, second = await next_call(reader), await next_call(reader)
        writer.write(reply_to(first) + reply_to(second, b"mine"))

    async def run() -> None:
        async with served(late) as transport:
            given_up = asyncio.ensure_future(transport.call(message(0)))
            await asyncio.sleep(0)
            given_up.cancel()
            with pytest.raises(asyncio.CancelledError):
                await given_up
            assert (await transport.call(message(1))).message[8:] == b"mine"
            assert transport.strays == 1

    asyncio.run(run())


def test_a_server_that_never_reads_does_not_make_us_hold_everything() -> None:
    async def deaf(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await asyncio.sleep(LIMIT_S)

    async def run() -> None:
        async with served(deaf) as transport:
            data = bytes(1 << 20)
            calls = [
                asyncio.ensure_future(transport.call(message(0), send_data=data, position=12))
                for _ in range(200)
            ]
            while transport._may_write.is_set():
                await asyncio.sleep(0.01)
            assert transport._stream is not None
            assert transport._stream.get_write_buffer_size() < 100 * len(data)
            transport.close()
            done = await asyncio.gather(*calls, return_exceptions=True)
            assert all(isinstance(one, ConnectionLost) for one in done)

    asyncio.run(run())


@pytest.mark.parametrize("name", ["127.0.0.1", "localhost"])
def test_nobody_there_is_an_error_that_names_the_address(name: str) -> None:
    async def run() -> None:
        with pytest.raises(ConnectionLost) as error:
            await tcp_client.connect(name, 1)
        assert str(error.value) == f"{name} port 1: Connection refused"

    asyncio.run(run())


@given(st.lists(st.binary(max_size=40), max_size=8), st.integers(0, 300))
def test_any_stream_gives_replies_or_an_end(chunks: list[bytes], cut: int) -> None:
    """No server: bytes as they might come, in any pieces, for three calls that wait."""

    class Wire(asyncio.Transport):
        def __init__(self) -> None:
            super().__init__({"socket": _Plug()})

        def write(self, data: object) -> None:
            pass

        def abort(self) -> None:
            pass

    async def run() -> None:
        transport = TcpTransport(64)
        transport.connection_made(Wire())
        transport._xid = 0
        calls = [asyncio.ensure_future(transport.call(message(n))) for n in range(3)]
        await asyncio.sleep(0)
        known = encode_record(struct.pack(">II", 2, 1))
        stream = b"".join(chunks[:4]) + known + b"".join(chunks[4:])
        transport.data_received(stream[:cut])
        transport.data_received(stream[cut:])
        transport.connection_lost(None)
        for done in await asyncio.gather(*calls, return_exceptions=True):
            assert isinstance(done, Answer | ConnectionLost)
        assert transport.in_flight == 0

    asyncio.run(run())


class _Plug:
    def setsockopt(self, *_: int) -> None:
        pass


def test_the_splitter_of_a_transport_is_bounded() -> None:
    transport = TcpTransport(64)
    transport.data_received(struct.pack(">I", 0x80000000 | 65))
    assert not transport.is_open and transport._splitter.held_bytes == 0
