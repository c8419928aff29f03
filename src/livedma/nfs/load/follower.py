"""Does what the server wants of each connection (`livedma.nfs.guidance_protocol`), while load runs.

Sessions move one by one: each is bound to the new connection by BIND_CONN_TO_SESSION, then sends
its next calls there, while those that are out end on the old one. That is closed when the last
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
    Procedure,
    Progress,
    Report,
    Wish,
)
from livedma.nfs.load.places import Places
from livedma.rpc.client import CallRefused, RpcError
from livedma.rpc.message import Accepted, AcceptStatus, Call, decode_reply, encode_call
from livedma.rpc.xdr import Decoder, XdrError

__all__ = ["Follower"]

_ASK_LEAST_S, _ASK_MOST_S = 0.02, 5.0  # whatever the server says
_AT_ONCE = 8  # sessions that are bound
_LOOK_S = 0.005
_PATIENCE_S = 15.0

Send = Callable[[int, bytes], Awaitable[bytes]]


class Follower:
    """Follows from `start` until `stop`. send: makes a call on a link of the load."""

    def __init__(self, load: Load, send: Send, places: Places, client: Client) -> None:
        self._load, self._send, self._places, self._client = load, send, places, client
        self._tasks: set[asyncio.Task[None]] = set()
        self._moving = asyncio.Lock()  # one connection after the other

    def start(self) -> None:
        for link in self._places.connections:
            self._watch(link)

    async def stop(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def _watch(self, link: int) -> None:
        task = asyncio.create_task(self._follow(link), name=f"guidance of link {link}")
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _follow(self, link: int) -> None:
        """Until the connection ends, or its server says that it has no wishes."""
        done = 0
        with contextlib.suppress(RpcError, XdrError):
            while True:
                advice = await self._ask(link)
                if advice.wish != Wish.STAY and advice.serial != done:
                    done = advice.serial
                    async with self._moving:
                        if await self._obey(link, advice):
                            return
                wait_s = advice.ask_again_ms / 1000
                await asyncio.sleep(min(max(wait_s, _ASK_LEAST_S), _ASK_MOST_S))

    async def _obey(self, link: int, advice: Advice) -> bool:
        """Whether the connection is no more."""
        try:
            new = await self._places.open()
        except (LivedmaError, OSError, MemoryError) as error:  # also without memory for it here
            await self._say(link, Report(advice.serial, Progress.REFUSED, words=str(error)))
            return False
        self._watch(new)
        self._places.lead_to(new)
        await self._say(link, Report(advice.serial, Progress.OPENED))
        return advice.wish == Wish.MIGRATE and await self._migrate(link, new, advice.serial)

    async def _migrate(self, old: int, new: int, serial: int) -> bool:
        moved = 0
        session, connections = self._client.through, self._places.connections
        has_client = connections[old] in session.connections  # by which files are opened
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
                if not waiting:  # one is being made
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
        """What the server makes of it changes nothing; nor does it if the connection is lost."""
        with contextlib.suppress(RpcError, XdrError, TimeoutError):
            async with asyncio.timeout(_PATIENCE_S):
                await self._call(link, Procedure.REPORT, report.encode())

    async def _call(self, link: int, procedure: Procedure, arguments: bytes) -> Decoder:
        """Its results. CallRefused: the server does not know such things."""
        message = encode_call(Call(0, PROGRAM, VERSION, procedure), arguments)
        decoder = Decoder(await self._send(link, message))
        reply = decode_reply(decoder)
        if not isinstance(reply, Accepted) or reply.status != AcceptStatus.SUCCESS:
            raise CallRefused("the server has no wishes")
        return decoder
