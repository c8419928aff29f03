# SPDX-License-Identifier: BSD-2-Clause
"""Serves byte-range locks of clients among themselves (RFC 8881, 9): LOCK, LOCKT, LOCKU and
FREE_STATEID.

Locks are advisory: READ and WRITE do not look at them. A mirror of each file's locks
(`livedma.nfs.server.state.mirror`) shows them to local processes, and shows theirs here.
"""

from __future__ import annotations

import contextlib
import os
from dataclasses import dataclass
from typing import TYPE_CHECKING

from livedma.nfs.numbers import TO_THE_END, LockType, NfsError, Status
from livedma.nfs.server.state.byteranges import LAST, Locked
from livedma.nfs.server.state.held import Held
from livedma.nfs.server.state.mirror import LocalLock, Mirror, local_lock
from livedma.nfs.server.state.opened import Delegation, LockState, OpenFile, OpenState
from livedma.nfs.server.state.opens import client_of
from livedma.nfs.server.state.shares import BOTH, READ, WRITE
from livedma.nfs.stateid import Stateid
from livedma.rpc.xdr import Encoder

if TYPE_CHECKING:
    from livedma.nfs.server.context import Context
    from livedma.nfs.server.parts import Server

__all__ = ["FirstLock", "Locks", "Range"]


@dataclass(frozen=True, slots=True)
class Range:
    """Names the bytes `first` to `last`, to be locked against all other owners or against writers
    alone."""

    first: int
    last: int
    is_exclusive: bool

    @staticmethod
    def of(offset: int, length: int, is_exclusive: bool) -> Range:
        """Returns a client's range (18.10.3): a length of all ones has no end."""
        if length == TO_THE_END:
            return Range(offset, LAST, is_exclusive)
        if length == 0 or offset + length > LAST:
            raise NfsError(Status.INVAL)
        return Range(offset, offset + length - 1, is_exclusive)


@dataclass(frozen=True, slots=True)
class FirstLock:
    """Names a lock-owner that has no stateid yet, and the open by which it locks."""

    open_stateid: Stateid
    owner: bytes


class Locks:
    """Keeps the locks of a server's files with its opens."""

    def __init__(self, server: Server) -> None:
        self._server = server

    def lock(
        self, ctx: Context, locker: FirstLock | Stateid, wanted: Range, *, is_reclaim: bool
    ) -> Stateid:
        """Serves LOCK. No thread waits here: a client that wants the lock tries again."""
        server, client = self._server, client_of(ctx)
        server.recovery.admit(client, is_reclaim=is_reclaim, now=server.clock())
        self._prepare_mirror(ctx)
        try:
            while True:
                with server.lock:
                    open_state, owner = self._locker(ctx, locker)
                    _check_mode(open_state, wanted)
                    in_the_way = _conflicts(open_state.file, (client.number, owner), wanted)
                    if not in_the_way:
                        return self._grant(open_state, owner, wanted)
                    self._oust(in_the_way)
                server.recovery.settle()
        except NfsError as refused:
            if is_reclaim and refused.status == Status.DENIED:
                raise NfsError(Status.RECLAIM_CONFLICT) from None
            raise

    def test(self, ctx: Context, owner: bytes, wanted: Range) -> None:
        """Serves LOCKT: DENIED if a lock could not be had now."""
        server, client = self._server, client_of(ctx)
        if server.recovery.in_grace(server.clock()):
            raise NfsError(Status.GRACE)
        with server.lock:
            file = server.opens.file(ctx.node)
            in_the_way = _conflicts(file, (client.number, owner), wanted) if file else []
            if in_the_way:
                self._oust(in_the_way)
                file = server.opens.file(ctx.node)  # may have gone with them
            mirror = file.mirror if file else None
            if mirror is not None:
                local = mirror.in_the_way(wanted.first, wanted.last, wanted.is_exclusive)
        if mirror is None:
            local = self._local_lock(ctx, wanted)
        if local is not None:
            raise denied(local)

    def unlock(self, ctx: Context, stateid: Stateid, wanted: Range) -> Stateid:
        """Serves LOCKU, also for a range that was not locked."""
        with self._server.lock:
            lock = self._find(ctx, stateid)
            file = lock.open_state.file
            before = file.ranges.count(lock.lock_owner)
            file.ranges.unlock(lock.lock_owner, wanted.first, wanted.last)
            file.released(wanted.first, wanted.last)
            more = file.ranges.count(lock.lock_owner) - before
            self._server.opens.changed_lock(lock, more, is_new=False)
            return lock.stateid

    def free(self, ctx: Context, stateid: Stateid) -> None:
        """Serves FREE_STATEID for a lock-owner that has no locks left, or for what was revoked.
        Opens are closed instead, and delegations given back.
        """
        opens = self._server.opens
        with self._server.lock:
            state = opens.states.find_any(ctx.resolve(stateid), client_of(ctx).number)
            if isinstance(state, Delegation):
                self._server.delegations.free(state)
                return
            if isinstance(state, OpenState) or state.open_state.file.ranges.holds(state):
                raise NfsError(Status.LOCKS_HELD)
            opens.remove_lock(state)

    def _locker(self, ctx: Context, locker: FirstLock | Stateid) -> tuple[OpenState, bytes]:
        if isinstance(locker, FirstLock):
            opens = self._server.opens
            return opens.find_open(ctx, ctx.resolve(locker.open_stateid)), locker.owner
        lock = self._find(ctx, locker)
        return lock.open_state, lock.owner

    def _find(self, ctx: Context, stateid: Stateid) -> LockState:
        state = self._server.opens.find(ctx, ctx.resolve(stateid))
        if not isinstance(state, LockState):
            raise NfsError(Status.BAD_STATEID)
        return state

    def _grant(self, open_state: OpenState, owner: bytes, wanted: Range) -> Stateid:
        opens, file = self._server.opens, open_state.file
        opens.check_room(open_state.client)
        first, last = wanted.first, wanted.last
        if file.mirror is not None and not file.mirror.lock(first, last, wanted.is_exclusive):
            local = file.mirror.in_the_way(first, last, wanted.is_exclusive)
            # The local lock may have gone meanwhile; then trying again helps.
            raise NfsError(Status.DELAY) if local is None else denied(local)
        lock = open_state.locks.get(owner)
        is_new = lock is None
        if lock is None:
            lock = opens.add_lock(open_state, owner)
        before = file.ranges.count(lock.lock_owner)
        file.ranges.lock(lock, first, last, wanted.is_exclusive)
        opens.changed_lock(lock, file.ranges.count(lock.lock_owner) - before, is_new=is_new)
        return lock.stateid

    def _oust(self, in_the_way: list[Locked[LockState]]) -> None:
        clients = {lock.holder.open_state.client for lock in in_the_way}
        self._server.opens.end_courtesies(clients, denied(in_the_way[0]))

    def _prepare_mirror(self, ctx: Context) -> None:
        """Makes a mirror before the first lock of a file, so that local processes see it."""
        server = self._server
        with server.lock:
            file = server.opens.file(ctx.node)
            if file is None or file.mirror is not None:
                return
        held = self._open_mirror(ctx)
        if held is None:
            return
        with server.lock:
            file = server.opens.file(ctx.node)
            if file is not None and file.mirror is None:
                file.mirror = Mirror(held)
                return
        held.drop()

    def _open_mirror(self, ctx: Context) -> Held | None:
        """Opens a descriptor for as many kinds of locks as the server itself can have.

        For a delegated file it is one to read: exclusive locks need an open to write, and there is
        none.
        """
        server = self._server
        to_read = server.config.read_only or server.delegations.is_delegated(ctx.node)
        for access in (READ,) if to_read else (BOTH, READ, WRITE):
            fd = self._open_as_server(ctx, access)
            if fd is not None:
                return self._server.opens.descriptors.hold(fd, access)
        return None

    def _local_lock(self, ctx: Context, wanted: Range) -> LocalLock | None:
        """Returns a local lock in the way, as a mirror would, for a file without one."""
        fd = self._open_as_server(ctx, READ)
        if fd is None:
            return None
        try:
            return local_lock(fd, wanted.first, wanted.last, wanted.is_exclusive)
        finally:
            os.close(fd)

    def _open_as_server(self, ctx: Context, access: int) -> int | None:
        """Returns None if even the server may not, or no process may, as with a running program."""
        store = self._server.store
        if self._server.delegations.is_sole(ctx.node):
            return None  # no local process has it open, and a lock needs that
        with store.actor.as_server(), contextlib.suppress(NfsError):
            return store.open(ctx.node, bool(access & READ), bool(access & WRITE))
        return None


def _conflicts(file: OpenFile, owner: tuple[int, bytes], wanted: Range) -> list[Locked[LockState]]:
    return list(file.ranges.conflicts(owner, wanted.first, wanted.last, wanted.is_exclusive))


def _check_mode(open_state: OpenState, wanted: Range) -> None:
    """Checks that the open may write for an exclusive lock, or read for a shared one (9.1.2)."""
    if not open_state.share.access & (WRITE if wanted.is_exclusive else READ):
        raise NfsError(Status.OPENMODE)


def denied(lock: Locked[LockState] | LocalLock) -> NfsError:
    """Returns the refusal that names the lock in the way; a local lock has no owner."""
    body = Encoder()
    body.u64(lock.first)
    body.u64(TO_THE_END if lock.last == LAST else lock.last - lock.first + 1)
    body.enum(LockType.WRITE if lock.is_exclusive else LockType.READ)
    body.u64(lock.holder.client_number if isinstance(lock, Locked) else 0)
    body.opaque(lock.holder.owner if isinstance(lock, Locked) else b"")
    return NfsError(Status.DENIED, bytes(body))
