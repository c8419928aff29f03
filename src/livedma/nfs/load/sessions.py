# SPDX-License-Identifier: BSD-2-Clause
"""Makes the sessions of a run and their files, gets them back, and removes them."""

from __future__ import annotations

import asyncio
import contextlib
import os
import secrets
from collections.abc import Iterable
from typing import TypedDict

from livedma._native.load import LOST, Load
from livedma.errors import LivedmaError
from livedma.nfs.client import Client, OperationFailed
from livedma.nfs.client.codec.session import bind_conn_to_session, destroy_session
from livedma.nfs.client.connection import Backoff
from livedma.nfs.client.file import File
from livedma.nfs.client.hand_over import HandedOver
from livedma.nfs.load.places import Places
from livedma.nfs.load.plan import Plan
from livedma.nfs.numbers import NfsError, Status
from livedma.rpc.client import RpcError
from livedma.rpc.message import AuthSys, Call, encode_call
from livedma.rpc.xdr import Encoder

__all__ = ["ADVICE", "LoadError", "Sessions"]

_AT_ONCE = 8
_CALL_HEADER = 24  # the bytes before the credential
_FORGOTTEN = (Status.BADSESSION, Status.DEADSESSION, Status.STALE_CLIENTID)

_NO_DIRECTORY = ": use a --dir that can be written"
ADVICE = {
    **dict.fromkeys(
        (
            Status.NOENT,
            Status.NOTDIR,
            Status.NAMETOOLONG,
            Status.ACCESS,
            Status.PERM,
            Status.ROFS,
        ),
        _NO_DIRECTORY,
    ),
    Status.GRACE: ": the server has just started, try again in a minute or two",
    Status.NOSPC: ": the server has no room for another session or file, use fewer --sessions",
}


class LoadError(LivedmaError):
    """Reports that a run cannot begin, or has no result."""


class _Target(TypedDict):
    """Holds what the load needs to know about a session and its file."""

    session_id: bytes
    sequences: list[int]
    handle: bytes
    stateid: bytes
    credential: bytes


class Sessions:
    """Makes and removes sessions. refused: why sessions could not be made. left: the files that are
    at the server, as far as it is known here."""

    def __init__(self, load: Load, places: Places, plan: Plan, credential: AuthSys) -> None:
        self._load, self._places, self._plan = load, places, plan
        self._credential = encode_call(Call(0, 0, 0, 0, credential))[_CALL_HEADER:]
        self._prefix = f"livedma-load-{os.getpid()}-{secrets.token_hex(2)}"
        self._files: dict[int, File] = {}  # by the session's number in the load
        self._made: list[asyncio.Task[File]] = []  # files, until a session of the load has them
        self.refused: list[str] = []
        self.left: set[str] = set()

    # Making them.

    async def add(self, client: Client, numbers: Iterable[int]) -> None:
        """Makes sessions, some at a time. Those that cannot be made are `refused`."""
        left = iter(numbers)

        async def add() -> None:
            for number in left:
                await self.try_add(client, number)

        await asyncio.gather(*(add() for _ in range(_AT_ONCE)))

    async def try_add(self, client: Client, number: int) -> None:
        try:
            with self._places.for_new(number) as link:
                await self._add(link, client, number)
        except OperationFailed as error:
            advice = ADVICE.get(error.status, "")
            self.refused.append(f"session {number}: {error}{advice}")
        except RpcError as error:
            self.refused.append(f"session {number}: {error}")

    async def _add(self, link: int, client: Client, number: int) -> None:
        """Makes a session and its file, and gives them to the load."""
        plan = self._plan
        handed = await self._hand_over(client, link)
        path = f"{plan.directory.rstrip('/')}/{self._prefix}-{number}"
        # The server may make the file although this is cancelled before its answer comes.
        making = asyncio.create_task(client.open(path, "rw", create=True))
        self._made.append(making)
        self.left.add(path)
        try:
            file = await asyncio.shield(making)
        except OperationFailed:
            self.left.discard(path)
            raise
        added = self._load.add_session(
            link,
            **self._target(handed, file),
            seed=plan.session_seed(number),
            file_bytes=plan.file_bytes,
        )
        self._places.sessions[added] = handed.session_id
        self._made.remove(making)
        self._files[added] = file

    async def _hand_over(self, client: Client, link: int) -> HandedOver:
        plan = self._plan
        session = await client.session(plan.depth, connection=self._places.connections[link])
        return await session.hand_over()

    def _target(self, handed: HandedOver, file: File) -> _Target:
        stateid = Encoder()
        file.stateid.encode(stateid)
        return _Target(
            session_id=handed.session_id,
            sequences=[slot.sequence - 1 for slot in handed.slots],
            handle=file.handle,
            stateid=bytes(stateid),
            credential=self._credential,
        )

    # Getting them back.

    @property
    def lost(self) -> list[int]:
        """Returns the sessions whose connection broke."""
        return [
            number
            for number, place in enumerate(self._load.places())
            if place == LOST and number in self._files
        ]

    async def restore(self, client: Client) -> None:
        """Gets back sessions whose connection broke. Raises RpcError, NfsError and OSError."""
        turn = asyncio.Semaphore(_AT_ONCE)

        async def restore(number: int) -> None:
            async with turn:
                with self._places.for_new(number) as link:
                    await self._restore(client, number, link)

        found = await asyncio.gather(*map(restore, self.lost), return_exceptions=True)
        for one in found:
            if isinstance(one, BaseException):
                raise one

    async def _restore(self, client: Client, number: int, link: int) -> None:
        """Resumes the session if the server still knows it, else makes another one for it."""
        connection = self._places.connections[link]
        transport = await connection.ensure(Backoff(0))
        bind = bind_conn_to_session(self._places.sessions[number])
        outcome = await connection.perform(transport, client.identity.terms, [bind])
        if outcome.error is None:
            self._load.resume_session(number, link)
            return
        if outcome.status not in _FORGOTTEN:
            raise outcome.error
        handed = await self._hand_over(client, link)
        file = self._files[number]
        if file.lost:  # such as when the server could not find it by its handle
            file = self._files[number] = await client.open(file.path, "rw", create=True)
        self._load.renew_session(number, link, **self._target(handed, file))
        self._places.sessions[number] = handed.session_id

    # The end.

    async def remove(self, client: Client) -> None:
        """Removes all files and sessions."""
        turn = asyncio.Semaphore(_AT_ONCE)

        async def remove(file: File) -> None:
            async with turn:
                # It may be lost; its name is there all the same.
                with contextlib.suppress(LivedmaError, NfsError, OSError):
                    await file.close()
                await client.remove(file.path)
                self.left.discard(file.path)

        made = await asyncio.gather(*self._made, return_exceptions=True)
        files = [*self._files.values(), *(one for one in made if isinstance(one, File))]
        await asyncio.gather(*map(remove, files), return_exceptions=True)
        links = self._load.places()
        for number, session_id in self._places.sessions.items():
            connection = self._places.connections.get(links[number])
            if connection is not None and (transport := connection.transport) is not None:
                destroy = destroy_session(session_id)
                await connection.perform(transport, client.identity.terms, [destroy])
