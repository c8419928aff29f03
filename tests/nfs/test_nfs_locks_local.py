# SPDX-License-Identifier: BSD-2-Clause
"""Locks of clients and of local processes: each is in the other's way."""

from __future__ import annotations

import fcntl
import os
import struct
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from opening import World, refused

from livedma.nfs.numbers import Status
from livedma.nfs.server.state.clients import Client
from livedma.nfs.server.state.locks import FirstLock, Range
from livedma.nfs.server.state.opened import OpenState
from livedma.nfs.server.state.shares import BOTH, READ, Share
from livedma.rpc.xdr import Decoder

END = (1 << 64) - 1


class LocalProcess:
    """As good as another process: its locks are those of its own open file."""

    def __init__(self, path: Path) -> None:
        self.fd = os.open(path, os.O_RDWR)

    def _set(self, kind: int, first: int, length: int) -> bool:
        asked = struct.pack("@hhqqi4x", kind, os.SEEK_SET, first, length, 0)
        try:
            fcntl.fcntl(self.fd, fcntl.F_OFD_SETLK, asked)
        except BlockingIOError:
            return False
        return True

    def shared(self, first: int, length: int) -> bool:
        return self._set(fcntl.F_RDLCK, first, length)

    def exclusive(self, first: int, length: int) -> bool:
        return self._set(fcntl.F_WRLCK, first, length)

    def unlock(self, first: int = 0, length: int = 0) -> None:
        assert self._set(fcntl.F_UNLCK, first, length)

    def can(self, first: int, length: int, kind: str = "exclusive") -> bool:
        """Tries, and leaves nothing behind."""
        got = self._set(fcntl.F_WRLCK if kind == "exclusive" else fcntl.F_RDLCK, first, length)
        if got:
            self.unlock(first, length)
        return got


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    world = World(tmp_path)
    yield world
    world.close()


@pytest.fixture
def local(world: World) -> Iterator[LocalProcess]:
    local = LocalProcess(world.export / "a")
    yield local
    os.close(local.fd)


@pytest.fixture
def ann(world: World) -> Client:
    return world.client(b"ann")


@pytest.fixture
def hers(world: World, ann: Client) -> OpenState:
    return world.open(ann, Share(BOTH))


def test_clients_see_local_locks(
    world: World, ann: Client, hers: OpenState, local: LocalProcess
) -> None:
    assert local.exclusive(10, 10)
    for attempt in (
        lambda wanted: world.lock_first(ann, hers, wanted),
        lambda wanted: world.locks.test(world.ctx(ann), b"l", wanted),
    ):
        body = Decoder(refused(Status.DENIED, attempt, Range(0, 10, False)).body)
        assert [body.u64(), body.u64(), body.u32(), body.u64()] == [10, 10, 2, 0]
        assert body.opaque() == b""
        body.finish()
        attempt(Range(0, 9, True))
        attempt(Range(20, END, True))
    # A refusal leaves nothing of itself.
    local.unlock()
    assert local.can(10, 10)


def test_a_file_that_nobody_has_open(world: World, ann: Client, local: LocalProcess) -> None:
    assert local.shared(0, 0)
    ctx = world.ctx(ann)
    body = Decoder(refused(Status.DENIED, world.locks.test, ctx, b"l", Range(0, 0, True)).body)
    assert [body.u64(), body.u64(), body.u32()] == [0, END, 1]
    world.locks.test(ctx, b"l", Range(0, 0, False))


def test_local_processes_see_clients(
    world: World, ann: Client, hers: OpenState, local: LocalProcess
) -> None:
    lock = world.lock_first(ann, hers, Range(0, 9, True))
    assert not local.can(9, 1, "shared") and local.can(10, 0)
    ctx = world.ctx(ann)
    world.locks.lock(ctx, lock.stateid, Range(0, 4, False), is_reclaim=False)
    assert local.can(0, 5, "shared") and not local.can(0, 5) and not local.can(5, 1, "shared")
    world.locks.unlock(ctx, lock.stateid, Range(2, 6, True))
    assert local.can(2, 5) and not local.can(1, 1) and not local.can(7, 1)
    world.opens.close(ctx, hers.stateid)
    assert local.can(0, 0)


def test_what_two_share_is_free_when_both_are_gone(
    world: World, ann: Client, hers: OpenState, local: LocalProcess
) -> None:
    bob = world.client(b"bob")
    his = world.open(bob, Share(BOTH))
    lock = world.lock_first(ann, hers, Range(0, 9, False))
    world.lock_first(bob, his, Range(5, 14, False))
    world.locks.unlock(world.ctx(ann), lock.stateid, Range(0, END, False))
    assert local.can(0, 5) and not local.can(5, 1) and not local.can(14, 1)
    world.expire(bob)
    assert local.can(0, 0)


def test_what_goes_with_a_client_tells_nothing_any_more(
    world: World,
    ann: Client,
    hers: OpenState,
    local: LocalProcess,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The courtesy ends, and nobody has the file open: local locks are seen all the same."""
    closers: list[threading.Thread] = []

    class AtOnce(threading.Thread):
        def start(self) -> None:
            closers.append(self)
            self.run()

    monkeypatch.setattr("livedma.nfs.server.state.opens.threading.Thread", AtOnce)
    world.lock_first(ann, hers, Range(0, 9, False))
    assert local.shared(0, 10)
    bob = world.client(b"bob")
    world.silence(ann)
    wanted = Range(0, 0, True)
    body = Decoder(refused(Status.DENIED, world.locks.test, world.ctx(bob), b"l", wanted).body)
    assert [body.u64(), body.u64(), body.u32(), body.u64()] == [0, 10, 1, 0]
    assert len(closers) == 1 and len(world.opens.descriptors) == 0


def test_locks_behind_what_local_processes_know(
    world: World, ann: Client, hers: OpenState, local: LocalProcess
) -> None:
    far = Range(1 << 63, END, True)
    lock = world.lock_first(ann, hers, far)
    assert local.exclusive(0, 0)
    world.locks.unlock(world.ctx(ann), lock.stateid, far)
    world.locks.test(world.ctx(ann), b"l", far)


def test_one_descriptor_more_for_a_file_with_locks(
    world: World, ann: Client, hers: OpenState
) -> None:
    assert len(world.opens.descriptors) == 1
    for first in (0, 10):
        world.lock_first(ann, hers, Range(first, first, True))
    assert len(world.opens.descriptors) == 2
    world.opens.close(world.ctx(ann), hers.stateid)
    assert len(world.opens.descriptors) == 0


def test_reclaiming_what_a_local_process_took_meanwhile(world: World, local: LocalProcess) -> None:
    world.client(b"old")
    world.restart()
    old = world.client(b"old", has_reclaimed=False)
    state = world.open(old, Share(BOTH))
    assert local.exclusive(0, 1)
    refused(
        Status.RECLAIM_CONFLICT, world.lock_first, old, state, Range(0, 0, True), is_reclaim=True
    )


def test_a_program_that_runs_can_be_locked_to_read(
    world: World, ann: Client, tmp_path: Path
) -> None:
    """Nobody can open it to write, so shared locks alone are shown."""
    program = world.export / "b"
    program.write_bytes(Path("/bin/sleep").read_bytes())
    program.chmod(0o755)
    pid = os.posix_spawn(program, ["sleep", "60"], {})
    try:
        state = world.open(ann, Share(READ), file="b")
        ctx = world.ctx(ann, "b")
        first = FirstLock(state.stateid, b"l")
        world.locks.lock(ctx, first, Range(0, 9, False), is_reclaim=False)

        reader = os.open(program, os.O_RDONLY)
        asked = struct.pack("@hhqqi4x", fcntl.F_WRLCK, os.SEEK_SET, 0, 1, 0)
        kind = struct.unpack("@hhqqi4x", fcntl.fcntl(reader, fcntl.F_OFD_GETLK, asked))[0]
        os.close(reader)
        assert kind == fcntl.F_RDLCK
    finally:
        os.kill(pid, 9)
        os.waitpid(pid, 0)


def test_a_server_that_ends_leaves_no_lock_behind(
    world: World, ann: Client, local: LocalProcess
) -> None:
    state = world.open(ann, Share(BOTH))
    world.lock_first(ann, state, Range(0, 9, True))
    assert not local.can(0, 10)
    world.server.stop()
    assert local.can(0, 10)
    assert len(world.opens.descriptors) == 0
    assert world.accelerator.granted == {}
    # It did not forget whose they were: after the restart they are reclaimed.
    world.restart()
    assert world.recovery.may_reclaim(ann.owner)
