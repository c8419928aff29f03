# SPDX-License-Identifier: BSD-2-Clause
"""Locks ranges of an open file."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from livedma.nfs.client.codec import lock as codec
from livedma.nfs.client.codec.handle import putfh
from livedma.nfs.client.connection import Backoff
from livedma.nfs.client.errors import Conflict
from livedma.nfs.client.opens import LockState, OpenState
from livedma.nfs.client.operation import Operation, Results
from livedma.nfs.client.ranges import added, without
from livedma.nfs.stateid import Stateid

if TYPE_CHECKING:
    from livedma.nfs.client.session import Session

__all__ = ["FileLocks"]


class FileLocks(ABC):
    """Adds locking to `File`.

    Locks belong to an owner; without one, to the file itself, whose reads and writes are made in
    its name. Different owners exclude each other, also within one client.
    """

    def __init__(self, session: Session, state: OpenState) -> None:
        self._session = session
        self._state = state

    @abstractmethod
    async def _perform(
        self,
        build: Callable[[], Sequence[Operation[Any]]],
        *others: OpenState,
        is_changing: bool = False,
    ) -> Results: ...

    async def lock(
        self,
        start: int = 0,
        length: int | None = None,
        *,
        write: bool = True,
        wait_s: float = 0.0,
        owner: bytes | None = None,
    ) -> None:
        """Locks bytes, for writing or for reading; a length of None goes to the end, also of bytes
        that do not exist yet.

        Raises `Conflict` if another owner has some of them, after it has tried again for `wait_s`.
        """
        wanted = codec.Range(start, length, write)
        backoff = Backoff(wait_s)
        while True:
            try:
                async with self._state.changing:
                    await self._lock(wanted, owner or self._state.owner, waits=wait_s > 0)
                return
            except Conflict:
                if backoff.is_over:
                    raise
            await backoff.wait()

    async def _lock(self, wanted: codec.Range, owner: bytes, *, waits: bool) -> None:
        state = self._state.locks.setdefault(owner, LockState(owner))
        lock: list[Operation[Stateid]] = []

        def build() -> list[Operation[Any]]:
            if state.stateid is None:
                holder = codec.LockOwner(self._session.identity.client_id, owner)
                one = codec.lock_first(wanted, self._state.stateid, holder, waits=waits)
            else:
                one = codec.lock(wanted, state.stateid, waits=waits)
            lock[:] = [one]
            return [putfh(self._state.handle), one]

        done = await self._perform(build, is_changing=True)
        state.stateid = done[lock[0]]
        state.ranges = added(state.ranges, wanted)

    async def unlock(
        self, start: int = 0, length: int | None = None, *, owner: bytes | None = None
    ) -> None:
        """Unlocks bytes, whether they were locked or not."""
        async with self._state.changing:
            state = self._state.locks.get(owner or self._state.owner)
            if state is not None:
                await self._unlock(state, start, length)

    async def _unlock(self, state: LockState, start: int, length: int | None) -> None:
        done_by: list[Operation[Stateid]] = []

        def build() -> list[Operation[Any]]:
            if state.stateid is None:
                return []
            done_by[:] = [codec.locku(codec.Range(start, length, True), state.stateid)]
            return [putfh(self._state.handle), *done_by]

        done = await self._perform(build, is_changing=True)
        if done_by:
            state.stateid = done[done_by[0]]
        state.ranges = without(state.ranges, start, length)

    async def test_lock(
        self,
        start: int = 0,
        length: int | None = None,
        *,
        write: bool = True,
        owner: bytes | None = None,
    ) -> None:
        """Raises `Conflict` if these bytes could not be locked now."""
        wanted = codec.Range(start, length, write)
        holder = codec.LockOwner(self._session.identity.client_id, owner or self._state.owner)
        await self._perform(lambda: [putfh(self._state.handle), codec.lockt(wanted, holder)])
