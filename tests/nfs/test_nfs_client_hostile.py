# SPDX-License-Identifier: BSD-2-Clause
"""Servers that lie: the client raises, and neither hangs nor writes where it should not."""

from __future__ import annotations

import asyncio
import contextlib
import struct
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scripted_nfs import ScriptedServer

from livedma.errors import LivedmaError
from livedma.nfs.client import BadReply, OperationFailed
from livedma.nfs.client.codec import (
    attribute,
    data,
    directory,
    handle,
    lock,
    session,
    sparse,
    xattr,
)
from livedma.nfs.client.codec import open as open_codec
from livedma.nfs.client.operation import Operation, ReplyDecoder, decode_results
from livedma.nfs.numbers import Attribute, CreateMode, FileType, Op, Stable, Status, XattrOption
from livedma.nfs.stateid import ANONYMOUS
from livedma.rpc.client import CallRefused
from livedma.rpc.xdr import XdrError

pytestmark = pytest.mark.slow

LIMIT_S = 60.0
WORDS = [0, 1, 2, 3, 4, 5, 8, 10, 18, 22, 25, 53, 0x7FFFFFFF, 0x80000000, 0xFFFFFFFF, 10008, 10052]


def every_operation(buffer: memoryview) -> list[Operation[Any]]:
    """One of each, as the client would send it."""
    share = open_codec.Share(3, 0, 1, b"owner")
    span, owner = lock.Range(0, 10, True), lock.LockOwner(1, b"owner")
    limits = session.ChannelLimits(4096, 4096, 0, 8, 4)
    return [
        session.exchange_id(bytes(8), b"owner"),
        session.create_session(1, 1, limits),
        session.bind_conn_to_session(bytes(16)),
        session.sequence(bytes(16), 1, 0, 0, False),
        session.destroy_session(bytes(16)),
        session.destroy_clientid(1),
        session.reclaim_complete(),
        handle.putrootfh(),
        handle.putfh(b"handle"),
        handle.getfh(),
        handle.lookup("name"),
        handle.lookupp(),
        handle.savefh(),
        handle.access(0x3F),
        attribute.getattr_of([Attribute.SIZE]),
        attribute.setattr_of(ANONYMOUS, {Attribute.SIZE: 1}),
        directory.create(FileType.DIR, "name", {}),
        directory.remove("name"),
        directory.rename("old", "new"),
        directory.link("name"),
        directory.readlink(),
        directory.readdir(0, bytes(8), 4096, [Attribute.TYPE]),
        open_codec.open_name(share, "name", CreateMode.EXCLUSIVE_1, {}, bytes(8)),
        open_codec.open_again(share),
        open_codec.open_reclaim(share),
        open_codec.open_downgrade(ANONYMOUS, 1, 0),
        open_codec.close(ANONYMOUS),
        open_codec.delegreturn(ANONYMOUS),
        open_codec.free_stateid(ANONYMOUS),
        lock.lock_first(span, ANONYMOUS, owner, waits=True),
        lock.lock(span, ANONYMOUS, waits=False),
        lock.lockt(span, owner),
        lock.locku(span, ANONYMOUS),
        data.read(ANONYMOUS, 0, buffer),
        data.write(ANONYMOUS, 0, b"data", Stable.UNSTABLE),
        data.commit(),
        sparse.seek(ANONYMOUS, 0, hole=True),
        sparse.allocate(ANONYMOUS, 0, 1),
        sparse.deallocate(ANONYMOUS, 0, 1),
        sparse.copy(ANONYMOUS, ANONYMOUS, 0, 0, 1),
        xattr.getxattr("name"),
        xattr.setxattr("name", b"value", XattrOption.EITHER),
        xattr.listxattrs(0, 4096),
        xattr.removexattr("name"),
    ]


OPERATIONS = len(every_operation(memoryview(bytearray(1))))

words = st.one_of(st.sampled_from(WORDS), st.integers(0, 40), st.integers(0, 0xFFFFFFFF))
bodies = st.one_of(
    st.binary(max_size=200),
    st.lists(words, max_size=40).map(lambda many: struct.pack(f">{len(many)}I", *many)),
)


@given(st.integers(0, OPERATIONS - 1), st.sampled_from(list(Status)), bodies, st.data())
@settings(max_examples=1000)
def test_any_bytes_are_results_or_an_xdr_error(
    which: int, status: Status, body: bytes, more: st.DataObject
) -> None:
    memory = bytearray(b"\xa5" * 80)
    buffer = memoryview(memory)[8:-8]
    operation = every_operation(buffer)[which]
    message = struct.pack(">IIIII", status, 0, 1, operation.op, status) + body
    decoder = ReplyDecoder(message)
    decoder.placed = more.draw(st.one_of(st.none(), st.integers(0, 100)))
    with contextlib.suppress(XdrError):
        outcome = decode_results(decoder, [operation])
        assert (outcome.error is None) == (status == Status.OK)
    assert memory[:8] == memory[-8:] == b"\xa5" * 8


@given(st.binary(max_size=400), st.booleans())
def test_any_bytes_are_a_reply_or_an_xdr_error(message: bytes, only_first: bool) -> None:
    operations = every_operation(memoryview(bytearray(8)))[3:10]
    with contextlib.suppress(XdrError):
        decode_results(ReplyDecoder(message), operations, only_first=only_first)


Edit = Callable[[bytes], bytes]


def _with_word(at: int, word: int) -> Edit:
    def edit(reply: bytes) -> bytes:
        place = 4 * (at % (len(reply) // 4))
        return reply[:place] + struct.pack(">I", word) + reply[place + 4 :]

    return edit


edits = st.one_of(
    st.builds(_with_word, st.integers(0, 200), words),
    st.integers(0, 300).map(lambda length: lambda reply: reply[:length]),
    st.binary(min_size=1, max_size=40).map(lambda more: lambda reply: reply + more),
    st.binary(max_size=80).map(lambda new: lambda reply: reply[:4] + new),
)


@pytest.mark.slow
@given(st.dictionaries(st.integers(0, 14), edits, min_size=1, max_size=3))
@settings(max_examples=150)
def test_no_edited_reply_makes_the_client_hang_or_break(changes: dict[int, Edit]) -> None:
    """Whatever a server makes of its replies: an error of ours, or none."""
    memory = bytearray(b"\xa5" * 116)

    async def run() -> None:
        async with ScriptedServer() as server:
            server.edit = lambda number, reply: (
                changes[number](reply) if number in changes else reply
            )
            client = await server.client(call_s=0.1, patience_s=0.4)
            try:
                await client.mkdir("/dir")
                async with await client.open("/file", "rw", create=True) as file:
                    await file.write(0, b"some data")
                    await file.lock(0, 3)
                    await file.read_into(0, memoryview(memory)[8:-8])
                await client.listdir("/")
                await client.rename("/dir", "/other")
            finally:
                await client.close()

    async def bounded() -> None:
        async with asyncio.timeout(LIMIT_S):
            # What is raised is for users: nothing of how the client is made shines through.
            with contextlib.suppress(LivedmaError):
                await run()

    asyncio.run(bounded())
    assert memory[:8] == memory[-8:] == b"\xa5" * 8


async def fails_with(edit: Edit, kind: type[Exception], match: str) -> None:
    """One call gets an edited reply; the next one finds the client as it was."""
    async with asyncio.timeout(LIMIT_S), ScriptedServer() as server:
        server.files[b"file"] = bytearray(b"content")
        async with await server.client(slots=1) as client:
            number = len(server.calls)
            server.edit = lambda call, reply: edit(reply) if call == number else reply
            with pytest.raises(kind, match=match):
                await client.stat("/file")
            assert (await client.stat("/file")).size == 7


# XID, type, accepted, verifier (2), status; then COMPOUND: status, tag, count; then SEQUENCE.
@pytest.mark.parametrize(
    ("word", "value", "kind", "match"),
    [
        (2, 1, CallRefused, "denied"),
        (5, 1, CallRefused, "PROG_UNAVAIL"),
        (5, 5, CallRefused, "SYSTEM_ERR"),
        (6, 2, BadReply, "OK within|within a COMPOUND|NOENT"),
        (6, 12345, BadReply, "12345"),
        (7, 0x7FFFFFFF, BadReply, "sensible"),
        (8, 5, BadReply, "5 results for 4"),
        (8, 3, BadReply, "sensible"),
        (9, Op.PUTFH, BadReply, "operation 22 for SEQUENCE"),
        (11, 0xABCD, BadReply, "another session, slot or sequence"),
        (15, 77, BadReply, "another session, slot or sequence"),
        (16, 1, BadReply, "another session, slot or sequence"),
    ],
)
def test_a_reply_with_a_wrong_word_fails_its_call_alone(
    word: int, value: int, kind: type[Exception], match: str
) -> None:
    def edit(reply: bytes) -> bytes:
        return reply[: 4 * word] + struct.pack(">I", value) + reply[4 * word + 4 :]

    asyncio.run(fails_with(edit, kind, match))


def test_more_bytes_than_were_asked_for_are_refused() -> None:
    async def run() -> None:
        async with ScriptedServer() as server, await server.client() as client:
            server.files[b"file"] = bytearray(b"content")
            file = await client.open("/file")
            read = server._read

            def too_much(call: Any, decoder: Any, out: Any) -> None:
                data = server._data(decoder)
                decoder.u64(), decoder.u32()
                out.boolean(True)
                out.opaque(bytes(data))

            server._read = too_much  # type: ignore[method-assign]
            memory = bytearray(16)
            with pytest.raises(BadReply, match="7 bytes of data, 4 asked for"):
                await file.read_into(0, memoryview(memory)[:4])
            assert memory == bytes(16)
            server._read = read  # type: ignore[method-assign]
            assert await file.read(0, 100) == b"content"
            await file.close()

    asyncio.run(run())


def test_a_file_that_never_ends_and_a_directory_that_goes_in_circles_are_noticed() -> None:
    async def run() -> None:
        async with ScriptedServer() as server, await server.client() as client:
            server.files = {b"file": bytearray(b"content"), b"a": None, b"b": None, b"c": None}

            def nothing(call: Any, decoder: Any, out: Any) -> None:
                server._data(decoder)
                decoder.u64(), decoder.u32()
                out.boolean(False)
                out.opaque(b"")

            def circle(call: Any, decoder: Any, out: Any) -> None:
                decoder.u64(), decoder.fixed(8), decoder.u32(), decoder.u32()
                decoder.array(type(decoder).u32)
                out.fixed(bytes(8), 8)
                out.boolean(True)
                out.u64(5)
                out.opaque(b"again")
                out.u32(0, 0, 0, 0)

            server._read = nothing  # type: ignore[method-assign]
            server._readdir = circle  # type: ignore[method-assign]
            async with asyncio.timeout(LIMIT_S):
                async with await client.open("/file") as file:
                    with pytest.raises(BadReply, match="not the end"):
                        await file.read(0, 100)
                with pytest.raises(BadReply, match="does not come to an end"):
                    await client.listdir("/")

    asyncio.run(run())


def test_a_path_that_climbs_is_refused() -> None:
    async def run() -> None:
        async with ScriptedServer() as server, await server.client() as client:
            before = len(server.calls)
            for path in ("/a/../b", "..", "a/.."):
                with pytest.raises(ValueError, match=r"\.\."):
                    await client.stat(path)
            with pytest.raises(ValueError, match="names no entry"):
                await client.mkdir("/")
            assert len(server.calls) == before

    asyncio.run(run())


def test_a_server_of_another_version_is_an_error_and_4_1_is_tried() -> None:
    async def run() -> None:
        async with ScriptedServer() as server:
            asked: list[int] = []

            def compound(connection: int, decoder: Any, seen: list[Op]) -> bytes:
                decoder.opaque()
                asked.append(decoder.u32())
                return struct.pack(">III", Status.MINOR_VERS_MISMATCH, 0, 0)

            server._compound = compound  # type: ignore[method-assign]
            with pytest.raises(OperationFailed, match="MINOR_VERS_MISMATCH"):
                await server.client()
            assert asked == [2, 1]

    asyncio.run(run())
