# SPDX-License-Identifier: BSD-2-Clause
"""Keeps open files: their openers, what each may do, and what it denies to others (RFC 8881, 9.7).

All changes happen under the server's lock; files are opened before and closed after it. A
client whose lease has run out keeps its state as a courtesy until another client wants what it
denies. Then it loses all its state, and that is on the disk before the other one gets anything.
"""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Collection, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import reduce
from operator import or_
from typing import TYPE_CHECKING

from livedma.nfs.numbers import NfsError, Status
from livedma.nfs.server.state.grants import Grants
from livedma.nfs.server.state.held import Descriptors, Held
from livedma.nfs.server.state.opened import Delegation, LockState, OpenFile, OpenState, open_of
from livedma.nfs.server.state.shares import BOTH, READ, WRITE, Share, downgraded
from livedma.nfs.server.state.states import States
from livedma.nfs.stateid import ANONYMOUS, BYPASS, Stateid

if TYPE_CHECKING:
    from livedma.nfs.server.context import Context
    from livedma.nfs.server.parts import Server
    from livedma.nfs.server.state.clients import Client
    from livedma.nfs.server.store import Node

__all__ = ["Opened", "Opens", "client_of"]


@dataclass(slots=True)
class _Holdings:
    """Holds what a client has; count: its opens, lock states and ranges."""

    opens: set[OpenState] = field(default_factory=set)
    count: int = 0


@dataclass(frozen=True, slots=True)
class Opened:
    """Says what came of an open. Another thread may have changed `state` since."""

    state: OpenState
    stateid: Stateid
    seqid_before: int
    opened_before: frozenset[Share]


class Opens:
    """Holds the open files of a server, and the table of all stateids."""

    def __init__(self, server: Server) -> None:
        self._server = server
        self._grants = Grants(server)
        self.descriptors = Descriptors(server.config.open_files_most)
        self.descriptors.on_full = self._let_a_courtesy_go
        self.states: States[OpenState | LockState | Delegation] = States(server.recovery.boot)
        self._files: dict[tuple[int, int], OpenFile] = {}
        self._of_client: dict[int, _Holdings] = {}
        server.clients.on_gone.append(self._client_gone)

    def open(
        self,
        ctx: Context,
        node: Node,
        owner: bytes,
        share: Share,
        *,
        fd: int | None = None,
        owner_may: bool = False,
    ) -> Opened:
        """Opens a file; if the owner has it open already, the open then has what both asked for.

        fd: of a file that the caller has just made, for all access; it is taken over. owner_may:
        the owner of the file is not refused for its mode, since it had the file open before.
        """
        client = client_of(ctx)
        if fd is None:
            self._make_way(ctx, node, share)
            held = self._opened(ctx, client, node, owner, share, owner_may)
        else:  # A file that is open to write here has no delegation.
            held = self._made(node, fd, share)
        try:
            while True:
                with self._server.lock:
                    in_the_way = self._in_the_way(node.key, share, (client.number, owner))
                    if not in_the_way:
                        opened, needless = self._grant(ctx, client, node, owner, share, held)
                        break
                    self.end_courtesies(in_the_way, NfsError(Status.SHARE_DENIED))
                self._server.recovery.settle()
        except BaseException:
            held.drop()
            raise
        _drop(needless)
        return opened

    def undo(self, opened: Opened) -> None:
        """Takes an open back after a failed step, unless the state has changed again since."""
        state, needless = opened.state, []
        with self._server.lock:
            if state.stateid != opened.stateid or not self.states.has(state):
                return
            if opened.seqid_before == 0:
                needless = self._remove(state)
            else:
                state.seqid, state.opened = opened.seqid_before, opened.opened_before
                state.share = reduce(or_, state.opened)
                needless = state.fds.keep(state.share.access)
                self._grants.tell_all(state, is_new=bool(needless))
        _drop(needless)

    def downgrade(self, ctx: Context, stateid: Stateid, share: Share) -> Stateid:
        """Reduces the open to `share`."""
        with self._server.lock:
            state = self.find_open(ctx, ctx.resolve(stateid, keep_seqid=True))
            opened = downgraded(state.opened, share)
            if opened is None:
                raise NfsError(Status.INVAL)
            state.opened = opened
            state.share = share
            state.change()
            needless = state.fds.keep(share.access)
            self._grants.tell_all(state, is_new=bool(needless))
            ret = state.stateid
        _drop(needless)
        return ret

    def close(self, ctx: Context, stateid: Stateid) -> None:
        """Gives up the open, and the locks that came by it."""
        with self._server.lock:
            state = self.find_open(ctx, ctx.resolve(stateid, keep_seqid=True))
            needless = self._remove(state)
        _drop(needless)

    @contextmanager
    def for_io(self, ctx: Context, stateid: Stateid, write: bool) -> Iterator[int]:
        """Yields a descriptor of the current file to read or to write, until the block ends.

        The file need not be regular; the caller checks that first.
        """
        held = self._held_for_io(ctx, ctx.resolve(stateid), WRITE if write else READ)
        if held is not None:
            try:
                yield held.fd
            finally:
                held.drop()
            return
        fd = ctx.server.store.open(ctx.node, not write, write)
        try:
            yield fd
        finally:
            os.close(fd)

    def find(self, ctx: Context, stateid: Stateid) -> OpenState | LockState | Delegation:
        """Returns the state of the current file that the caller means, under the server's lock."""
        state = self.states.find(stateid, client_of(ctx).number)
        if state.key != ctx.node.key:
            raise NfsError(Status.BAD_STATEID)
        return state

    def find_open(self, ctx: Context, stateid: Stateid) -> OpenState:
        """Finds a state as `find` does; it has to be an open."""
        state = self.find(ctx, stateid)
        if not isinstance(state, OpenState):
            raise NfsError(Status.BAD_STATEID)
        return state

    def file(self, node: Node) -> OpenFile | None:
        """Returns a file's opens and locks, or None if it has none; under the server's lock."""
        return self._files.get(node.key)

    def held_by(self, client: Client) -> int:
        """Returns how many opens, lock states and locked ranges a client has."""
        holdings = self._of_client.get(client.number)
        return holdings.count if holdings else 0

    def check_room(self, client: Client) -> None:
        """Raises DELAY if a client has as much as it may have; under the server's lock."""
        if self.held_by(client) >= self._server.config.states_most:
            raise NfsError(Status.DELAY)

    def check_room_for_one(self, client: Client) -> None:
        """Raises DELAY if there is surely no room for one more open."""
        if self.descriptors.is_full:
            self._let_a_courtesy_go()
            raise NfsError(Status.DELAY)
        with self._server.lock:
            self.check_room(client)

    def _let_a_courtesy_go(self) -> None:
        """Ends a client that has long been silent, since its files take room from others. The
        caller is told to come again, and `recovery.admit` runs first then: that the silent client
        may not reclaim is on the disk before its room is given away.
        """
        with self._server.lock:
            self._server.clients.drop_a_courtesy()

    def end_courtesies(self, clients: Collection[Client], otherwise: NfsError) -> None:
        """Ends clients that are kept as a courtesy; raises `otherwise` if one of them is not.

        The caller holds the server's lock, and calls `recovery.settle` before it grants anything.
        """
        if not all(client.is_courtesy for client in clients):
            raise otherwise
        for client in clients:
            self._server.clients.expire(client)

    def add_lock(self, open_state: OpenState, owner: bytes) -> LockState:
        """Adds a lock-owner without locks. From here on the caller holds the server's lock."""
        lock = LockState(self.states.new_name(), open_state, owner)
        open_state.locks[owner] = lock
        self.states.add(lock)
        self._of_client[lock.client_number].count += 1
        return lock

    def changed_lock(self, lock: LockState, more_ranges: int, *, is_new: bool) -> None:
        """Counts the ranges, and makes the next version of the stateid."""
        self._of_client[lock.client_number].count += more_ranges
        lock.change()
        self._grants.tell(lock, is_new=is_new)

    def remove_lock(self, lock: LockState) -> None:
        """Removes a lock-owner, with the locks that it got by this open."""
        file = lock.open_state.file
        gone = file.ranges.of(lock)
        file.ranges.drop(lock)
        for one in gone:
            file.released(one.first, one.last)
        del lock.open_state.locks[lock.owner]
        self._of_client[lock.client_number].count -= 1 + len(gone)
        self._retract(lock)

    def _retract(self, state: OpenState | LockState) -> None:
        self.states.remove(state)
        self._grants.end(state)

    def _opened(
        self,
        ctx: Context,
        client: Client,
        node: Node,
        owner: bytes,
        share: Share,
        owner_may: bool,
    ) -> Held:
        """Opens a descriptor for what is asked; the kernel checks that the caller may."""
        with self._server.lock:
            file = self._files.get(node.key)
            state = file.opens.get((client.number, owner)) if file else None
            if state is None:
                self.check_room(client)
            access = share.access | (state.share.access if state else 0)
        shared = self._server.delegations.shared(ctx, node)
        if shared is not None:
            return shared
        if access != share.access:
            # One for all access is better than two, but the mode may have changed meanwhile.
            try:
                return self._open_held(node, access, owner_may)
            except NfsError as error:
                if error.status != Status.ACCESS:
                    raise
        return self._open_held(node, share.access, owner_may)

    def _make_way(self, ctx: Context, node: Node, share: Share) -> None:
        delegations = self._server.delegations
        if share.access & WRITE or share.deny & READ:
            delegations.make_way(ctx, node, writes=bool(share.access & WRITE))
        else:
            delegations.make_way_to_read(ctx, node)

    def _made(self, node: Node, fd: int, share: Share) -> Held:
        """Returns a descriptor of a new file. The one that made it can write, and as long as that
        is open no client gets a delegation.
        """
        if self._server.config.delegations and not share.access & WRITE:
            with contextlib.suppress(NfsError):
                held = self._open_held(node, READ, owner_may=True)
                os.close(fd)
                return held
        return self.descriptors.hold(fd, BOTH)

    def _open_held(self, node: Node, access: int, owner_may: bool) -> Held:
        fd = self._server.store.open(node, bool(access & READ), bool(access & WRITE), owner_may)
        return self.descriptors.hold(fd, access)

    def _in_the_way(
        self, key: tuple[int, int], share: Share, asking: tuple[int, bytes] | None
    ) -> set[Client]:
        file = self._files.get(key)
        if file is None:
            return set()
        return {
            state.client
            for holder, state in file.opens.items()
            if holder != asking and share.conflicts(state.share)
        }

    def _grant(
        self, ctx: Context, client: Client, node: Node, owner: bytes, share: Share, held: Held
    ) -> tuple[Opened, list[Held]]:
        self._check_alive(client)
        file = self._files.get(node.key)
        if file is None:
            file = self._files[node.key] = OpenFile(node)
        state = file.opens.get((client.number, owner))
        if state is None:
            state = OpenState(self.states.new_name(), client, owner, file, ctx.credential.uid)
            file.opens[client.number, owner] = state
            holdings = self._of_client.setdefault(client.number, _Holdings())
            holdings.opens.add(state)
            holdings.count += 1
            self.states.add(state)
        seqid_before, opened_before = state.seqid, state.opened
        needless = [held]
        is_new = not state.share.covers(Share(share.access))
        if is_new:
            needless = state.fds.add(held)
        state.share |= share
        state.opened |= {share}
        state.change()
        self._grants.tell_all(state, is_new=is_new)
        return Opened(state, state.stateid, seqid_before, opened_before), needless

    def _check_alive(self, client: Client) -> None:
        """Raises EXPIRED if the client ended meanwhile: its open would never be closed."""
        try:
            self._server.clients.find(client.number)
        except NfsError:
            raise NfsError(Status.EXPIRED) from None

    def _remove(self, state: OpenState) -> list[Held]:
        for lock in tuple(state.locks.values()):
            self.remove_lock(lock)
        self._retract(state)
        del state.file.opens[state.client.number, state.owner]
        needless = state.fds.clear()
        if not state.file.opens:
            del self._files[state.file.key]
            if state.file.mirror is not None:
                needless.append(state.file.mirror.held)
        holdings = self._of_client[state.client.number]
        holdings.opens.remove(state)
        holdings.count -= 1
        if not holdings.opens:
            del self._of_client[state.client.number]
        return needless

    def end(self) -> None:
        """Closes all files as the server ends; the locks that local processes see go, too."""
        needless: list[Held] = []
        with self._server.lock:
            for holdings in tuple(self._of_client.values()):
                for state in tuple(holdings.opens):
                    needless += self._remove(state)
        _drop(needless)

    def _client_gone(self, client: Client) -> None:
        needless: list[Held] = []
        holdings = self._of_client.get(client.number)
        for state in tuple(holdings.opens) if holdings else ():
            needless += self._remove(state)
        if needless:
            # The server's lock is held here, and closing may take long.
            threading.Thread(target=_drop, args=(needless,), name="nfs-close").start()

    def _held_for_io(self, ctx: Context, stateid: Stateid, access: int) -> Held | None:
        """Returns None if the file has to be opened for the caller."""
        if stateid in (ANONYMOUS, BYPASS):
            self._make_way(ctx, ctx.node, Share(access))
            if stateid == ANONYMOUS or access == WRITE:
                self._check_anonymous(ctx, access)
            return self._server.delegations.shared(ctx, ctx.node)
        with self._server.lock:
            found = self.find(ctx, stateid)
            if isinstance(found, Delegation):
                return self._delegated(ctx, found, access)
            state = open_of(found)
            if not access & state.share.access and access == WRITE:
                raise NfsError(Status.OPENMODE)
            # An open to write may be used to read (9.1.2): some clients write whole pages.
            held = state.fds.find(access) if access & state.share.access else None
            if held is None or state.uid is None or state.uid != ctx.credential.uid:
                return self._server.delegations.shared(ctx, ctx.node)
            return held.take()

    @staticmethod
    def _delegated(ctx: Context, delegation: Delegation, access: int) -> Held | None:
        if access == WRITE and not delegation.is_write:
            raise NfsError(Status.OPENMODE)
        if delegation.is_write:
            return ctx.server.delegations.shared(ctx, ctx.node)
        if delegation.uid is None or delegation.uid != ctx.credential.uid:
            return None
        return delegation.held.take()

    def _check_anonymous(self, ctx: Context, access: int) -> None:
        """Refuses a caller without an open what another client denies (8.2.3)."""
        if self._server.recovery.in_grace(self._server.clock()):
            raise NfsError(Status.GRACE)
        with self._server.lock:
            in_the_way = self._in_the_way(ctx.node.key, Share(access), None)
            self.end_courtesies(in_the_way, NfsError(Status.LOCKED))
        self._server.recovery.settle()


def client_of(ctx: Context) -> Client:
    """Returns the client of a COMPOUND; only a client with a session can have state."""
    if ctx.client is None:
        raise NfsError(Status.OP_NOT_IN_SESSION)
    return ctx.client


def _drop(needless: Iterable[Held]) -> None:
    for held in needless:
        held.drop()
