# SPDX-License-Identifier: BSD-2-Clause
"""Locks: conflicts, versions, limits, grace, and what is left when somebody goes."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from opening import World, refused

from livedma.nfs.numbers import Status
from livedma.nfs.server.state.clients import Client
from livedma.nfs.server.state.locks import FirstLock, Range
from livedma.nfs.server.state.opened import LockState, OpenState
from livedma.nfs.server.state.shares import BOTH, READ, WRITE, Share
from livedma.nfs.stateid import ANONYMOUS, CURRENT, Stateid
from livedma.rpc.xdr import Decoder

END = (1 << 64) - 1


def shared(offset: int, length: int) -> Range:
    return Range.of(offset, length, False)


def exclusive(offset: int, length: int) -> Range:
    return Range.of(offset, length, True)


class Party:
    """A client with file a open to read and write."""

    def __init__(self, world: World, name: bytes, access: int = BOTH) -> None:
        self.world = world
        self.client: Client = world.client(name)
        self.open: OpenState = world.open(self.client, Share(access))

    def first(self, wanted: Range, owner: bytes = b"l") -> LockState:
        return self.world.lock_first(self.client, self.open, wanted, owner)

    def more(self, lock: LockState | Stateid, wanted: Range, is_reclaim: bool = False) -> LockState:
        stateid = lock if isinstance(lock, Stateid) else lock.stateid
        ctx = self.world.ctx(self.client)
        locked = self.world.locks.lock(ctx, stateid, wanted, is_reclaim=is_reclaim)
        return self.world.lock_of(self.client, locked)

    def unlock(self, lock: LockState | Stateid, wanted: Range) -> LockState:
        stateid = lock if isinstance(lock, Stateid) else lock.stateid
        unlocked = self.world.locks.unlock(self.world.ctx(self.client), stateid, wanted)
        return self.world.lock_of(self.client, unlocked)

    def test(self, wanted: Range, owner: bytes = b"l") -> None:
        self.world.locks.test(self.world.ctx(self.client), owner, wanted)

    def free(self, stateid: Stateid) -> None:
        self.world.locks.free(self.world.ctx(self.client), stateid)


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    world = World(tmp_path)
    yield world
    world.close()


@pytest.fixture
def ann(world: World) -> Party:
    return Party(world, b"ann")


@pytest.fixture
def bob(world: World) -> Party:
    return Party(world, b"bob")


@pytest.mark.parametrize(
    ("offset", "length"), [(0, 0), (5, 0), (END, 0), (END, 1), (2, END - 1), (END - 1, 2)]
)
def test_ranges_that_are_none(offset: int, length: int) -> None:
    refused(Status.INVAL, Range.of, offset, length, True)


def test_ranges_up_to_the_end() -> None:
    assert Range.of(0, END, True) == Range(0, END, True)
    assert Range.of(END, END, True) == Range(END, END, True)
    assert Range.of(END - 1, 1, False) == Range(END - 1, END - 1, False)
    assert Range.of(1, END - 1, False) == Range(1, END - 1, False)


def test_others_are_refused_and_told_why(ann: Party, bob: Party) -> None:
    ann.first(exclusive(100, 50), b"her lock")
    for attempt in (bob.first, bob.test):
        for wanted in (shared(149, 1), exclusive(0, 101), shared(0, END)):
            body = Decoder(refused(Status.DENIED, attempt, wanted).body)
            assert (body.u64(), body.u64(), body.u32()) == (100, 50, 2)
            assert (body.u64(), body.opaque()) == (ann.client.number, b"her lock")
            body.finish()
        attempt(exclusive(0, 100))
        attempt(exclusive(150, END))


def test_the_lock_in_the_way_may_reach_to_the_end(ann: Party, bob: Party) -> None:
    ann.first(shared(7, END))
    body = Decoder(refused(Status.DENIED, bob.test, exclusive(0, END)).body)
    assert (body.u64(), body.u64(), body.u32()) == (7, END, 1)


def test_readers_share(ann: Party, bob: Party) -> None:
    ann.first(shared(0, 10))
    bob.first(shared(5, 10))
    refused(Status.DENIED, ann.test, exclusive(0, 10))
    refused(Status.DENIED, bob.test, exclusive(0, 10))
    ann.test(exclusive(0, 5))


def test_owners_of_one_client_are_others(ann: Party) -> None:
    ann.first(exclusive(0, 10), b"one")
    refused(Status.DENIED, ann.first, exclusive(0, 10), b"two")
    refused(Status.DENIED, ann.test, shared(0, 10), b"two")
    ann.test(exclusive(0, 10), b"one")


def test_owners_of_the_same_name_but_other_clients_are_others(ann: Party, bob: Party) -> None:
    ann.first(exclusive(0, 10), b"l")
    refused(Status.DENIED, bob.first, exclusive(0, 10), b"l")


def test_upgrade_and_downgrade(ann: Party, bob: Party) -> None:
    lock = ann.first(shared(0, 10))
    theirs = bob.first(shared(0, 10))
    refused(Status.DENIED, ann.more, lock, exclusive(0, 10))
    bob.unlock(theirs, shared(0, 10))
    ann.more(lock, exclusive(0, 10))
    refused(Status.DENIED, bob.test, shared(3, 1))
    ann.more(lock, shared(2, 4))
    bob.test(shared(3, 1))
    refused(Status.DENIED, bob.test, shared(1, 1))


def test_unlocking_the_middle(ann: Party, bob: Party) -> None:
    lock = ann.first(exclusive(0, END))
    ann.unlock(lock, shared(10, 10))
    bob.test(exclusive(10, 10))
    refused(Status.DENIED, bob.test, exclusive(9, 1))
    refused(Status.DENIED, bob.test, exclusive(20, 1))
    ann.unlock(lock, shared(0, END))
    bob.test(exclusive(0, END))


def test_versions(ann: Party) -> None:
    lock = ann.first(shared(0, 1))
    assert lock.stateid.seqid == 1
    first = lock.stateid
    assert ann.more(first, shared(1, 1)).stateid.seqid == 2
    refused(Status.OLD_STATEID, ann.more, first, shared(2, 1))
    refused(Status.OLD_STATEID, ann.unlock, first, shared(2, 1))
    refused(Status.BAD_STATEID, ann.unlock, Stateid(3, lock.other), shared(2, 1))
    assert ann.unlock(Stateid(0, lock.other), shared(50, 1)).stateid.seqid == 3
    # An owner that is said to be new, and is not, is the one it was.
    assert ann.first(shared(8, 1)) is lock
    assert lock.stateid.seqid == 4


def test_which_stateids_lock(world: World, ann: Party, bob: Party) -> None:
    lock = ann.first(shared(0, 1))
    refused(Status.BAD_STATEID, ann.more, ann.open.stateid, shared(2, 1))
    refused(Status.BAD_STATEID, ann.unlock, ann.open.stateid, shared(2, 1))
    refused(Status.BAD_STATEID, bob.more, lock.stateid, shared(2, 1))
    refused(Status.BAD_STATEID, ann.more, ANONYMOUS, shared(2, 1))
    with_lock = FirstLock(lock.stateid, b"new")
    ctx = world.ctx(ann.client)
    refused(Status.BAD_STATEID, world.locks.lock, ctx, with_lock, shared(0, 1), is_reclaim=False)
    other_file = world.ctx(ann.client, "b")
    refused(
        Status.BAD_STATEID,
        world.locks.lock,
        other_file,
        lock.stateid,
        shared(0, 1),
        is_reclaim=False,
    )


def test_the_current_stateid(world: World, ann: Party) -> None:
    ctx = world.ctx(ann.client)
    ctx.current_stateid = ann.open.stateid
    first = FirstLock(CURRENT, b"l")
    ctx.current_stateid = world.locks.lock(ctx, first, shared(0, 1), is_reclaim=False)
    world.locks.lock(ctx, CURRENT, shared(1, 1), is_reclaim=False)
    world.locks.unlock(ctx, CURRENT, shared(0, 9))
    world.locks.free(ctx, CURRENT)
    refused(Status.BAD_STATEID, world.locks.unlock, ctx, CURRENT, shared(0, 9))


def test_locks_need_an_open_for_the_same(world: World) -> None:
    reader, writer = Party(world, b"reader", READ), Party(world, b"writer", WRITE)
    refused(Status.OPENMODE, reader.first, exclusive(0, 1))
    refused(Status.OPENMODE, writer.first, shared(1, 1))
    lock = reader.first(shared(0, 1))
    refused(Status.OPENMODE, reader.more, lock, exclusive(0, 1))
    writer.first(exclusive(1, 1))
    refused(Status.BAD_STATEID, reader.more, reader.open.stateid, shared(0, 1))


def test_io_by_a_lock_is_io_by_its_open(world: World) -> None:
    reader = Party(world, b"reader", READ)
    lock = reader.first(shared(0, 1))
    assert world.can(reader.client, lock.stateid, False)
    refused(Status.OPENMODE, world.can, reader.client, lock.stateid, True)
    reader.more(lock, shared(1, 1))
    refused(Status.OLD_STATEID, world.can, reader.client, Stateid(1, lock.other), False)


def test_closing_frees_the_locks_of_that_open(world: World, ann: Party, bob: Party) -> None:
    lock = ann.first(exclusive(0, 10))
    other_open = world.open(ann.client, Share(BOTH), b"another")
    kept = world.lock_first(ann.client, other_open, exclusive(20, 10))
    assert kept is not lock
    world.opens.close(world.ctx(ann.client), ann.open.stateid)
    bob.first(exclusive(0, 10))
    refused(Status.BAD_STATEID, ann.unlock, lock, exclusive(0, 10))
    refused(Status.DENIED, bob.test, exclusive(29, 1))
    ann.unlock(kept, exclusive(20, 10))


def test_free_stateid(ann: Party, bob: Party) -> None:
    lock = ann.first(exclusive(0, 10))
    refused(Status.LOCKS_HELD, ann.free, lock.stateid)
    refused(Status.LOCKS_HELD, ann.free, ann.open.stateid)
    refused(Status.BAD_STATEID, bob.free, lock.stateid)
    first = lock.stateid
    ann.unlock(lock, exclusive(0, 10))
    refused(Status.OLD_STATEID, ann.free, first)
    refused(Status.BAD_STATEID, ann.free, ANONYMOUS)
    ann.free(lock.stateid)
    refused(Status.BAD_STATEID, ann.free, lock.stateid)
    assert ann.first(exclusive(0, 10)).other != lock.other


def test_a_client_that_is_gone_locks_nothing(world: World, ann: Party, bob: Party) -> None:
    ann.first(exclusive(0, 10))
    world.expire(ann.client)
    bob.first(exclusive(0, 10))


@pytest.mark.parametrize("how", ["lock", "test"])
def test_courtesy_ends_where_somebody_wants_the_lock(
    world: World, ann: Party, bob: Party, how: str
) -> None:
    ann.first(exclusive(0, 10))
    world.silence(ann.client)
    bob.first(exclusive(10, 10))
    assert world.opens.held_by(ann.client) == 3
    if how == "test":
        bob.test(exclusive(0, 1))
    else:
        bob.first(exclusive(0, 1))
        assert world.persist.clients() == {b"bob"}
    assert world.opens.held_by(ann.client) == 0


def test_as_many_locks_as_a_client_may_have(tmp_path: Path) -> None:
    world = World(tmp_path, states_most=4)
    ann = Party(world, b"ann")
    lock = ann.first(shared(0, 1))
    ann.more(lock, shared(10, 1))
    refused(Status.DELAY, ann.more, lock, shared(20, 1))
    ann.unlock(lock, shared(0, 1))
    ann.more(lock, shared(20, 4))
    ann.unlock(lock, shared(21, 1))  # Which makes one more.
    assert world.opens.held_by(ann.client) == 5
    ann.unlock(lock, shared(0, END))
    ann.free(lock.stateid)
    assert world.opens.held_by(ann.client) == 1
    world.close()


def test_what_the_accelerator_hears(world: World) -> None:
    reader = Party(world, b"reader", READ)
    lock = reader.first(shared(0, 1))
    granted = world.accelerator.granted[lock.other]
    assert (granted["seqid"], granted["readable"], granted["writable"]) == (1, True, False)
    reader.more(lock, shared(1, 1))
    assert granted["seqid"] == 2
    world.open(reader.client, Share(WRITE))
    granted = world.accelerator.granted[lock.other]
    assert (granted["seqid"], granted["readable"], granted["writable"]) == (2, True, True)
    world.opens.downgrade(world.ctx(reader.client), reader.open.stateid, Share(READ))
    assert (granted["seqid"], granted["readable"], granted["writable"]) == (2, True, False)
    reader.unlock(lock, shared(0, END))
    reader.free(lock.stateid)
    assert list(world.accelerator.granted) == [reader.open.other]


class TestGrace:
    @pytest.fixture
    def old(self, world: World) -> Client:
        """A client that comes back after a restart, and has not reclaimed yet."""
        for name in (b"old", b"lost"):
            world.client(name)
        world.restart()
        return world.client(b"old", has_reclaimed=False)

    def test_reclaiming(self, world: World, old: Client) -> None:
        state = world.open(old, Share(BOTH))
        lock = world.lock_first(old, state, exclusive(0, 1), is_reclaim=True)
        refused(Status.GRACE, world.lock_first, old, state, exclusive(5, 1))
        ctx = world.ctx(old)
        world.locks.lock(ctx, lock.stateid, exclusive(5, 1), is_reclaim=True)
        refused(Status.GRACE, world.locks.test, ctx, b"l", exclusive(5, 1))
        world.now += 90
        refused(
            Status.NO_GRACE,
            world.locks.lock,
            ctx,
            lock.stateid,
            exclusive(6, 1),
            is_reclaim=True,
        )
        # Not before RECLAIM_COMPLETE.
        refused(Status.GRACE, world.lock_first, old, state, exclusive(7, 1))
        old.has_reclaimed = True
        world.lock_first(old, state, exclusive(7, 1))

    def test_a_client_that_comes_back_slowly(self, tmp_path: Path) -> None:
        """Its first session is silent for longer than a lease before it reclaims."""
        world = World(tmp_path, lease_s=10, grace_s=60)
        try:
            for name in (b"old", b"lost"):
                world.client(name)
            world.restart()
            old = world.client(b"old", has_reclaimed=False)
            world.now += 50
            world.server.tick()
            state = world.open(old, Share(BOTH))
            world.lock_first(old, state, exclusive(0, 1), is_reclaim=True)
            world.now += 10  # grace is over, and so is its lease
            world.server.tick()
            assert old.is_courtesy
        finally:
            world.close()

    def test_who_may_not(self, world: World, old: Client) -> None:
        stranger = world.client(b"stranger", has_reclaimed=False)
        state = world.open(stranger, Share(BOTH))
        refused(
            Status.RECLAIM_BAD,
            world.lock_first,
            stranger,
            state,
            exclusive(0, 1),
            is_reclaim=True,
        )
        stranger.has_reclaimed = True
        refused(
            Status.NO_GRACE, world.lock_first, stranger, state, exclusive(0, 1), is_reclaim=True
        )

    def test_two_who_had_the_same(self, world: World, old: Client) -> None:
        lost = world.client(b"lost", has_reclaimed=False)
        ours, theirs = world.open(old, Share(BOTH)), world.open(lost, Share(BOTH))
        world.lock_first(old, ours, exclusive(0, 1), is_reclaim=True)
        refused(
            Status.RECLAIM_CONFLICT,
            world.lock_first,
            lost,
            theirs,
            exclusive(0, 1),
            is_reclaim=True,
        )
