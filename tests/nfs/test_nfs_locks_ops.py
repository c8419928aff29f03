# SPDX-License-Identifier: BSD-2-Clause
"""LOCK, LOCKT, LOCKU, TEST_STATEID and FREE_STATEID as clients send them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from opening import World, refused, serve

from livedma.nfs.numbers import Op, Status
from livedma.nfs.server.context import Context
from livedma.nfs.server.state.clients import Client
from livedma.nfs.server.state.opened import OpenState
from livedma.nfs.server.state.shares import BOTH, Share
from livedma.nfs.stateid import ANONYMOUS, BYPASS, CURRENT, INVALID, Stateid
from livedma.rpc.xdr import Decoder, Encoder, XdrError

pytestmark = pytest.mark.slow

READ_LT, WRITE_LT, READW_LT, WRITEW_LT = 1, 2, 3, 4
END = (1 << 64) - 1


def first_lock(
    stateid: Stateid, kind: int, offset: int, length: int, owner: bytes = b"l"
) -> Encoder:
    out = Encoder()
    out.u32(kind, 0)
    out.u64(offset)
    out.u64(length)
    out.u32(1, 0)
    stateid.encode(out)
    out.u32(0)
    out.u64(77)  # of no meaning, as the sequence numbers
    out.opaque(owner)
    return out


def next_lock(stateid: Stateid, kind: int, offset: int, length: int) -> Encoder:
    out = Encoder()
    out.u32(kind, 0)
    out.u64(offset)
    out.u64(length)
    out.u32(0)
    stateid.encode(out)
    out.u32(0)
    return out


def lockt(kind: int, offset: int, length: int, owner: bytes = b"l") -> Encoder:
    out = Encoder()
    out.u32(kind)
    out.u64(offset)
    out.u64(length)
    out.u64(77)
    out.opaque(owner)
    return out


def locku(stateid: Stateid, offset: int, length: int) -> Encoder:
    out = Encoder()
    out.u32(WRITE_LT, 0)
    stateid.encode(out)
    out.u64(offset)
    out.u64(length)
    return out


def stateids(*several: Stateid) -> Encoder:
    out = Encoder()
    for stateid in several:
        stateid.encode(out)
    return out


def asked_about(*several: Stateid) -> Encoder:
    out = Encoder()
    out.array(several, lambda _, stateid: stateid.encode(out))
    return out


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    world = World(tmp_path)
    yield world
    world.close()


@pytest.fixture
def ann(world: World) -> Client:
    return world.client(b"ann")


@pytest.fixture
def hers(world: World, ann: Client) -> OpenState:
    return world.open(ann, Share(BOTH))


@pytest.fixture
def ctx(world: World, ann: Client) -> Context:
    return world.ctx(ann)


@pytest.fixture
def bob(world: World) -> Context:
    """A COMPOUND of somebody else, with the same file."""
    client = world.client(b"bob")
    ctx = world.ctx(client)
    ctx.current_stateid = world.open(client, Share(BOTH)).stateid
    return ctx


def test_a_life(ctx: Context, hers: OpenState) -> None:
    out = serve(ctx, Op.LOCK, first_lock(hers.stateid, WRITE_LT, 0, 10))
    first = Stateid.decode(out)
    assert out.left == 0 and first.seqid == 1 and ctx.current_stateid == first
    second = Stateid.decode(serve(ctx, Op.LOCK, next_lock(first, READ_LT, 20, END)))
    assert second == ctx.current_stateid == Stateid(2, first.other)
    out = serve(ctx, Op.LOCKU, locku(second, 0, END))
    third = Stateid.decode(out)
    assert out.left == 0 and third == ctx.current_stateid == Stateid(3, first.other)
    assert serve(ctx, Op.FREE_STATEID, stateids(third)).left == 0
    refused(Status.BAD_STATEID, serve, ctx, Op.FREE_STATEID, stateids(third))


@pytest.mark.parametrize(
    ("kind", "told"), [(READ_LT, 1), (READW_LT, 1), (WRITE_LT, 2), (WRITEW_LT, 2)]
)
def test_who_is_in_the_way(
    ctx: Context, hers: OpenState, bob: Context, kind: int, told: int
) -> None:
    serve(ctx, Op.LOCK, first_lock(hers.stateid, kind, 5, END, b"hers"))
    for op, args in (
        (Op.LOCK, first_lock(CURRENT, WRITEW_LT, 0, 6)),
        (Op.LOCKT, lockt(WRITE_LT, 0, 6)),
    ):
        body = Decoder(refused(Status.DENIED, serve, bob, op, args).body)
        assert (body.u64(), body.u64(), body.u32()) == (5, END, told)
        assert ctx.client is not None
        assert (body.u64(), body.opaque()) == (ctx.client.number, b"hers")
        body.finish()
    assert serve(bob, Op.LOCKT, lockt(WRITE_LT, 0, 5)).left == 0


def test_readers_do_not_mind_readers(ctx: Context, hers: OpenState, bob: Context) -> None:
    serve(ctx, Op.LOCK, first_lock(hers.stateid, READW_LT, 0, END))
    serve(bob, Op.LOCKT, lockt(READ_LT, 0, END))
    serve(bob, Op.LOCK, first_lock(CURRENT, READ_LT, 0, END))


@pytest.mark.parametrize(("offset", "length"), [(0, 0), (END, 1), (2, END - 1)])
def test_ranges_that_are_none(ctx: Context, hers: OpenState, offset: int, length: int) -> None:
    lock = Stateid.decode(serve(ctx, Op.LOCK, first_lock(hers.stateid, READ_LT, 0, 1)))
    for op, args in (
        (Op.LOCK, first_lock(hers.stateid, READ_LT, offset, length)),
        (Op.LOCK, next_lock(lock, READ_LT, offset, length)),
        (Op.LOCKT, lockt(READ_LT, offset, length)),
        (Op.LOCKU, locku(lock, offset, length)),
    ):
        refused(Status.INVAL, serve, ctx, op, args)


@pytest.mark.parametrize("kind", [0, 5, 0xFFFFFFFF])
def test_types_that_are_none(ctx: Context, hers: OpenState, kind: int) -> None:
    for op, args in (
        (Op.LOCK, first_lock(hers.stateid, kind, 0, 1)),
        (Op.LOCKT, lockt(kind, 0, 1)),
    ):
        with pytest.raises(XdrError):
            serve(ctx, op, args)


def test_what_cannot_be_locked(world: World, ann: Client, ctx: Context, hers: OpenState) -> None:
    (world.export / "directory").mkdir()
    (world.export / "link").symlink_to("a")
    for name, status in (("directory", Status.ISDIR), ("link", Status.SYMLINK)):
        at = world.ctx(ann, name)
        refused(status, serve, at, Op.LOCK, first_lock(hers.stateid, READ_LT, 0, 1))
        refused(status, serve, at, Op.LOCKT, lockt(READ_LT, 0, 1))


def test_files_that_nobody_has_open(world: World, ann: Client) -> None:
    assert serve(world.ctx(ann, "b"), Op.LOCKT, lockt(WRITE_LT, 0, END)).left == 0


def test_arguments_that_break_off(ctx: Context, hers: OpenState) -> None:
    for op, args in (
        (Op.LOCK, first_lock(hers.stateid, READ_LT, 0, 1)),
        (Op.LOCK, next_lock(hers.stateid, READ_LT, 0, 1)),
        (Op.LOCKT, lockt(READ_LT, 0, 1)),
        (Op.LOCKU, locku(hers.stateid, 0, 1)),
        (Op.TEST_STATEID, asked_about(hers.stateid)),
        (Op.FREE_STATEID, stateids(hers.stateid)),
    ):
        whole = bytes(args)
        for length in range(0, len(whole), 4):
            part = Encoder()
            part.raw(whole[:length])
            with pytest.raises(XdrError):
                serve(ctx, op, part)


def test_which_stateids_are_good(world: World, ctx: Context, hers: OpenState, bob: Context) -> None:
    theirs = bob.current_stateid
    assert theirs is not None
    lock = Stateid.decode(serve(ctx, Op.LOCK, first_lock(hers.stateid, READ_LT, 0, 1)))
    serve(ctx, Op.LOCK, next_lock(lock, READ_LT, 0, 1))
    asked = {
        hers.stateid: Status.OK,
        Stateid(0, hers.other): Status.OK,
        Stateid(2, hers.other): Status.BAD_STATEID,
        lock: Status.OLD_STATEID,
        Stateid(2, lock.other): Status.OK,
        theirs: Status.BAD_STATEID,
        Stateid(1, b"never given "): Status.BAD_STATEID,
        **dict.fromkeys((ANONYMOUS, BYPASS, CURRENT, INVALID), Status.BAD_STATEID),
    }
    out = serve(ctx, Op.TEST_STATEID, asked_about(*asked))
    assert out.array(Decoder.u32) == list(asked.values())
    out.finish()
    assert serve(ctx, Op.TEST_STATEID, asked_about()).u32() == 0


def test_a_count_that_cannot_be(ctx: Context) -> None:
    out = Encoder()
    out.u32(0xFFFFFFFF)
    with pytest.raises(XdrError):
        serve(ctx, Op.TEST_STATEID, out)


def test_freeing_what_is_in_use(ctx: Context, hers: OpenState) -> None:
    lock = Stateid.decode(serve(ctx, Op.LOCK, first_lock(hers.stateid, READ_LT, 0, 1)))
    refused(Status.LOCKS_HELD, serve, ctx, Op.FREE_STATEID, stateids(lock))
    refused(Status.LOCKS_HELD, serve, ctx, Op.FREE_STATEID, stateids(hers.stateid))
    refused(Status.BAD_STATEID, serve, ctx, Op.FREE_STATEID, stateids(ANONYMOUS))


def test_delegations_are_nobodys(ctx: Context, hers: OpenState) -> None:
    refused(Status.BAD_STATEID, serve, ctx, Op.DELEGRETURN, stateids(hers.stateid))
    out = Encoder()
    out.u64(1)
    refused(Status.NOTSUPP, serve, ctx, Op.DELEGPURGE, out)


def test_states_are_for_those_with_a_session(world: World, ctx: Context, hers: OpenState) -> None:
    ctx.client = None
    refused(Status.OP_NOT_IN_SESSION, serve, ctx, Op.LOCKT, lockt(READ_LT, 0, 1))
