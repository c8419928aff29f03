# SPDX-License-Identifier: BSD-2-Clause
"""Grace: which clients may reclaim, until when, and what is on the disk before it counts."""

from __future__ import annotations

import re
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from livedma.nfs.numbers import NfsError, Status
from livedma.nfs.server.persist import Persist, PersistError
from livedma.nfs.server.state.recovery import Recovery

pytestmark = pytest.mark.slow

GRACE_S = 90.0


class Machine:
    """A server that is started again and again on one state directory, at times of our choice."""

    def __init__(self, directory: Path) -> None:
        self.now = 1000.0
        self._directory = directory
        self.persist = Persist(directory)
        self.recovery = Recovery(self.persist, lambda: self.now, GRACE_S)

    def restart(self) -> Recovery:
        self.persist.close()
        self.persist = Persist(self._directory)
        self.recovery = Recovery(self.persist, lambda: self.now, GRACE_S)
        return self.recovery

    @property
    def in_grace(self) -> bool:
        return self.recovery.in_grace(self.now)


@pytest.fixture
def machine(tmp_path: Path) -> Iterator[Machine]:
    machine = Machine(tmp_path)
    yield machine
    machine.persist.close()


def test_nobody_to_wait_for(machine: Machine) -> None:
    assert not machine.in_grace
    assert machine.recovery.boot == 1


def test_grace_ends_by_time(machine: Machine) -> None:
    machine.recovery.complete(b"a")
    recovery = machine.restart()
    assert recovery.boot == 2
    assert machine.in_grace and recovery.may_reclaim(b"a") and not recovery.may_reclaim(b"b")
    machine.now += GRACE_S - 0.001
    assert machine.in_grace
    machine.now += 0.001
    assert not machine.in_grace
    assert not recovery.may_reclaim(b"a")


@pytest.mark.parametrize("is_back", [False, True])
def test_grace_is_announced_and_so_is_its_end(
    machine: Machine, is_back: bool, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", "livedma.nfs.server.state.recovery")
    assert not machine.in_grace
    assert not caplog.messages  # a first start has none
    machine.recovery.complete(b"a")
    recovery = machine.restart()
    assert machine.in_grace
    (begin,) = caplog.messages
    assert re.match(r"grace period until \d\d:\d\d:\d\d: 1 client may reclaim", begin)
    if is_back:
        recovery.complete(b"a")
    else:
        machine.now += GRACE_S
    assert not machine.in_grace and not machine.in_grace
    assert caplog.messages[1:] == [
        "the grace period is over: no client has anything left to reclaim"
        if is_back
        else "the grace period is over: 1 client did not come back"
    ]


def test_grace_ends_when_all_are_back(machine: Machine) -> None:
    for owner in (b"a", b"b"):
        machine.recovery.complete(owner)
    recovery = machine.restart()
    recovery.complete(b"c")
    recovery.complete(b"a")
    assert machine.in_grace and not recovery.may_reclaim(b"a")
    recovery.complete(b"b")
    assert not machine.in_grace


def test_who_goes_is_not_waited_for(machine: Machine) -> None:
    machine.recovery.complete(b"a")
    machine.restart().forget(b"a")
    assert not machine.in_grace


def test_who_came_too_late_may_not_reclaim_later(machine: Machine) -> None:
    """The first edge of 8.4.2.1.1: somebody else may have had the lock in between."""
    machine.recovery.complete(b"a")
    machine.recovery.complete(b"b")
    recovery = machine.restart()
    recovery.complete(b"b")
    machine.now += GRACE_S
    assert not machine.in_grace
    recovery.settle()
    recovery = machine.restart()
    assert recovery.may_reclaim(b"b") and not recovery.may_reclaim(b"a")


def test_a_second_restart_within_grace_takes_nothing_away(machine: Machine) -> None:
    machine.recovery.complete(b"a")
    machine.restart()
    assert machine.in_grace
    assert machine.restart().may_reclaim(b"a")


def test_who_has_reclaimed_something_stays_known(machine: Machine) -> None:
    machine.recovery.complete(b"a")
    recovery = machine.restart()
    recovery.remember(b"a")
    assert recovery.may_reclaim(b"a")
    machine.now += GRACE_S
    assert not machine.in_grace
    recovery.settle()
    assert machine.restart().may_reclaim(b"a")


def test_forgetting_waits_for_settle(machine: Machine) -> None:
    machine.recovery.complete(b"a")
    machine.recovery.complete(b"b")
    machine.recovery.forget(b"a")
    assert machine.persist.clients() == {b"a", b"b"}
    machine.recovery.settle()
    assert machine.persist.clients() == {b"b"}


def test_who_comes_again_is_remembered_again(machine: Machine) -> None:
    machine.recovery.complete(b"a")
    machine.recovery.forget(b"a")
    machine.recovery.complete(b"a")
    machine.recovery.settle()
    assert machine.persist.clients() == {b"a"}


class Disk:
    """Lets writes to the database fail, or wait."""

    def __init__(self, persist: Persist, monkeypatch: pytest.MonkeyPatch) -> None:
        self._write = persist.change_clients
        self.is_full = False
        self.written = 0
        self.gate = threading.Event()
        self.gate.set()
        self.at_gate = threading.Event()
        monkeypatch.setattr(persist, "change_clients", self._change)

    def _change(self, boot: int, changes: list[tuple[bytes, bool]], *, purge: bool) -> None:
        self.at_gate.set()
        assert self.gate.wait(30)
        if self.is_full:
            raise PersistError("database or disk is full")
        self._write(boot, changes, purge=purge)
        self.written += 1


@pytest.fixture
def disk(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> Disk:
    assert not machine.in_grace
    machine.recovery.settle()
    return Disk(machine.persist, monkeypatch)


def test_a_full_disk_delays_who_relies_on_it(machine: Machine, disk: Disk) -> None:
    recovery = machine.recovery
    recovery.complete(b"a")
    disk.is_full = True
    with pytest.raises(NfsError) as failed:
        recovery.complete(b"b")
    assert failed.value.status == Status.DELAY
    recovery.settle()  # Nobody else waits for that.
    recovery.forget(b"a")
    for _ in range(2):
        with pytest.raises(NfsError) as failed:
            recovery.settle()
        assert failed.value.status == Status.DELAY
    disk.is_full = False
    recovery.settle()
    assert machine.persist.clients() == frozenset()
    recovery.complete(b"b")
    assert machine.persist.clients() == {b"b"}


def test_what_is_known_is_not_written_again(machine: Machine, disk: Disk) -> None:
    machine.recovery.remember(b"a")
    machine.recovery.remember(b"a")
    machine.recovery.settle()
    assert disk.written == 1


def test_nobody_passes_while_it_is_being_written(machine: Machine, disk: Disk) -> None:
    machine.recovery.complete(b"a")
    disk.gate.clear()
    disk.at_gate.clear()
    machine.recovery.forget(b"a")
    first = threading.Thread(target=machine.recovery.settle)
    first.start()
    assert disk.at_gate.wait(30)
    passed: list[frozenset[bytes]] = []

    def grant() -> None:
        machine.recovery.settle()
        passed.append(machine.persist.clients())

    second = threading.Thread(target=grant)
    second.start()
    disk.gate.set()
    first.join(30)
    second.join(30)
    assert passed == [frozenset()]


class Peer:
    """What matters of a client."""

    def __init__(self, owner: bytes, *, has_reclaimed: bool) -> None:
        self.owner = owner
        self.has_reclaimed = has_reclaimed


def test_before_anybody_gets_something_those_who_did_not_come_are_forgotten(
    machine: Machine,
) -> None:
    for owner in (b"here", b"lost"):
        machine.recovery.complete(owner)
    recovery = machine.restart()
    recovery.complete(b"here")
    machine.now += GRACE_S
    recovery.admit(Peer(b"here", has_reclaimed=True), is_reclaim=False, now=machine.now)
    assert machine.persist.clients() == {b"here"}


def test_whoever_reclaims_is_remembered_before_it_gets_anything(machine: Machine) -> None:
    machine.recovery.complete(b"old")
    recovery = machine.restart()
    recovery.admit(Peer(b"old", has_reclaimed=False), is_reclaim=True, now=machine.now)
    # It never says that it is done, and the server is killed after grace.
    machine.now += GRACE_S
    recovery.admit(Peer(b"new", has_reclaimed=True), is_reclaim=False, now=machine.now)
    assert machine.persist.clients() == {b"old"}


@pytest.mark.parametrize(
    ("owner", "has_reclaimed", "is_reclaim", "status"),
    [
        (b"old", False, False, Status.GRACE),
        (b"new", True, False, Status.GRACE),
        (b"new", False, True, Status.RECLAIM_BAD),
        (b"old", True, True, Status.NO_GRACE),
    ],
)
def test_who_gets_nothing_in_grace(
    machine: Machine, owner: bytes, has_reclaimed: bool, is_reclaim: bool, status: Status
) -> None:
    machine.recovery.complete(b"old")
    recovery = machine.restart()
    peer = Peer(owner, has_reclaimed=has_reclaimed)
    with pytest.raises(NfsError) as failed:
        recovery.admit(peer, is_reclaim=is_reclaim, now=machine.now)
    assert failed.value.status == status
