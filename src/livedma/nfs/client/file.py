# SPDX-License-Identifier: BSD-2-Clause
"""Reads, writes and locks an open file."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

from livedma.nfs.client.attributes import STAT, Stat, settable
from livedma.nfs.client.codec import data as data_codec
from livedma.nfs.client.codec import open as open_codec
from livedma.nfs.client.codec import sparse
from livedma.nfs.client.codec.attribute import getattr_of, setattr_of
from livedma.nfs.client.codec.handle import putfh, savefh
from livedma.nfs.client.errors import BadReply, OperationFailed, StateLost, WritesLost
from livedma.nfs.client.file_locks import FileLocks
from livedma.nfs.client.opens import LOST, OpenState
from livedma.nfs.client.operation import Operation, Results
from livedma.nfs.numbers import SHARE_READ, SHARE_WRITE, Stable, Status
from livedma.nfs.stateid import Stateid
from livedma.rpc.client import Buffer

if TYPE_CHECKING:
    from livedma.nfs.client.session import Session

__all__ = ["File"]

T = TypeVar("T")

_PIECES_AT_ONCE = 8  # of one read or write
_RENEWALS_MOST = 4  # of lost state, in one call


class File(FileLocks):
    """Represents an open file, made by `open`. Any number of calls may use it at once.

    Data is written UNSTABLE unless the caller says otherwise: `commit` puts it on stable storage,
    and so does `close`.
    """

    def __init__(self, session: Session, state: OpenState) -> None:
        super().__init__(session, state)
        self._unstable: set[bytes] = set()  # verifiers of writes that are to be committed
        self._is_closed = False

    def __repr__(self) -> str:
        return f"<File {self.path}>"

    async def __aenter__(self) -> File:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    @property
    def path(self) -> str:
        """Returns the path by which it was opened."""
        return self._state.path

    @property
    def session(self) -> Session:
        """Returns its own session; another of the same client id if that cannot be used."""
        others = self._session.identity.sessions
        return self._session if self._session.is_open or not others else others[0]

    @property
    def handle(self) -> bytes:
        return self._state.handle

    @property
    def stateid(self) -> Stateid:
        """Returns the present stateid of the open."""
        return self._state.stateid

    @property
    def lost(self) -> str:
        """Returns why it could not be got back from the server, or nothing."""
        return self._state.lost

    # Data.

    async def read(self, offset: int, count: int) -> bytes:
        """Reads from an offset on; returns fewer bytes at the end of the file."""
        buffer = bytearray(count)
        return bytes(memoryview(buffer)[: await self.read_into(offset, buffer)])

    async def read_into(self, offset: int, buffer: bytearray | memoryview) -> int:
        """Fills a buffer; returns how many bytes there were up to the end of the file."""
        view = memoryview(buffer).cast("B")
        most = self.session.read_bytes
        starts = range(0, len(view), most)

        async def piece(at: int) -> int:
            return await self._read_piece(offset + at, view[at : at + most])

        counts = await _in_turn(piece, starts)
        total = 0
        for start, count in zip(starts, counts, strict=True):
            total += count
            if count < len(view[start : start + most]):
                break
        return total

    async def _read_piece(self, offset: int, view: memoryview) -> int:
        total = 0
        while total < len(view):
            done = await self._read_once(offset + total, view[total:])
            total += done.count
            if done.is_end:
                break
            if not done.count:
                raise BadReply(f"READ of {self.path}: nothing, and not the end of the file")
        return total

    async def _read_once(self, offset: int, view: memoryview) -> data_codec.ReadDone:
        done: list[Operation[data_codec.ReadDone]] = []

        def build() -> list[Operation[Any]]:
            done[:] = [data_codec.read(self._io_stateid(), offset, view)]
            return [putfh(self.handle), *done]

        return (await self._perform(build))[done[0]]

    async def write(self, offset: int, data: Buffer, stable: Stable = Stable.UNSTABLE) -> int:
        """Writes all of the data; returns its length."""
        view = memoryview(data).cast("B")
        most = self.session.write_bytes

        async def piece(at: int) -> None:
            await self._write_piece(offset + at, view[at : at + most], stable)

        await _in_turn(piece, range(0, len(view), most))
        return len(view)

    async def _write_piece(self, offset: int, view: memoryview, stable: Stable) -> None:
        total = 0
        while total < len(view):
            done: list[Operation[data_codec.Written]] = []

            def build(
                at: int = total, done: list[Operation[data_codec.Written]] = done
            ) -> list[Operation[Any]]:
                done[:] = [data_codec.write(self._io_stateid(), offset + at, view[at:], stable)]
                return [putfh(self.handle), *done]

            written = (await self._perform(build))[done[0]]
            if not written.count:
                raise BadReply(f"WRITE of {self.path}: nothing was written")
            if written.stable == Stable.UNSTABLE:
                self._unstable.add(written.verifier)
            total += written.count

    async def commit(self) -> None:
        """Returns when all that was written is on stable storage; `WritesLost` if it is not."""
        before, self._unstable = self._unstable, set()
        commit = data_codec.commit()
        done = await self._perform(lambda: [putfh(self.handle), commit])
        if before - {done[commit]}:
            raise WritesLost(f"{self.path}: the server restarted before all of it was safe")

    async def truncate(self, size: int) -> None:
        await self.setattr(size=size)

    # Attributes.

    async def stat(self) -> Stat:
        get = getattr_of(STAT)
        done = await self._perform(lambda: [putfh(self.handle), get])
        values = done[get]
        return Stat.of(values)

    async def setattr(self, **values: Any) -> None:
        """Sets attributes as `Files.setattr` does."""
        wanted = settable(**values)
        await self._perform(lambda: [putfh(self.handle), setattr_of(self._io_stateid(), wanted)])

    # Operations that 4.2 adds.

    async def seek_data(self, offset: int) -> int | None:
        """Returns where data begins, at the offset or behind it; None if there is none."""
        return await self._seek(offset, hole=False)

    async def seek_hole(self, offset: int) -> int | None:
        """Returns where a hole begins, at the offset or behind it; the file's end counts as one.

        None: the offset is beyond that.
        """
        return await self._seek(offset, hole=True)

    async def _seek(self, offset: int, *, hole: bool) -> int | None:
        seek: list[Operation[int | None]] = []

        def build() -> list[Operation[Any]]:
            seek[:] = [sparse.seek(self._io_stateid(), offset, hole=hole)]
            return [putfh(self.handle), *seek]

        try:
            return (await self._perform(build))[seek[0]]
        except OperationFailed as failed:
            if failed.status == Status.NXIO:
                return None
            raise

    async def allocate(self, offset: int, length: int) -> None:
        """Reserves space, and makes the file at least so long."""
        await self._perform(
            lambda: [putfh(self.handle), sparse.allocate(self._io_stateid(), offset, length)]
        )

    async def deallocate(self, offset: int, length: int) -> None:
        """Makes a hole in the file."""
        await self._perform(
            lambda: [putfh(self.handle), sparse.deallocate(self._io_stateid(), offset, length)]
        )

    async def copy_to(self, target: File, source_at: int, target_at: int, length: int) -> int:
        """Lets the server copy to another of its files; returns the bytes, fewer at the end."""
        total = 0
        while total < length:
            done: list[Operation[sparse.Copied]] = []

            def build(
                at: int = total, done: list[Operation[sparse.Copied]] = done
            ) -> list[Operation[Any]]:
                ours, theirs = self._io_stateid(), target._io_stateid()
                copy = sparse.copy(ours, theirs, source_at + at, target_at + at, length - at)
                done[:] = [copy]
                return [putfh(self.handle), savefh(), putfh(target.handle), copy]

            copied = (await self._perform(build, target._state))[done[0]]
            if copied.stable == Stable.UNSTABLE:
                target._unstable.add(copied.verifier)
            total += copied.count
            if not copied.count:
                break
        return total

    # The open itself.

    async def upgrade(self, *, read: bool = False, write: bool = False) -> None:
        """Gets another right by opening the file once more."""
        state = self._state
        async with state.changing:
            access = state.access | _access(read, write)
            again: list[Operation[open_codec.Opened]] = []

            def build() -> list[Operation[Any]]:
                share = open_codec.Share(
                    _access(read, write), 0, self._session.identity.client_id, state.owner
                )
                again[:] = [open_codec.open_again(share)]
                return [putfh(self.handle), *again]

            done = await self._perform(build, is_changing=True)
            state.stateid, state.access = done[again[0]].stateid, access

    async def downgrade(self, *, read: bool = False, write: bool = False) -> None:
        """Keeps only these rights, which have to be those that it had before an `upgrade`."""
        access = _access(read, write)
        async with self._state.changing:
            down: list[Operation[Stateid]] = []

            def build() -> list[Operation[Any]]:
                down[:] = [open_codec.open_downgrade(self.stateid, access, self._state.deny)]
                return [putfh(self.handle), *down]

            done = await self._perform(build, is_changing=True)
            self._state.stateid, self._state.access = done[down[0]], access

    async def close(self) -> None:
        """Commits what was not committed, unlocks, and closes. Idempotent.

        `WritesLost` if something was lost; the file is closed then, too.
        """
        if self._is_closed:
            return
        self._is_closed = True
        try:
            if self._unstable and not self._state.lost:
                await self.commit()
        finally:
            try:
                await self._state.release(self.session)
            finally:
                self._session.identity.opens.discard(self._state)

    def _io_stateid(self) -> Stateid:
        """Returns the stateid for data; its seqid is 0, so calls may overtake changes of state."""
        own = self._state.locks.get(self._state.owner)
        held = own.stateid if own is not None and own.ranges else None
        return Stateid(0, (held or self._state.stateid).other)

    async def _perform(
        self,
        build: Callable[[], Sequence[Operation[Any]]],
        *others: OpenState,
        is_changing: bool = False,
    ) -> Results:
        """Executes what `build` makes of the present stateids; again if those were lost.

        is_changing: the caller holds `changing` of the first state.
        """
        states = (self._state, *others)
        for _ in range(_RENEWALS_MOST):
            for state in states:
                state.check()
            generations = [state.generation for state in states]
            try:
                return await self.session.compound(*build(), path=self.path)
            except OperationFailed as failed:
                if failed.status not in LOST:
                    raise
                error = failed
            for state, generation in zip(states, generations, strict=True):
                is_held = is_changing and state is self._state
                await state.renew(self.session, generation, is_held=is_held)
        raise StateLost(f"{self.path}: the server takes it away again and again: {error}")


def _access(read: bool, write: bool) -> int:
    return read * SHARE_READ | write * SHARE_WRITE


async def _in_turn(piece: Callable[[int], Awaitable[T]], starts: Sequence[int]) -> list[T]:
    """Runs the pieces of one call, some at a time; the first error ends them all."""
    if len(starts) == 1:
        return [await piece(starts[0])]
    results: dict[int, T] = {}
    left = iter(starts)

    async def work() -> None:
        for start in left:
            results[start] = await piece(start)

    workers = [asyncio.ensure_future(work()) for _ in range(min(_PIECES_AT_ONCE, len(starts)))]
    try:
        await asyncio.gather(*workers)
    finally:
        for worker in workers:
            worker.cancel()
        await asyncio.gather(*workers, return_exceptions=True)
    return [results[start] for start in starts]
