# SPDX-License-Identifier: BSD-2-Clause
"""Tells the accelerator which stateids it may serve: each that is new, changed or gone."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Protocol

from livedma.nfs.server.state.opened import LockState, OpenState, open_of
from livedma.nfs.server.state.shares import READ, WRITE

if TYPE_CHECKING:
    from livedma._native.nfs import SlotTable
    from livedma.nfs.server.parts import Server

__all__ = ["Accelerating", "Grantee", "Grants"]


class Grantee(Protocol):
    """Represents the accelerator's side of grants. It keeps a descriptor of its own."""

    def grant(
        self,
        other: bytes,
        seqid: int,
        handle: bytes,
        fd: int,
        readable: bool,
        writable: bool,
        client: int,
        uid: int,
    ) -> None: ...
    def update(self, other: bytes, seqid: int, readable: bool, writable: bool) -> object: ...
    def revoke(self, other: bytes) -> object: ...


class AcceleratedSessions(Protocol):
    """Holds the sessions that the accelerator may serve."""

    def add(self, table: SlotTable) -> object: ...
    def remove(self, table: SlotTable) -> object: ...


class Accelerating(Grantee, Protocol):
    """Describes all of the accelerator that a server deals with."""

    @property
    def sessions(self) -> AcceleratedSessions: ...


class Grants:
    """Tells the accelerator of stateids. The caller holds the server's lock; without accelerator
    nothing happens."""

    def __init__(self, server: Server) -> None:
        self._server = server
        self._granted: set[bytes] = set()

    def tell_all(self, state: OpenState, *, is_new: bool) -> None:
        """Tells of an open and its locks; is_new: they have another descriptor than before."""
        self.tell(state, is_new=is_new)
        for lock in state.locks.values():
            self.tell(lock, is_new=is_new)

    def tell(self, what: OpenState | LockState, *, is_new: bool) -> None:
        """Tells of one. An open without uid gets no grant: the slow path serves it."""
        state = open_of(what)
        accelerator: Grantee | None = self._server.accelerator
        if accelerator is None or state.uid is None:
            return
        held = state.fds.most_able
        able = held.access & state.share.access
        readable, writable = bool(able & READ), bool(able & WRITE)
        if what.other in self._granted and not is_new:
            accelerator.update(what.other, what.seqid, readable, writable)
            return
        self.end(what)
        # Out of descriptors, the accelerator does without this one.
        with contextlib.suppress(OSError):
            accelerator.grant(
                what.other,
                what.seqid,
                state.file.handle,
                held.fd,
                readable,
                writable,
                state.client.number,
                state.uid,
            )
            self._granted.add(what.other)

    def end(self, what: OpenState | LockState) -> None:
        """Ends a stateid's grant."""
        if what.other in self._granted:
            self._granted.remove(what.other)
            accelerator: Grantee | None = self._server.accelerator
            if accelerator is not None:
                accelerator.revoke(what.other)
