# SPDX-License-Identifier: BSD-2-Clause
"""OPEN, OPEN_DOWNGRADE and CLOSE as clients send them."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from open_calls import (
    Part,
    attributes,
    by_handle,
    by_name,
    close_args,
    delegated,
    downgrade_args,
    exclusive,
    exclusive_1,
    guarded,
    no_create,
    open_args,
    previous,
    unchecked,
)
from opening import UID, World, refused, serve

from livedma.nfs.bitmap import bits, decode_bitmap, encode_bitmap
from livedma.nfs.numbers import Attribute, Op, Status
from livedma.nfs.server.context import Context
from livedma.nfs.server.state.clients import Client
from livedma.nfs.server.state.shares import BOTH, READ, WRITE, Share
from livedma.nfs.stateid import CURRENT, INVALID, Stateid
from livedma.rpc.xdr import Decoder, Encoder, XdrError
from needs import needs

pytestmark = pytest.mark.slow


@dataclass
class Result:
    stateid: Stateid
    is_atomic: bool
    before: int
    after: int
    flags: int
    done: int
    delegation: list[int]


class Machine:
    """A client at the export's root, or at a file."""

    def __init__(self, world: World, client: Client, uid: int = UID) -> None:
        self.world, self.client, self.uid = world, client, uid
        self.last: Context | None = None

    def at(self, name: str | None = None) -> Context:
        ctx = self.world.ctx(self.client, "a" if name is None else name, self.uid)
        if name is None:
            ctx.current = self.world.store.root
        self.last = ctx
        return ctx

    def open(
        self,
        claim: Part,
        how: Part = no_create,
        access: int = READ,
        deny: int = 0,
        *,
        at: str | None = None,
        owner: bytes = b"o",
    ) -> Result:
        out = serve(self.at(at), Op.OPEN, open_args(claim, how, access, deny, owner))
        result = Result(
            Stateid.decode(out),
            out.boolean(),
            out.u64(),
            out.u64(),
            out.u32(),
            decode_bitmap(out),
            [],
        )
        while out.left:
            result.delegation.append(out.u32())
        return result


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    world = World(tmp_path)
    if os.geteuid() == 0:
        os.chown(world.export, UID, UID)
    yield world
    world.close()


@pytest.fixture
def machine(world: World) -> Machine:
    return Machine(world, world.client())


def test_by_name(world: World, machine: Machine) -> None:
    result = machine.open(by_name(b"a"))
    assert result.stateid.seqid == 1
    assert result.flags == 4  # LOCKTYPE_POSIX
    assert not result.is_atomic and result.before == result.after
    assert result.done == 0 and result.delegation == [0]
    # The file is the current one, and its stateid the current stateid.
    assert machine.last is not None
    assert machine.last.node.key == world.node("a").key
    assert machine.last.current_stateid == result.stateid
    assert world.can(machine.client, result.stateid, False)


def test_by_handle(world: World, machine: Machine) -> None:
    result = machine.open(by_handle, at="b", access=BOTH)
    assert world.can(machine.client, result.stateid, True, file="b")


def test_there_has_to_be_such_a_file(machine: Machine) -> None:
    refused(Status.NOENT, machine.open, by_name(b"nothing"))
    refused(Status.NOTDIR, machine.open, by_name(b"x"), at="a")
    refused(Status.INVAL, machine.open, by_name(b""))
    refused(Status.BADNAME, machine.open, by_name(b".."))


def test_what_cannot_be_opened(world: World, machine: Machine) -> None:
    (world.export / "directory").mkdir()
    (world.export / "link").symlink_to("a")
    os.mkfifo(world.export / "fifo")
    for how in (no_create, unchecked()):
        refused(Status.ISDIR, machine.open, by_name(b"directory"), how)
        refused(Status.SYMLINK, machine.open, by_name(b"link"), how)
        refused(Status.WRONG_TYPE, machine.open, by_name(b"fifo"), how)
    refused(Status.ISDIR, machine.open, by_handle, at="directory")
    refused(Status.SYMLINK, machine.open, by_handle, at="link")
    refused(Status.WRONG_TYPE, machine.open, by_handle, at="fifo")
    assert len(world.opens.states) == 0


@pytest.mark.parametrize(
    ("access", "deny"), [(0, 0), (0x100, 0), (4, 0), (READ | 0x600, 0), (READ | 1 << 22, 0), (1, 4)]
)
def test_shares_that_mean_nothing(machine: Machine, access: int, deny: int) -> None:
    refused(Status.INVAL, machine.open, by_name(b"a"), access=access, deny=deny)


@pytest.mark.parametrize(
    ("want", "answer"),
    [
        (0, [0]),
        (0x30000, [0]),
        (0x300000, [0]),
        (0x100, [3, 2, 0]),
        (0x200, [3, 2, 0]),
        (0x300, [3, 2, 0]),
        (0x10300, [3, 2, 0]),
        (0x400, [3, 0]),
        (0x500, [3, 7]),
    ],
)
def test_nobody_gets_a_delegation(machine: Machine, want: int, answer: list[int]) -> None:
    assert machine.open(by_name(b"a"), access=READ | want).delegation == answer


@pytest.mark.parametrize("claim", [7, 99, 0xFFFFFFFF])
def test_unknown_claims(machine: Machine, claim: int) -> None:
    with pytest.raises(XdrError):
        machine.open(lambda out: out.u32(claim))


def test_claims_by_delegations(machine: Machine) -> None:
    nothing = Stateid(1, b"x" * 12)
    refused(Status.BAD_STATEID, machine.open, delegated(nothing, b"a"))
    refused(Status.BAD_STATEID, machine.open, delegated(nothing, None), at="a")

    def after_a_restart(out: Encoder) -> None:
        out.u32(3)
        out.opaque(b"a")

    refused(Status.NOTSUPP, machine.open, after_a_restart)
    refused(Status.NOTSUPP, machine.open, lambda out: out.u32(6), at="a")


class TestCreating:
    def test_unchecked(self, world: World, machine: Machine) -> None:
        result = machine.open(by_name(b"new"), unchecked(attributes(mode=0o640)), BOTH)
        made = (world.export / "new").stat()
        assert made.st_mode & 0o7777 == 0o640
        assert result.done == bits(Attribute.MODE)
        assert result.after != result.before
        again = machine.open(by_name(b"new"), unchecked(attributes(mode=0o600)), BOTH)
        assert again.stateid == Stateid(2, result.stateid.other)
        assert again.done == 0
        assert (world.export / "new").stat().st_mode & 0o7777 == 0o640

    @pytest.mark.parametrize("how", [unchecked, guarded])
    def test_a_mode_that_would_refuse_it(
        self, world: World, machine: Machine, how: Callable[[Part], Part]
    ) -> None:
        result = machine.open(by_name(b"new"), how(attributes(mode=0)), BOTH)
        assert world.can(machine.client, result.stateid, True, file="new")
        needs(os.geteuid() == 0, "acting as somebody else needs root")
        refused(Status.ACCESS, machine.open, by_name(b"new"), owner=b"another")

    def test_guarded(self, machine: Machine) -> None:
        machine.open(by_name(b"new"), guarded(), WRITE)
        refused(Status.EXIST, machine.open, by_name(b"new"), guarded(), WRITE)
        refused(Status.EXIST, machine.open, by_name(b"a"), guarded(), WRITE)

    def test_exclusive(self, machine: Machine) -> None:
        times = bits(Attribute.TIME_ACCESS, Attribute.TIME_MODIFY)
        first = machine.open(by_name(b"new"), exclusive(b"verifier"), BOTH)
        assert first.done == times
        # Sent once more, it opens what it made.
        again = machine.open(by_name(b"new"), exclusive(b"verifier"), BOTH)
        assert again.stateid.other == first.stateid.other and again.done == times
        refused(Status.EXIST, machine.open, by_name(b"new"), exclusive(b"VERIFIER"), BOTH)
        refused(Status.EXIST, machine.open, by_name(b"a"), exclusive(b"verifier"), BOTH)

    def test_exclusive_with_attributes(self, world: World, machine: Machine) -> None:
        how = exclusive_1(b"verifier", attributes(mode=0o444))
        first = machine.open(by_name(b"new"), how, BOTH)
        assert first.done == bits(Attribute.TIME_ACCESS, Attribute.TIME_MODIFY, Attribute.MODE)
        # Sent once more, by whom the mode would refuse.
        again = machine.open(by_name(b"new"), how, BOTH, owner=b"another")
        assert again.stateid.other != first.stateid.other
        assert world.can(machine.client, again.stateid, True, file="new")

    def test_times_are_the_verifier_of_an_exclusive_create(self, machine: Machine) -> None:
        def given(out: Encoder) -> None:
            out.raw(encode_bitmap(bits(Attribute.TIME_MODIFY_SET)))
            out.opaque(b"\0\0\0\0")

        refused(Status.INVAL, machine.open, by_name(b"new"), exclusive_1(b"verifier", given))
        machine.open(by_name(b"new"), unchecked(given))

    def test_only_by_name(self, machine: Machine) -> None:
        refused(Status.INVAL, machine.open, by_handle, unchecked(), at="a")
        refused(Status.INVAL, machine.open, previous(), unchecked(), at="a")

    def test_attributes_that_cannot_be_set(self, machine: Machine) -> None:
        def given(out: Encoder) -> None:
            out.raw(encode_bitmap(bits(Attribute.FILEID)))
            out.opaque(bytes(8))

        refused(Status.INVAL, machine.open, by_name(b"new"), unchecked(given))

    def test_nothing_is_made_where_there_is_no_room(self, tmp_path: Path) -> None:
        world = World(tmp_path, open_files_most=1)
        world.export.chmod(0o777)
        machine = Machine(world, world.client())
        machine.open(by_name(b"a"))
        refused(Status.DELAY, machine.open, by_name(b"new"), guarded(), WRITE)
        assert not (world.export / "new").exists()
        world.close()


CUT = unchecked(attributes(size=0))


def test_an_upgrade_where_there_is_no_room_for_more(tmp_path: Path) -> None:
    world = World(tmp_path, states_most=1)
    machine = Machine(world, world.client())
    opened = machine.open(by_name(b"a"))
    assert machine.open(by_name(b"a"), access=WRITE).stateid.other == opened.stateid.other
    refused(Status.DELAY, machine.open, by_name(b"b"))
    world.close()


class TestCutting:
    def size(self, world: World) -> int:
        return (world.export / "a").stat().st_size

    def test_it(self, world: World, machine: Machine) -> None:
        result = machine.open(by_name(b"a"), CUT, WRITE)
        assert self.size(world) == 0
        assert result.done == bits(Attribute.SIZE)

    def test_other_sizes_are_for_new_files(self, world: World, machine: Machine) -> None:
        assert machine.open(by_name(b"a"), unchecked(attributes(size=3)), WRITE).done == 0
        assert self.size(world) == 10
        machine.open(by_name(b"new"), unchecked(attributes(size=3)), WRITE)
        assert (world.export / "new").stat().st_size == 3

    def test_guarded_ones_are_left_alone(self, world: World, machine: Machine) -> None:
        refused(Status.EXIST, machine.open, by_name(b"a"), guarded(attributes(size=0)), WRITE)
        assert self.size(world) == 10

    def test_by_a_reader_who_could_write(self, world: World, machine: Machine) -> None:
        machine.open(by_name(b"a"), CUT, READ)
        assert self.size(world) == 0

    def test_not_against_the_mode(self, world: World, machine: Machine) -> None:
        world.allow(READ)
        for access in (READ, WRITE):
            refused(Status.ACCESS, machine.open, by_name(b"a"), CUT, access)
        assert self.size(world) == 10
        assert len(world.opens.states) == len(world.opens.descriptors) == 0

    def test_not_against_a_share(self, world: World, machine: Machine) -> None:
        world.open(world.client(b"other"), Share(READ, WRITE))
        refused(Status.SHARE_DENIED, machine.open, by_name(b"a"), CUT, WRITE)
        refused(Status.LOCKED, machine.open, by_name(b"a"), CUT, READ)
        assert self.size(world) == 10
        assert len(world.opens.states) == 1


class TestReadOnly:
    @pytest.fixture
    def machine(self, tmp_path: Path) -> Iterator[Machine]:
        world = World(tmp_path, read_only=True)
        yield Machine(world, world.client())
        world.close()

    def test_it(self, machine: Machine) -> None:
        machine.open(by_name(b"a"))
        refused(Status.ROFS, machine.open, by_name(b"a"), access=WRITE)
        refused(Status.ROFS, machine.open, by_name(b"a"), unchecked())
        refused(Status.ROFS, machine.open, by_name(b"new"), guarded())


class TestGrace:
    """Clients old and lost had something open when the server was killed."""

    @pytest.fixture
    def old(self, world: World) -> Machine:
        for name in (b"old", b"lost"):
            world.client(name)
        world.restart()
        return Machine(world, world.client(b"old", has_reclaimed=False))

    def test_reclaiming(self, world: World, old: Machine) -> None:
        result = old.open(previous(), at="a", access=BOTH, deny=WRITE)
        assert result.stateid.seqid == 1
        assert world.can(old.client, result.stateid, True)
        refused(Status.GRACE, old.open, by_name(b"b"))
        refused(Status.GRACE, old.open, by_handle, at="b")

    def test_only_while_there_is_grace(self, world: World, old: Machine) -> None:
        world.now += 90
        refused(Status.NO_GRACE, old.open, previous(), at="a")
        refused(Status.GRACE, old.open, by_name(b"a"))  # Not before RECLAIM_COMPLETE.
        world.recovery.complete(b"old")
        old.client.has_reclaimed = True
        old.open(by_name(b"a"))

    def test_not_after_reclaim_complete(self, world: World, old: Machine) -> None:
        world.recovery.complete(b"old")
        old.client.has_reclaimed = True
        refused(Status.NO_GRACE, old.open, previous(), at="a")

    def test_grace_is_over_when_all_are_back(self, world: World, old: Machine) -> None:
        new = Machine(world, world.client(b"new"))
        refused(Status.GRACE, new.open, by_name(b"a"))
        for owner in (b"old", b"lost"):
            world.recovery.complete(owner)
        new.open(by_name(b"a"))

    def test_who_had_nothing(self, world: World, old: Machine) -> None:
        stranger = Machine(world, world.client(b"stranger", has_reclaimed=False))
        refused(Status.RECLAIM_BAD, stranger.open, previous(), at="a")

    def test_who_had_a_delegation_has_its_open_again(self, old: Machine) -> None:
        assert old.open(previous(delegation=1), at="a").delegation == [0]
        assert old.open(previous(delegation=2), at="b").delegation == [0]
        refused(Status.INVAL, old.open, previous(delegation=4), at="a")

    def test_two_who_had_the_same(self, world: World, old: Machine) -> None:
        lost = Machine(world, world.client(b"lost", has_reclaimed=False))
        old.open(previous(), at="a", deny=READ)
        refused(Status.RECLAIM_CONFLICT, lost.open, previous(), at="a")

    def test_the_owner_may_whatever_the_mode_is_now(self, world: World, old: Machine) -> None:
        needs(os.geteuid() == 0, "a server without privilege cannot go past modes")
        world.allow(0)
        old.open(previous(), at="a", access=BOTH)
        stranger = Machine(world, old.client, uid=UID + 1)
        refused(Status.ACCESS, stranger.open, previous(), at="a", owner=b"another")


def test_downgrade(machine: Machine) -> None:
    machine.open(by_name(b"a"), access=READ)
    opened = machine.open(by_name(b"a"), access=BOTH)
    ctx = machine.at("a")
    refused(Status.INVAL, serve, ctx, Op.OPEN_DOWNGRADE, downgrade_args(opened.stateid, 0))
    refused(Status.INVAL, serve, ctx, Op.OPEN_DOWNGRADE, downgrade_args(opened.stateid, WRITE))
    out = serve(ctx, Op.OPEN_DOWNGRADE, downgrade_args(opened.stateid, READ))
    assert Stateid.decode(out) == ctx.current_stateid == Stateid(3, opened.stateid.other)
    assert out.left == 0
    out = serve(ctx, Op.OPEN_DOWNGRADE, downgrade_args(CURRENT, READ))
    assert Stateid.decode(out).seqid == 4


def test_close(machine: Machine) -> None:
    opened = machine.open(by_name(b"a"))
    ctx = machine.at("a")
    out = serve(ctx, Op.CLOSE, close_args(opened.stateid))
    assert Stateid.decode(out) == INVALID and out.left == 0
    refused(Status.BAD_STATEID, serve, ctx, Op.CLOSE, close_args(CURRENT))
    refused(Status.BAD_STATEID, serve, ctx, Op.CLOSE, close_args(opened.stateid))


def test_arguments_that_break_off(machine: Machine) -> None:
    whole = bytes(open_args(by_name(b"a"), exclusive_1(b"verifier", attributes(mode=1))))
    for length in range(0, len(whole), 4):
        out = Encoder()
        out.raw(whole[:length])
        with pytest.raises(XdrError):
            serve(machine.at(), Op.OPEN, out)


def test_owners_have_a_limit(machine: Machine) -> None:
    machine.open(by_name(b"a"), owner=b"x" * 1024)
    with pytest.raises(XdrError):
        machine.open(by_name(b"a"), owner=b"x" * 1025)


def test_states_of_a_file_that_is_removed(world: World, machine: Machine) -> None:
    """The inode stays while it is open; a new file of the same name is another one."""
    opened = machine.open(by_name(b"a"), access=BOTH)
    node = world.node("a")
    (world.export / "a").unlink()
    (world.export / "a").write_bytes(b"new")
    refused(Status.BAD_STATEID, world.can, machine.client, opened.stateid, False)
    ctx = machine.at("b")
    ctx.current = node
    with world.opens.for_io(ctx, opened.stateid, False) as fd:
        assert os.pread(fd, 2, 0) == b"01"
    assert isinstance(serve(ctx, Op.CLOSE, close_args(opened.stateid)), Decoder)
