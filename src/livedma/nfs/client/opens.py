# SPDX-License-Identifier: BSD-2-Clause
"""Keeps the state that the server has for this client, open files and locks, and gets it back."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from livedma.nfs.client.codec import lock as lock_codec
from livedma.nfs.client.codec import open as open_codec
from livedma.nfs.client.codec.handle import putfh
from livedma.nfs.client.errors import OperationFailed, StateLost
from livedma.nfs.client.operation import Operation
from livedma.nfs.numbers import Status
from livedma.nfs.stateid import Stateid

if TYPE_CHECKING:
    from livedma.nfs.client.session import Session

__all__ = ["LOST", "LockState", "OpenState"]

_Build = Callable[[open_codec.Share], Operation[open_codec.Opened]]

LOST = {
    Status.ADMIN_REVOKED,
    Status.BAD_STATEID,
    Status.DELEG_REVOKED,
    Status.EXPIRED,
    Status.STALE_STATEID,
}


@dataclass(slots=True)
class LockState:
    """Holds the locks of one owner in one open; it has a stateid after its first lock."""

    owner: bytes
    stateid: Stateid | None = None
    ranges: list[lock_codec.Range] = field(default_factory=list)


@dataclass(slots=True, eq=False)
class OpenState:
    """Holds the state of one open file.

    generation: how often it was got back; a stateid of an earlier one is of no use. lost: why it
    could not be got back. changing: held while a call changes the state, since the stateids count
    the changes.
    """

    path: str
    handle: bytes
    access: int
    deny: int
    owner: bytes
    stateid: Stateid
    locks: dict[bytes, LockState] = field(default_factory=dict)
    generation: int = 0
    lost: str = ""
    changing: asyncio.Lock = field(default_factory=asyncio.Lock)

    @property
    def has_locks(self) -> bool:
        return any(state.ranges for state in self.locks.values())

    def share(self, client_id: int) -> open_codec.Share:
        return open_codec.Share(self.access, self.deny, client_id, self.owner)

    def check(self) -> None:
        if self.lost:
            raise StateLost(f"{self.path}: {self.lost}")

    async def reclaim(self, session: Session) -> None:
        """Gets it back from a server that restarted. What cannot be got back is marked as lost."""
        try:
            await self._open(session, open_codec.open_reclaim, urgent=True)
        except OperationFailed as failed:
            if failed.status not in (Status.NO_GRACE, Status.RECLAIM_BAD, Status.RECLAIM_CONFLICT):
                self.lost = f"the open was not got back: {failed}"
                return
            why = f"the server was back for too long: {failed.status.name}"
            await self._anew(session, why, urgent=True)
            return
        for state in self.locks.values():
            await self._lock_again(session, state)

    async def renew(self, session: Session, generation: int, *, is_held: bool = False) -> None:
        """Gets it back from a server that took it away, such as after the lease had expired.

        Does nothing if that was done already since `generation`. is_held: the caller holds
        `changing`. Raises `StateLost` if it cannot be got back.
        """
        async with contextlib.nullcontext() if is_held else self.changing:
            self.check()
            if self.generation == generation:
                await self._anew(session, "the server took the state away")
        self.check()

    async def release(self, session: Session) -> None:
        """Unlocks and closes it. If the server has taken it away, it is closed already."""
        async with self.changing:
            if self.lost:
                return
            try:
                while not await self._released(session):
                    pass  # It was got back meanwhile, under another stateid.
            finally:
                self.lost = "it is closed"

    async def _released(self, session: Session) -> bool:
        generation = self.generation
        try:
            for state in self.locks.values():
                if state.ranges and state.stateid is not None:
                    unlock = lock_codec.locku(lock_codec.Range(0, None, True), state.stateid)
                    done = await session.compound(putfh(self.handle), unlock, path=self.path)
                    state.stateid, state.ranges = done[unlock], []
            await session.compound(
                putfh(self.handle), open_codec.close(self.stateid), path=self.path
            )
        except OperationFailed as failed:
            if failed.status not in LOST:
                raise
            return self.generation == generation
        return True

    async def _anew(self, session: Session, why: str, *, urgent: bool = False) -> None:
        # Other clients may have had the locks in between: what they protected may have changed.
        if self.has_locks:
            self.lost = f"its locks are lost, {why}"
            return
        try:
            await self._open(session, open_codec.open_again, urgent=urgent)
        except OperationFailed as failed:
            self.lost = f"{why}, and it could not be opened again: {failed}"

    async def _open(self, session: Session, build: _Build, *, urgent: bool) -> None:
        opened = build(self.share(session.identity.client_id))
        done = await session.compound(putfh(self.handle), opened, path=self.path, urgent=urgent)
        self.stateid = done[opened].stateid
        self.generation += 1
        for state in self.locks.values():
            state.stateid = None

    async def _lock_again(self, session: Session, state: LockState) -> None:
        owner = lock_codec.LockOwner(session.identity.client_id, state.owner)
        for one in state.ranges:
            lock: Operation[Stateid]
            if state.stateid is None:
                lock = lock_codec.lock_first(one, self.stateid, owner, waits=False, reclaim=True)
            else:
                lock = lock_codec.lock(one, state.stateid, waits=False, reclaim=True)
            try:
                done = await session.compound(putfh(self.handle), lock, path=self.path, urgent=True)
            except OperationFailed as failed:
                self.lost = f"a lock was not got back: {failed}"
                return
            state.stateid = done[lock]
