# SPDX-License-Identifier: BSD-2-Clause
"""Opens: shares, versions, descriptors, limits, and what the accelerator hears of them."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterator
from itertools import product
from pathlib import Path

import pytest
from opening import World, refused

from livedma.nfs.numbers import Status
from livedma.nfs.server.state.shares import BOTH, READ, WRITE, Share
from livedma.nfs.stateid import ANONYMOUS, BYPASS, CURRENT, INVALID, Stateid

SHARES = [Share(access, deny) for access, deny in product((READ, WRITE, BOTH), range(4))]


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    world = World(tmp_path)
    yield world
    world.close()


def open_files(world: World) -> int:
    """Descriptors of this process for I/O on file a; nodes have others."""
    found = 0
    for name in os.listdir("/proc/self/fd"):
        try:
            is_a = os.path.samestat(os.fstat(int(name)), (world.export / "a").stat())
            info = Path(f"/proc/self/fdinfo/{name}").read_text()
        except OSError:
            continue
        flags = int(info.split("flags:")[1].split()[0], 8)
        found += is_a and not flags & os.O_PATH
    return found


@pytest.mark.parametrize("held", SHARES)
def test_every_combination(world: World, held: Share) -> None:
    one, other = world.client(b"one"), world.client(b"other")
    world.open(one, held)
    for wanted in SHARES:
        for client, owner in ((other, b"o"), (one, b"another")):
            if wanted.access & held.deny or wanted.deny & held.access:
                refused(Status.SHARE_DENIED, world.open, client, wanted, owner)
            else:
                state = world.open(client, wanted, owner)
                world.opens.close(world.ctx(client), state.stateid)
    assert len(world.opens.descriptors) == 1


def test_a_refusal_leaves_nothing(world: World) -> None:
    one, other = world.client(b"one"), world.client(b"other")
    world.open(one, Share(READ, BOTH))
    before = open_files(world)
    refused(Status.SHARE_DENIED, world.open, other, Share(READ))
    assert open_files(world) == before
    assert world.opens.held_by(other) == 0


def test_one_state_for_an_owner_and_a_file(world: World) -> None:
    client = world.client()
    state = world.open(client, Share(READ, WRITE))
    assert state.stateid.seqid == 1
    # What the owner denies is for others.
    assert world.open(client, Share(WRITE)) is state
    assert state.share == Share(BOTH, WRITE)
    assert state.stateid.seqid == 2
    assert world.open(client, Share(READ), owner=b"p", file="b") is not state
    assert len(world.opens.descriptors) == 2


def test_an_upgrade_opens_the_file_for_more(world: World) -> None:
    client = world.client()
    state = world.open(client, Share(READ))
    refused(Status.OPENMODE, world.can, client, state.stateid, True)
    world.open(client, Share(WRITE))
    assert world.can(client, state.stateid, True) and world.can(client, state.stateid, False)
    assert len(world.opens.descriptors) == 1


def test_an_upgrade_when_both_at_once_are_refused(world: World) -> None:
    """The file was opened to read, its mode changed, and now only writing is allowed."""
    client = world.client()
    state = world.open(client, Share(READ))
    world.allow(WRITE)
    world.open(client, Share(WRITE))
    assert world.can(client, state.stateid, True) and world.can(client, state.stateid, False)
    assert len(world.opens.descriptors) == 2
    world.opens.downgrade(world.ctx(client), state.stateid, Share(WRITE))
    assert len(world.opens.descriptors) == 1
    world.opens.close(world.ctx(client), state.stateid)
    assert len(world.opens.descriptors) == 0


def test_an_open_that_the_mode_refuses(world: World) -> None:
    client = world.client()
    world.allow(READ)
    refused(Status.ACCESS, world.open, client, Share(BOTH))
    state = world.open(client, Share(READ))
    refused(Status.ACCESS, world.open, client, Share(WRITE))
    assert state.share == Share(READ) and state.stateid.seqid == 1
    assert world.open(client, Share(WRITE), owner_may=True) is state


def test_downgrade(world: World) -> None:
    client, other = world.client(), world.client(b"other")
    ctx = world.ctx(client)
    state = world.open(client, Share(READ))
    world.open(client, Share(BOTH, WRITE))
    refused(Status.INVAL, world.opens.downgrade, ctx, state.stateid, Share(WRITE))
    refused(Status.INVAL, world.opens.downgrade, ctx, state.stateid, Share(READ, WRITE))
    refused(Status.INVAL, world.opens.downgrade, ctx, state.stateid, Share(BOTH, BOTH))
    refused(Status.SHARE_DENIED, world.open, other, Share(WRITE))
    assert world.opens.downgrade(ctx, state.stateid, Share(READ)).seqid == 3
    refused(Status.OPENMODE, world.can, client, state.stateid, True)
    world.open(other, Share(WRITE))
    # What was given up cannot be had by a downgrade.
    refused(Status.INVAL, world.opens.downgrade, ctx, state.stateid, Share(BOTH, WRITE))


def test_close(world: World) -> None:
    client, other = world.client(), world.client(b"other")
    before = open_files(world)
    state = world.open(client, Share(BOTH, BOTH))
    refused(Status.BAD_STATEID, world.opens.close, world.ctx(client, "b"), state.stateid)
    refused(Status.BAD_STATEID, world.opens.close, world.ctx(other), state.stateid)
    world.opens.close(world.ctx(client), state.stateid)
    refused(Status.BAD_STATEID, world.opens.close, world.ctx(client), state.stateid)
    assert open_files(world) == before and len(world.opens.states) == 0
    world.open(other, Share(BOTH, BOTH))


def test_old_and_future_versions(world: World) -> None:
    client = world.client()
    state = world.open(client, Share(READ))
    world.open(client, Share(READ))
    other = state.other
    refused(Status.OLD_STATEID, world.can, client, Stateid(1, other), False)
    refused(Status.BAD_STATEID, world.can, client, Stateid(3, other), False)
    assert world.can(client, Stateid(2, other), False) and world.can(
        client, Stateid(0, other), False
    )
    refused(Status.OLD_STATEID, world.opens.close, world.ctx(client), Stateid(1, other))


def test_io_is_for_the_file_that_was_opened(world: World) -> None:
    client = world.client()
    state = world.open(client, Share(READ))
    refused(Status.BAD_STATEID, world.can, client, state.stateid, False, file="b")
    refused(Status.BAD_STATEID, world.can, world.client(b"thief"), state.stateid, False)


def test_the_current_stateid(world: World) -> None:
    client = world.client()
    state = world.open(client, Share(READ))
    ctx = world.ctx(client)
    ctx.current_stateid = state.stateid
    world.open(client, Share(READ))
    with world.opens.for_io(ctx, CURRENT, False) as fd:  # The latest version is meant.
        assert os.pread(fd, 1, 0) == b"0"
    refused(Status.OLD_STATEID, world.opens.close, ctx, CURRENT)
    ctx.current_stateid = state.stateid
    world.opens.close(ctx, CURRENT)


def test_whoever_is_not_the_opener_needs_the_permission(world: World) -> None:
    client = world.client()
    state = world.open(client, Share(BOTH))
    assert world.can(client, state.stateid, False, uid=2000)
    world.allow(0)
    assert world.can(client, state.stateid, False)
    refused(Status.ACCESS, world.can, client, state.stateid, False, uid=2000)
    refused(Status.ACCESS, world.can, client, state.stateid, True, uid=None)


def test_reading_by_an_open_to_write(world: World) -> None:
    client = world.client()
    state = world.open(client, Share(WRITE))
    assert world.can(client, state.stateid, False)
    world.allow(WRITE)
    refused(Status.ACCESS, world.can, client, state.stateid, False)


def test_special_stateids(world: World) -> None:
    client, other = world.client(), world.client(b"other")
    for stateid in (ANONYMOUS, BYPASS):
        assert world.can(client, stateid, False) and world.can(client, stateid, True)
    state = world.open(other, Share(READ, BOTH))
    refused(Status.LOCKED, world.can, client, ANONYMOUS, False)
    refused(Status.LOCKED, world.can, client, ANONYMOUS, True)
    assert world.can(client, BYPASS, False)
    refused(Status.LOCKED, world.can, client, BYPASS, True)
    world.opens.close(world.ctx(other), state.stateid)
    world.open(other, Share(READ, WRITE))
    assert world.can(client, ANONYMOUS, False)
    refused(Status.LOCKED, world.can, client, ANONYMOUS, True)
    refused(Status.BAD_STATEID, world.can, client, INVALID, False)
    refused(Status.BAD_STATEID, world.can, client, Stateid(7, bytes(12)), False)


def test_special_stateids_wait_for_the_end_of_grace(world: World) -> None:
    world.client(b"old")
    world.restart()
    client = world.client(b"new")
    refused(Status.GRACE, world.can, client, ANONYMOUS, False)
    assert world.can(client, BYPASS, False)
    refused(Status.GRACE, world.can, client, BYPASS, True)


def test_a_descriptor_in_use_outlives_the_close(world: World) -> None:
    client = world.client()
    state = world.open(client, Share(READ))
    assert open_files(world) == 2  # One is the accelerator's.
    with world.opens.for_io(world.ctx(client), state.stateid, False) as fd:
        world.opens.close(world.ctx(client), state.stateid)
        assert os.pread(fd, 2, 0) == b"01"
        assert len(world.opens.descriptors) == 1
    assert len(world.opens.descriptors) == 0
    assert open_files(world) == 0


def test_a_client_that_is_gone_loses_all(world: World) -> None:
    client, other = world.client(), world.client(b"other")
    for owner, file in product((b"x", b"y"), "ab"):
        world.open(client, Share(READ, WRITE), owner, file)
    kept = world.open(other, Share(READ), b"x")
    world.expire(client)
    assert len(world.opens.states) == 1
    assert world.opens.held_by(client) == 0
    assert list(world.accelerator.granted) == [kept.other]
    deadline = time.monotonic() + 30
    while len(world.opens.descriptors) > 1 and time.monotonic() < deadline:
        time.sleep(0.001)
    assert len(world.opens.descriptors) == 1


def test_courtesy_ends_where_somebody_wants_it(world: World) -> None:
    gone, other = world.client(b"gone"), world.client(b"other")
    world.open(gone, Share(READ, WRITE))
    world.open(gone, Share(READ), file="b")
    world.silence(gone)
    world.open(other, Share(READ))
    assert world.opens.held_by(gone) == 2
    world.open(other, Share(WRITE))
    assert world.opens.held_by(gone) == 0
    # On the disk before the other one heard of its open.
    assert world.persist.clients() == {b"other"}


def test_courtesy_ends_for_io_as_well(world: World) -> None:
    gone, other = world.client(b"gone"), world.client(b"other")
    world.open(gone, Share(READ, WRITE))
    world.silence(gone)
    assert world.can(other, ANONYMOUS, False)
    assert world.opens.held_by(gone) == 1
    assert world.can(other, ANONYMOUS, True)
    assert world.persist.clients() == {b"other"}


def test_courtesy_ends_for_nobody_who_is_refused_anyway(world: World) -> None:
    gone, here, other = world.client(b"gone"), world.client(b"here"), world.client(b"other")
    world.open(gone, Share(READ, WRITE))
    world.open(here, Share(READ, WRITE))
    world.silence(gone)
    refused(Status.SHARE_DENIED, world.open, other, Share(WRITE))
    assert world.opens.held_by(gone) == 1


def test_as_many_descriptors_as_there_may_be(tmp_path: Path) -> None:
    world = World(tmp_path, open_files_most=2)
    client = world.client()
    world.open(client, Share(READ), b"1")
    state = world.open(client, Share(READ), b"2")
    before = open_files(world)
    refused(Status.DELAY, world.open, client, Share(READ), b"3")
    assert open_files(world) == before
    world.opens.close(world.ctx(client), state.stateid)
    world.open(client, Share(READ), b"3")
    world.close()


def test_as_many_states_as_a_client_may_have(tmp_path: Path) -> None:
    world = World(tmp_path, states_most=2)
    client, other = world.client(), world.client(b"other")
    world.open(client, Share(READ), b"1")
    state = world.open(client, Share(READ), b"2")
    refused(Status.DELAY, world.open, client, Share(READ), b"3")
    world.open(client, Share(WRITE), b"2")  # Not one more.
    world.open(other, Share(READ))
    world.opens.close(world.ctx(client), state.stateid)
    world.open(client, Share(READ), b"3")
    world.close()


def test_what_the_accelerator_hears(world: World) -> None:
    client = world.client()
    state = world.open(client, Share(READ))
    (granted,) = world.accelerator.granted.values()
    assert granted.pop("fd") >= 0
    assert granted == {
        "seqid": 1,
        "handle": world.node("a").handle,
        "readable": True,
        "writable": False,
        "client": client.number,
        "uid": 1000,
    }
    world.open(client, Share(WRITE))
    assert granted is not world.accelerator.granted[state.other]
    granted = world.accelerator.granted[state.other]
    assert (granted["seqid"], granted["readable"], granted["writable"]) == (2, True, True)
    world.opens.downgrade(world.ctx(client), state.stateid, Share(READ))
    assert (granted["seqid"], granted["readable"], granted["writable"]) == (3, True, False)
    world.opens.close(world.ctx(client), state.stateid)
    assert not world.accelerator.granted


def test_the_accelerator_hears_of_nobody_without_a_uid(world: World) -> None:
    client = world.client()
    ctx = world.ctx(client, uid=None)
    state = world.opened(ctx, b"o", Share(READ)).state
    assert not world.accelerator.granted
    world.opens.close(ctx, state.stateid)


def test_many_threads_open_and_close(world: World) -> None:
    client = world.client()
    wrong: list[BaseException] = []

    def work(owner: bytes) -> None:
        try:
            for _ in range(30):
                state = world.open(client, Share(BOTH), owner)
                assert world.can(client, state.stateid, True)
                world.opens.close(world.ctx(client), state.stateid)
        except BaseException as error:
            wrong.append(error)

    threads = [threading.Thread(target=work, args=(b"%d" % i,)) for i in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert not wrong
    assert len(world.opens.descriptors) == len(world.opens.states) == 0


def test_a_file_that_was_just_made_is_open_already(world: World, tmp_path: Path) -> None:
    client = world.client()
    world.allow(0)
    ctx = world.ctx(client)
    fd = os.open(world.export / "a", os.O_RDWR)
    stateid = world.opened(ctx, b"o", Share(READ), fd=fd).stateid
    assert world.can(client, stateid, False)
    refused(Status.OPENMODE, world.can, client, stateid, True)
    world.opens.close(ctx, stateid)
    with pytest.raises(OSError):
        os.fstat(fd)


def test_a_new_open_can_be_undone(world: World) -> None:
    client = world.client()
    ctx = world.ctx(client)
    opened = world.opened(ctx, b"o", Share(READ, BOTH))
    world.opens.undo(opened)
    assert len(world.opens.states) == len(world.opens.descriptors) == 0
    world.opens.undo(opened)
    world.open(world.client(b"other"), Share(BOTH))


def test_an_upgrade_can_be_undone(world: World) -> None:
    client = world.client()
    ctx = world.ctx(client)
    state = world.open(client, Share(READ))
    opened = world.opened(ctx, b"o", Share(WRITE, WRITE))
    world.opens.undo(opened)
    assert state.share == Share(READ) and state.stateid.seqid == 1
    granted = world.accelerator.granted[state.other]
    assert (granted["seqid"], granted["readable"], granted["writable"]) == (1, True, False)
    refused(Status.OPENMODE, world.can, client, state.stateid, True)


def test_nothing_is_undone_that_somebody_relies_on(world: World) -> None:
    client = world.client()
    ctx = world.ctx(client)
    opened = world.opened(ctx, b"o", Share(READ))
    world.open(client, Share(WRITE))
    world.opens.undo(opened)
    assert world.can(client, Stateid(0, opened.stateid.other), True)


def test_a_client_that_ends_while_it_opens(world: World) -> None:
    client = world.client()
    world.expire(client)
    refused(Status.EXPIRED, world.open, client, Share(READ))
    assert len(world.opens.states) == len(world.opens.descriptors) == 0
