# SPDX-License-Identifier: BSD-2-Clause
"""Delegations to write: one client uses a file alone, and tells what it did when it is asked."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from calling import OTHER, op
from delegating import (
    PATIENCE_S,
    WANT_ANY,
    WANT_WRITE,
    BackPeer,
    Delegating,
    delegating,
    with_stateid,
)
from open_calls import attributes, by_name, delegated

from livedma.nfs.bitmap import bits, encode_bitmap
from livedma.nfs.numbers import Attribute, Op, Status
from livedma.nfs.server.state.shares import BOTH, READ, WRITE
from livedma.nfs.stateid import ANONYMOUS, Stateid
from livedma.rpc.xdr import Encoder
from needs import needs

COMMIT = op(Op.COMMIT) + bytes(12)
LOCAL_READER = "import sys; sys.stdout.write(open(sys.argv[1]).read())"


@pytest.fixture
def serving(tmp_path: Path) -> Iterator[Delegating]:
    with delegating(tmp_path) as ret:
        ret.file("a").chmod(0o666)
        yield ret


@pytest.fixture
def hers(serving: Delegating) -> Iterator[BackPeer]:
    with BackPeer(serving) as peer:
        peer.join(b"her")
        yield peer


@pytest.fixture
def his(serving: Delegating) -> Iterator[BackPeer]:
    with BackPeer(serving) as peer:
        peer.join(b"him")
        yield peer


def to_write(peer: BackPeer) -> Stateid:
    given = peer.open("a", BOTH | WANT_WRITE)
    assert given.kind == 2 and given.delegation is not None
    return given.delegation


def write(stateid: Stateid, data: bytes) -> bytes:
    def encode(out: Encoder) -> None:
        stateid.encode(out)
        out.u64(0)
        out.u32(0)
        out.opaque(data)

    return op(Op.WRITE, encode)


def cut(stateid: Stateid) -> bytes:
    def encode(out: Encoder) -> None:
        stateid.encode(out)
        attributes(size=4)(out)

    return op(Op.SETATTR, encode)


def getattr_(*wanted: int) -> bytes:
    return op(Op.GETATTR) + encode_bitmap(bits(*wanted))


class TestGiving:
    @pytest.mark.parametrize(
        ("access", "kind"),
        [
            (BOTH | WANT_WRITE, 2),
            (BOTH | WANT_ANY, 2),
            (BOTH, 0),
            (WRITE | WANT_WRITE, 3),
            (READ | WANT_WRITE, 3),
        ],
    )
    def test_to_who_asks_for_it(self, hers: BackPeer, access: int, kind: int) -> None:
        assert hers.open("a", access).kind == kind

    def test_not_while_somebody_has_it_open(self, hers: BackPeer, his: BackPeer) -> None:
        his.open("a", READ)
        assert hers.try_open(by_name(b"a"), BOTH | WANT_WRITE).status == Status.DELAY
        his.give_back("a", his.answered().stateid)
        assert hers.open("a", BOTH | WANT_WRITE).why == 1

    def test_not_while_a_local_program_has_it_open(
        self, serving: Delegating, hers: BackPeer
    ) -> None:
        with (serving.path / "a").open("rb"):
            assert hers.open("a", BOTH | WANT_WRITE).why == 1


class TestUsing:
    def test_alone(self, serving: Delegating, hers: BackPeer) -> None:
        """Nothing that its client does needs another descriptor, which would break the lease."""
        stateid = to_write(hers)
        mine = serving.accelerator.granted[stateid.other]
        assert mine["readable"] and mine["writable"]
        again = hers.open("a", BOTH, owner=b"p").stateid
        for one in (stateid, again, ANONYMOUS):
            assert hers.at("a", write(one, b"mine")).status == Status.OK
            assert hers.read("a", one) == Status.OK
            assert hers.at("a", cut(one)).status == Status.OK
        assert hers.at("a", COMMIT).status == Status.OK
        assert hers.at("a", getattr_(Attribute.SIZE)).status == Status.OK
        assert hers.try_open(delegated(stateid, b"a"), BOTH, owner=b"q").status == Status.OK
        assert (serving.path / "a").stat().st_size == 4
        assert serving.server.delegations.counters["local"] == 0
        assert not hers.calls and hers.test(stateid) == Status.OK

    def test_no_more_opens_than_others(self, tmp_path: Path) -> None:
        with delegating(tmp_path, states_most=3) as serving, BackPeer(serving) as peer:
            serving.file("a")
            peer.join(b"greedy")
            to_write(peer)
            for owner in (b"1", b"2"):
                peer.open("a", BOTH, owner=owner)
            assert peer.try_open(by_name(b"a"), BOTH, owner=b"3").status == Status.DELAY

    def test_locking(self, serving: Delegating, hers: BackPeer) -> None:
        given = hers.open("a", BOTH | WANT_WRITE)

        def lock(out: Encoder) -> None:
            out.u32(2, 0)
            out.u64(0)
            out.u64(4)
            out.u32(1, 0)
            given.stateid.encode(out)
            out.u32(0)
            out.u64(77)
            out.opaque(b"l")

        assert hers.at("a", op(Op.LOCK, lock)).status == Status.OK
        assert serving.server.delegations.counters["local"] == 0 and not hers.calls

    def test_another_user_of_the_same_client(self, serving: Delegating, hers: BackPeer) -> None:
        """Its open is another one, so the lease goes, and with it the delegation."""
        needs(os.geteuid() == 0, "a server without privilege acts as its own user for everybody")
        stateid = to_write(hers)
        hers.credential = OTHER
        assert hers.at("a", write(stateid, b"mine")).status == Status.OK
        assert hers.answered().stateid == stateid


OTHERS = {
    "open to read": None,
    "read": with_stateid(Op.READ, ANONYMOUS) + bytes(8) + b"\0\0\0\4",
    "write": write(ANONYMOUS, b"his"),
    "size": getattr_(Attribute.SIZE),
    "change": getattr_(Attribute.CHANGE),
    "commit": COMMIT,
}


class TestRecalling:
    @pytest.mark.parametrize("what", OTHERS)
    def test_before_somebody_else_looks(self, hers: BackPeer, his: BackPeer, what: str) -> None:
        def do() -> Status:
            ops = OTHERS[what]
            if ops is None:
                return his.try_open(by_name(b"a"), READ).status
            return his.at("a", ops).status

        stateid = to_write(hers)
        assert do() == Status.DELAY
        assert hers.answered().stateid == stateid
        assert hers.at("a", write(stateid, b"hers")).status == Status.OK
        assert do() == Status.DELAY
        assert hers.give_back("a", stateid) == Status.OK
        assert do() == Status.OK

    def test_what_it_does_not_change(self, hers: BackPeer, his: BackPeer) -> None:
        stateid = to_write(hers)
        assert his.at("a", getattr_(Attribute.TYPE, Attribute.FILEID)).status == Status.OK
        assert hers.test(stateid) == Status.OK and not hers.calls

    def test_a_local_reader_sees_what_was_kept_until_then(
        self, serving: Delegating, hers: BackPeer
    ) -> None:
        stateid = to_write(hers)
        command = [sys.executable, "-c", LOCAL_READER, str(serving.path / "a")]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
            assert hers.answered().stateid == stateid
            assert hers.try_open(delegated(stateid, b"a"), BOTH, owner=b"q").status == Status.OK
            assert hers.at("a", write(stateid, b"kept")).status == Status.OK
            assert hers.at("a", COMMIT).status == Status.OK
            assert process.poll() is None
            assert hers.give_back("a", stateid) == Status.OK
            assert process.communicate(timeout=PATIENCE_S)[0] == "kept456789"

    def test_revoked(self, serving: Delegating, hers: BackPeer, his: BackPeer) -> None:
        stateid = to_write(hers)
        assert his.at("a", getattr_(Attribute.SIZE)).status == Status.DELAY
        for _ in range(9):
            serving.wait(10)
            hers.do()
            his.do()
        assert his.at("a", getattr_(Attribute.SIZE)).status == Status.OK
        assert hers.at("a", write(stateid, b"late")).status == Status.DELEG_REVOKED
