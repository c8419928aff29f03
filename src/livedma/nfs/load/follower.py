# SPDX-License-Identifier: BSD-2-Clause
"""Does what the server asks for each connection (`livedma.nfs.guidance_protocol`) during load.

Sessions move one by one: each is bound to the new connection by BIND_CONN_TO_SESSION, then sends
its next calls there, while calls under way end on the old one. The old one is closed when its last
reply has come. Whatever fails, sessions stay where they are, or go back.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable

from livedma._native.load import Load
from livedma.errors import LivedmaError
from livedma.nfs.client import Client, OperationFailed
from livedma.nfs.client.codec.session import bind_conn_to_session
from livedma.nfs.client.connection import Backoff
from livedma.nfs.guidance_protocol import (
    PROGRAM,
    VERSION,
    Advice,
    Instruction,
    Procedure,
    Progress,
    Report,
)
from livedma.nfs.load.places import Places
from livedma.rpc.client import CallRefused, RpcError
from livedma.rpc.message import Accepted, AcceptStatus, Call, decode_reply, encode_call
from livedma.rpc.xdr import Decoder, XdrError

__all__ = ["Follower"]

_ASK_LEAST_S, _ASK_MOST_S = 0.02, 5.0  # bounds, whatever the server says
_AT_ONCE = 8  # sessions that are bound at a time
_LOOK_S = 0.005
_PATIENCE_S = 15.0

Send = Callable[[int, bytes], Awaitable[bytes]]


class Follower:
    """Follows the server's instructions from `start` until `stop`. send: makes a call on a link."""

    def __init__(self, load: Load, send: Send, places: Places, client: Client) -> None:
        self._load, self._send, self._places, self._client = load, send, places, client
        self._tasks: set[asyncio.Task[None]] = set()
        self._is_started = False
        self.moving = asyncio.Lock()  #: only one connection is being moved at a time

    def start(self) -> None:
        self._is_started = True
        for link in self._places.connections:
            self.watch(link)

    async def stop(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def watch(self, link: int) -> None:
        """Asks what the server wants of a connection, if it follows at all."""
        if not self._is_started:
            return
        task = asyncio.create_task(self._follow(link), name=f"guidance of link {link}")
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _follow(self, link: int) -> None:
        """Follows until the connection ends, or its server says that it has no instructions."""
        done = 0
        with contextlib.suppress(RpcError, XdrError):
            while True:
                advice = await self._ask(link)
                if advice.instruction != Instruction.STAY and advice.serial != done:
                    done = advice.serial
                    async with self.moving:
                        if await self._obey(link, advice):
                            return
                wait_s = advice.ask_again_ms / 1000
                await asyncio.sleep(min(max(wait_s, _ASK_LEAST_S), _ASK_MOST_S))

    async def _obey(self, link: int, advice: Advice) -> bool:
        """Does what is asked; returns whether the connection was closed."""
        try:
            new = await self._places.open()
        except (LivedmaError, OSError, MemoryError) as error:  # including too little memory here
            await self._say(link, Report(advice.serial, Progress.REFUSED, words=str(error)))
            return False
        self.watch(new)
        self._places.lead_to(new)
        await self._say(link, Report(advice.serial, Progress.OPENED))
        return advice.instruction == Instruction.MIGRATE and await self._migrate(
            link, new, advice.serial
        )

    async def _migrate(self, old: int, new: int, serial: int) -> bool:
        moved = 0
        session, connections = self._client.through, self._places.connections
        # Files are opened through this session, if the client has one.
        has_client = session.is_open and connections[old] in session.connections
        self._load.pair(old, new)
        try:
            if has_client:
                await session.bind(connections[new])
            while not self._places.is_empty(old):
                waiting = self._places.on(old)
                whole = moved + len(waiting)
                for at in range(0, len(waiting), _AT_ONCE):
                    batch = waiting[at : at + _AT_ONCE]
                    await asyncio.gather(*(self._move(number, new) for number in batch))
                    moved += len(batch)
                    await self._say(old, Report(serial, Progress.MOVING, moved, whole))
                if not waiting:  # a session is being made there
                    await asyncio.sleep(_LOOK_S)
        except (RpcError, OperationFailed, OSError) as error:
            self._places.lead_to(old)
            await self._say(old, Report(serial, Progress.REFUSED, words=str(error)))
            return False
        if has_client:
            session.unbind(connections[old])
        await self._say(old, Report(serial, Progress.DONE, moved, moved))
        while not self._places.close(old):
            await asyncio.sleep(_LOOK_S)
        return True

    async def _move(self, number: int, link: int) -> None:
        connection = self._places.connections[link]
        transport = await connection.ensure(Backoff(0))
        bind = bind_conn_to_session(self._places.sessions[number])
        outcome = await connection.perform(transport, self._client.identity.terms, [bind])
        if outcome.error is not None:
            raise outcome.error
        self._load.move_session(number, link)

    # Calls.

    async def _ask(self, link: int) -> Advice:
        return Advice.decode(await self._call(link, Procedure.ADVISE, b""))

    async def _say(self, link: int, report: Report) -> None:
        """Reports to the server. Its verdict changes nothing, nor does a lost connection."""
        with contextlib.suppress(RpcError, XdrError, TimeoutError):
            async with asyncio.timeout(_PATIENCE_S):
                await self._call(link, Procedure.REPORT, report.encode())

    async def _call(self, link: int, procedure: Procedure, arguments: bytes) -> Decoder:
        """Returns the results of a call. CallRefused: the server does not know this program."""
        message = encode_call(Call(0, PROGRAM, VERSION, procedure), arguments)
        decoder = Decoder(await self._send(link, message))
        reply = decode_reply(decoder)
        if not isinstance(reply, Accepted) or reply.status != AcceptStatus.SUCCESS:
            raise CallRefused("the server has no instructions")
        return decoder
