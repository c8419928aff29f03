# SPDX-License-Identifier: BSD-2-Clause
"""Delegations: which client gets one, what it is good for, what ends it."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from calling import OTHER, PUTROOTFH, op, reclaim_complete
from delegating import (
    BACK_CHANNEL,
    WANT_ANY,
    WANT_CANCEL,
    WANT_NONE,
    WANT_READ,
    WANT_WRITE,
    BackPeer,
    Delegating,
    delegating,
    lookup,
    opened,
    with_stateid,
)
from open_calls import attributes, by_handle, by_name, delegated, open_args, previous, unchecked

from livedma.nfs.numbers import Op, Status
from livedma.nfs.server.state.shares import BOTH, READ, WRITE
from livedma.nfs.stateid import ANONYMOUS
from livedma.rpc.xdr import Encoder
from needs import needs

REVOKED = 0x40
LEASE_S = 20


@pytest.fixture
def serving(tmp_path: Path) -> Iterator[Delegating]:
    with delegating(tmp_path, lease_s=LEASE_S, grace_s=LEASE_S) as ret:
        ret.file("a")
        ret.file("b")
        yield ret


Joining = Callable[..., BackPeer]


@pytest.fixture
def joining(serving: Delegating) -> Iterator[Joining]:
    with ExitStack() as stack:

        def join(owner: bytes, flags: int = BACK_CHANNEL) -> BackPeer:
            peer = stack.enter_context(BackPeer(serving))
            peer.join(owner, flags)
            return peer

        yield join


@pytest.fixture
def hers(joining: Joining) -> BackPeer:
    return joining(b"her")


@pytest.fixture
def his(joining: Joining) -> BackPeer:
    return joining(b"him")


class TestGiving:
    @pytest.mark.parametrize("want", [0, WANT_READ, WANT_ANY])
    def test_who_opens_to_read_gets_one(self, hers: BackPeer, want: int) -> None:
        given = hers.open("a", READ | want)
        assert given.kind == 1 and given.delegation is not None
        assert given.delegation.seqid == 1
        assert hers.read("a", given.delegation) == Status.OK
        assert hers.test(given.delegation) == Status.OK

    def test_also_who_makes_the_file(self, hers: BackPeer) -> None:
        assert hers.open("new", READ, unchecked(attributes(mode=0o200))).delegation is not None

    def test_also_by_handle(self, hers: BackPeer) -> None:
        assert opened(hers.try_open(by_handle, at="a")).delegation is not None

    def test_several_clients_have_one_each(self, hers: BackPeer, his: BackPeer) -> None:
        mine, yours = hers.delegated("a"), his.delegated("a")
        assert mine != yours
        assert hers.read("a", mine) == his.read("a", yours) == Status.OK
        assert his.read("a", mine) == Status.BAD_STATEID
        assert hers.read("b", mine) == Status.BAD_STATEID

    @pytest.mark.parametrize(
        ("access", "answer"),
        [
            (READ | WANT_NONE, (3, 0)),
            (READ | WANT_CANCEL, (3, 7)),
            (READ | WANT_WRITE, (3, 2)),
            (WRITE, (0, None)),
            (BOTH | WANT_READ, (3, 2)),
        ],
    )
    def test_who_does_not(
        self, hers: BackPeer, access: int, answer: tuple[int, int | None]
    ) -> None:
        given = hers.open("a", access)
        assert (given.kind, given.why) == answer

    def test_one_of_a_file(self, hers: BackPeer) -> None:
        hers.delegated("a")
        assert hers.open("a", READ | WANT_READ, owner=b"p").why == 2

    def test_not_while_somebody_writes(self, hers: BackPeer, his: BackPeer) -> None:
        his.open("a", WRITE)
        assert hers.open("a", READ | WANT_READ).why == 1

    def test_not_while_a_local_program_writes(self, serving: Delegating, hers: BackPeer) -> None:
        with (serving.path / "a").open("r+b"):
            assert hers.open("a", READ | WANT_READ).why == 1
        hers.delegated("a", owner=b"p")

    def test_not_without_a_way_back(self, joining: Joining) -> None:
        assert joining(b"mute", flags=0).open("a", READ | WANT_READ).why == 2

    def test_not_soon_after_somebody_wrote(
        self, serving: Delegating, hers: BackPeer, his: BackPeer
    ) -> None:
        stateid = hers.delegated("a")
        assert his.try_open(by_name(b"a"), WRITE).status == Status.DELAY
        assert hers.give_back("a", hers.answered().stateid) == Status.OK
        assert hers.test(stateid) == Status.BAD_STATEID
        assert hers.open("a", READ | WANT_READ).why == 1
        serving.clock.now += 31
        hers.delegated("a", owner=b"p")

    def test_no_more_than_descriptors_allow(self, tmp_path: Path) -> None:
        with delegating(tmp_path, open_files_most=16) as serving, BackPeer(serving) as peer:
            peer.join(b"greedy")
            for number in range(5):
                serving.file(str(number))
            for number in range(4):
                peer.delegated(str(number))
            assert peer.open("4", READ | WANT_READ).why == 2

    def test_nobody_gets_one_by_default(self, tmp_path: Path) -> None:
        with delegating(tmp_path, delegations=False) as serving, BackPeer(serving) as peer:
            serving.file("a")
            assert peer.introduce(b"her", BACK_CHANNEL) == 0
            peer.do(reclaim_complete())
            assert peer.open("a", READ | WANT_READ).why == 2


def name_op(number: Op, *names: str) -> bytes:
    return op(number, lambda out: [out.opaque(name.encode()) for name in names])


def setattr_op(out: Encoder) -> None:
    ANONYMOUS.encode(out)
    attributes(mode=0o600)(out)


def cut_op(out: Encoder) -> None:
    ANONYMOUS.encode(out)
    attributes(size=0)(out)


def write_op(out: Encoder) -> None:
    ANONYMOUS.encode(out)
    out.u64(0)
    out.u32(0)
    out.opaque(b"changed")


def setxattr_op(out: Encoder) -> None:
    out.u32(0)
    out.opaque(b"user.k")
    out.opaque(b"v")


AT_ROOT = (PUTROOTFH,)
AT_A = (PUTROOTFH, lookup("a"))
CHANGES = {
    "open to write": (*AT_ROOT, op(Op.OPEN) + bytes(open_args(by_name(b"a"), access=WRITE))),
    "open and deny": (*AT_ROOT, op(Op.OPEN) + bytes(open_args(by_name(b"a"), deny=READ))),
    "open and cut": (
        *AT_ROOT,
        op(Op.OPEN) + bytes(open_args(by_name(b"a"), unchecked(attributes(size=0)))),
    ),
    "setattr": (*AT_A, op(Op.SETATTR, setattr_op)),
    "cut": (*AT_A, op(Op.SETATTR, cut_op)),
    "write": (*AT_A, op(Op.WRITE, write_op)),
    "link": (*AT_A, op(Op.SAVEFH), PUTROOTFH, name_op(Op.LINK, "c")),
    "remove": (*AT_ROOT, name_op(Op.REMOVE, "a")),
    "rename": (*AT_ROOT, op(Op.SAVEFH), name_op(Op.RENAME, "a", "c")),
    "rename over": (*AT_ROOT, op(Op.SAVEFH), name_op(Op.RENAME, "b", "a")),
    "setxattr": (*AT_A, op(Op.SETXATTR, setxattr_op)),
}


class TestRecalling:
    @pytest.mark.parametrize("what", CHANGES)
    def test_before_somebody_else_changes_the_file(
        self, serving: Delegating, hers: BackPeer, his: BackPeer, what: str
    ) -> None:
        store = serving.server.store
        handle = store.lookup(store.root, b"a").handle
        given = hers.open("a")
        stateid = given.delegation
        assert stateid is not None
        assert hers.close("a", given.stateid) == Status.OK
        before = (serving.path / "a").stat()
        for _ in range(2):
            assert his.do(*CHANGES[what], minor=2).status == Status.DELAY
        assert (serving.path / "a").stat() == before
        assert hers.read("a", stateid) == Status.OK
        called = hers.answered()
        assert (called.stateid, called.handle) == (stateid, handle)
        assert his.do(*CHANGES[what], minor=2).status == Status.DELAY
        assert hers.give_back("a", stateid) == Status.OK
        assert his.do(*CHANGES[what], minor=2).status == Status.OK
        assert not hers.calls  # once was enough
        assert hers.test(stateid) == Status.BAD_STATEID

    def test_removing_an_xattr(self, serving: Delegating, hers: BackPeer, his: BackPeer) -> None:
        try:
            os.setxattr(serving.path / "a", "user.k", b"v")
        except OSError:
            needs(False, "the filesystem has no extended attributes of users")
        hers.delegated("a")
        removal = (*AT_A, name_op(Op.REMOVEXATTR, "user.k"))
        assert his.do(*removal, minor=2).status == Status.DELAY
        assert hers.give_back("a", hers.answered().stateid) == Status.OK

    def test_all_who_have_one(self, joining: Joining, hers: BackPeer, his: BackPeer) -> None:
        third = joining(b"third")
        mine, yours = hers.delegated("a"), his.delegated("a")
        assert third.try_open(by_name(b"a"), WRITE).status == Status.DELAY
        assert hers.give_back("a", hers.answered().stateid) == Status.OK
        assert third.try_open(by_name(b"a"), WRITE).status == Status.DELAY
        assert his.give_back("a", his.answered().stateid) == Status.OK
        assert mine != yours
        assert third.try_open(by_name(b"a"), WRITE).status == Status.OK

    @pytest.mark.parametrize("what", [what for what in CHANGES if what != "rename over"])
    def test_ones_own_changes_need_not_wait(self, hers: BackPeer, what: str) -> None:
        """But the delegation has to go: the kernel does not say whose changes it tells of, and
        nothing keeps local programs from a file that is open to write.
        """
        given = hers.open("a")
        assert hers.close("a", given.stateid) == Status.OK
        assert hers.do(*CHANGES[what], minor=2).status == Status.OK
        if what == "open and deny":
            assert not hers.calls
            return
        assert hers.answered().stateid == given.delegation

    @pytest.mark.parametrize("what", ["open to write", "open and cut", "write"])
    def test_who_may_not_write_disturbs_nobody(
        self, serving: Delegating, hers: BackPeer, what: str
    ) -> None:
        needs(os.geteuid() == 0, "a server without privilege acts as its own user for everybody")
        (serving.path / "a").chmod(0o644)
        stateid = hers.delegated("a")
        with BackPeer(serving, OTHER) as his:
            his.join(b"him")
            assert his.do(*CHANGES[what]).status == Status.ACCESS
        assert hers.test(stateid) == Status.OK
        assert not hers.calls

    def test_readers_are_no_reason(self, hers: BackPeer, his: BackPeer) -> None:
        stateid = hers.delegated("a")
        his.open("a", READ | WANT_NONE)
        his.open("a", READ | WANT_NONE, owner=b"p", deny=WRITE)
        assert his.read("a", ANONYMOUS) == Status.OK
        assert hers.test(stateid) == Status.OK
        assert not hers.calls

    def test_locking_to_read_is_no_reason(self, hers: BackPeer, his: BackPeer) -> None:
        stateid = hers.delegated("a")
        open_stateid = his.open("a", READ | WANT_NONE).stateid

        def lock(out: Encoder) -> None:
            out.u32(1, 0)
            out.u64(0)
            out.u64(4)
            out.u32(1, 0)
            open_stateid.encode(out)
            out.u32(0)
            out.u64(77)
            out.opaque(b"l")

        assert his.at("a", op(Op.LOCK, lock)).status == Status.OK
        assert hers.test(stateid) == Status.OK
        assert not hers.calls


class TestUsing:
    def test_not_to_write(self, hers: BackPeer) -> None:
        stateid = hers.delegated("a")
        body = with_stateid(Op.WRITE, stateid) + bytes(8) + bytes(4) + bytes(4)
        assert hers.at("a", body).status == Status.OPENMODE

    def test_not_as_an_open(self, hers: BackPeer) -> None:
        stateid = hers.delegated("a")
        assert hers.close("a", stateid) == Status.BAD_STATEID

    def test_it_outlives_the_open(self, hers: BackPeer) -> None:
        given = hers.open("a")
        assert given.delegation is not None
        assert hers.close("a", given.stateid) == Status.OK
        assert hers.read("a", given.delegation) == Status.OK

    def test_an_open_is_not_given_back(self, hers: BackPeer) -> None:
        assert hers.give_back("a", hers.open("a").stateid) == Status.BAD_STATEID

    def test_it_is_not_freed(self, hers: BackPeer) -> None:
        assert hers.free(hers.delegated("a")) == Status.LOCKS_HELD

    @pytest.mark.parametrize("name", [b"a", None])
    def test_opening_by_it(self, hers: BackPeer, his: BackPeer, name: bytes | None) -> None:
        stateid = hers.delegated("a")
        at = "" if name else "a"
        assert his.try_open(by_name(b"a"), WRITE).status == Status.DELAY
        result = hers.try_open(delegated(stateid, name), at=at, owner=b"local")
        assert result.status == Status.OK
        assert opened(result).kind == 0
        wrong = hers.open("a", READ | WANT_NONE).stateid
        for claim, access, status in (
            (delegated(stateid, name), BOTH, Status.OPENMODE),
            (delegated(wrong, name), READ, Status.BAD_STATEID),
        ):
            assert hers.try_open(claim, access, at=at).status == status
        assert his.try_open(delegated(stateid, name), at=at).status == Status.BAD_STATEID

    def test_opening_another_file_by_it(self, hers: BackPeer) -> None:
        stateid = hers.delegated("a")
        assert hers.try_open(delegated(stateid, b"b")).status == Status.BAD_STATEID

    @pytest.mark.parametrize("claim", [3, 6])
    def test_what_was_before_the_clients_restart(self, hers: BackPeer, claim: int) -> None:
        def prev(out: Encoder) -> None:
            out.u32(claim)
            if claim == 3:
                out.opaque(b"a")

        at = "a" if claim == 6 else ""
        assert hers.try_open(prev, at=at).status == Status.NOTSUPP

    def test_the_accelerator_knows_it_as_long_as_it_lasts(
        self, serving: Delegating, hers: BackPeer, his: BackPeer
    ) -> None:
        granted = serving.accelerator.granted
        stateid = hers.delegated("a")
        mine = granted[stateid.other]
        assert (mine["readable"], mine["writable"], mine["seqid"]) == (True, False, 1)
        assert mine["client"] == hers.client
        hers.give_back("a", stateid)
        assert stateid.other not in granted
        stateid = his.delegated("a")
        assert hers.try_open(by_name(b"a"), WRITE).status == Status.DELAY
        assert stateid.other in granted
        serving.wait(LEASE_S)
        assert stateid.other not in granted


class TestRevoking:
    def test_what_is_not_given_back_within_a_lease(
        self, serving: Delegating, hers: BackPeer, his: BackPeer
    ) -> None:
        stateid = hers.delegated("a")
        assert his.try_open(by_name(b"a"), WRITE).status == Status.DELAY
        hers.answered()
        serving.wait(LEASE_S / 2)
        assert hers.flags() == 0
        assert his.try_open(by_name(b"a"), WRITE).status == Status.DELAY
        serving.wait(LEASE_S / 2)
        assert his.try_open(by_name(b"a"), WRITE).status == Status.OK
        assert hers.flags() == REVOKED
        assert his.flags() == 0
        assert hers.read("a", stateid) == Status.DELEG_REVOKED
        assert hers.test(stateid) == Status.DELEG_REVOKED
        assert hers.give_back("a", stateid) == Status.DELEG_REVOKED
        assert hers.try_open(delegated(stateid, b"a")).status == Status.DELEG_REVOKED
        assert his.free(stateid) == Status.BAD_STATEID
        assert hers.free(stateid) == Status.OK
        assert hers.flags() == 0
        assert hers.test(stateid) == Status.BAD_STATEID

    def test_the_accelerator_tells_no_flags(
        self, serving: Delegating, hers: BackPeer, his: BackPeer
    ) -> None:
        sessions = serving.accelerator.sessions
        both = len(sessions)
        stateid = hers.delegated("a")
        assert his.try_open(by_name(b"a"), WRITE).status == Status.DELAY
        hers.answered()
        serving.wait(LEASE_S)
        assert len(sessions) == both - 1
        hers.free(stateid)
        assert len(sessions) == both

    def test_who_is_silent_is_not_waited_for(
        self, serving: Delegating, hers: BackPeer, his: BackPeer
    ) -> None:
        hers.delegated("a")
        serving.clock.now += LEASE_S + 1
        his.do()
        assert his.try_open(by_name(b"a"), WRITE).status == Status.OK
        assert hers.do().status == Status.BADSESSION
        assert not serving.accelerator.granted.keys() - {
            other for other, of in serving.accelerator.granted.items() if of["client"] == his.client
        }

    def test_it_goes_with_its_client(self, serving: Delegating, hers: BackPeer) -> None:
        hers.delegated("a")
        with serving.server.lock:
            client = serving.server.clients.find(hers.client)
            assert serving.server.clients.is_busy(client)
            serving.server.clients.expire(client)
        with (serving.path / "a").open("r+b"):  # would wait for the lease
            pass


def test_a_restart(tmp_path: Path) -> None:
    with delegating(tmp_path) as serving, BackPeer(serving) as hers, BackPeer(serving) as his:
        serving.file("a")
        hers.join(b"her")
        his.join(b"him")
        lost = hers.delegated("a")
        his.delegated("a")
    with delegating(tmp_path) as serving, BackPeer(serving) as hers, BackPeer(serving) as his:
        hers.introduce(b"her", BACK_CHANNEL)
        assert hers.test(lost) == Status.BAD_STATEID
        # Nobody knows what has happened to the file since: she has her open, and no more.
        result = hers.try_open(previous(delegation=1), READ, at="a")
        assert result.status == Status.OK
        assert opened(result).kind == 0
        his.introduce(b"him", BACK_CHANNEL)
        assert hers.do(reclaim_complete()).status == Status.OK
        assert his.do(reclaim_complete()).status == Status.OK
        hers.delegated("a", owner=b"p")
        assert his.try_open(by_name(b"a"), WRITE, owner=b"w").status == Status.DELAY
        assert hers.give_back("a", hers.answered().stateid) == Status.OK
        assert his.try_open(by_name(b"a"), WRITE, owner=b"w").status == Status.OK
