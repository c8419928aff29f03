# SPDX-License-Identifier: BSD-2-Clause
"""Makes a connection again when it is lost, and sends COMPOUNDs over it."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Any

from livedma.nfs.client.errors import BadReply
from livedma.nfs.client.operation import (
    Operation,
    Outcome,
    ReplyDecoder,
    decode_results,
    encode_compound,
    reply_room,
)
from livedma.nfs.numbers import PROGRAM, VERSION, Procedure
from livedma.rpc.client import (
    Answer,
    CallRefused,
    ConnectionLost,
    ConnectionRefusedByServer,
    Transport,
)
from livedma.rpc.message import (
    Accepted,
    AcceptStatus,
    AuthSys,
    Call,
    OpaqueAuth,
    decode_reply,
    encode_call,
)
from livedma.rpc.refusal import raise_if_denied
from livedma.rpc.xdr import XdrError

__all__ = ["Backoff", "Connection", "Terms"]


@dataclass(frozen=True, slots=True)
class Terms:
    """Holds a client's minor version and credential, and how long it waits.

    call_s: a call that is not answered in that time means that the connection is dead. patience_s:
    how long to try again, with a server that is away, busy or in its grace period.
    """

    minor: int
    credential: AuthSys | OpaqueAuth
    call_s: float = 60.0
    patience_s: float = 180.0


class Backoff:
    """Waits that grow, up to a moment at which patience ends."""

    def __init__(self, patience_s: float, first_s: float = 0.02, most_s: float = 2.0) -> None:
        self._end_s = asyncio.get_running_loop().time() + patience_s
        self._next_s, self._most_s = first_s, most_s

    @property
    def is_over(self) -> bool:
        return asyncio.get_running_loop().time() >= self._end_s

    async def wait(self) -> None:
        """Waits once more, with a random part: waiting callers do not come back all at once."""
        left_s = self._end_s - asyncio.get_running_loop().time()
        await asyncio.sleep(max(0.0, min(left_s, self._next_s * random.uniform(0.75, 1.25))))
        self._next_s = min(2 * self._next_s, self._most_s)


class Connection:
    """Connects to one address; any number of sessions use the connection."""

    def __init__(self, connect: Callable[[], Awaitable[Transport]], name: str) -> None:
        self._connect = connect
        self.name = name
        self._transport: Transport | None = None
        self._making = asyncio.Lock()
        self._is_closed = False
        self.in_flight = 0  #: calls without a reply
        self.made = 0  #: how often it was connected

    def __repr__(self) -> str:
        return f"<Connection to {self.name}>"

    @property
    def is_open(self) -> bool:
        return self._transport is not None and self._transport.is_open

    @property
    def transport(self) -> Transport | None:
        """Returns the transport that carries it now, or None."""
        return self._transport if self.is_open else None

    async def ensure(self, backoff: Backoff) -> Transport:
        """Returns its transport, made anew if need be. Raises `ConnectionLost` when patience is
        over, or `ConnectionRefusedByServer`.
        """
        async with self._making:
            while True:
                if self._is_closed:
                    self.close()  # a transport may have come since
                    raise ConnectionLost(f"the connection to {self.name} was closed")
                if self._transport is not None and self._transport.is_open:
                    return self._transport
                try:
                    self._transport = await self._connect()
                except (ConnectionLost, ConnectionRefusedByServer) as error:
                    if backoff.is_over or getattr(error, "is_lasting", False):
                        raise
                    await backoff.wait()
                else:
                    self.made += 1

    async def perform(
        self,
        transport: Transport,
        terms: Terms,
        operations: Sequence[Operation[Any]],
        path: str = "",
        *,
        only_first: bool = False,
    ) -> Outcome:
        """Sends one COMPOUND, once. only_first: the reply may be one to another COMPOUND that began
        with the same operation.

        Raises `ConnectionLost`, `CallRefused`, or `BadReply` for a reply that makes no sense.
        """
        arguments, data, position = encode_compound(terms.minor, operations)
        call = Call(0, PROGRAM, VERSION, Procedure.COMPOUND, terms.credential)
        message = encode_call(call, arguments)
        into = next((one.into for one in operations if one.into is not None), None)
        self.in_flight += 1
        try:
            async with asyncio.timeout(terms.call_s):
                answer = await transport.call(
                    message,
                    send_data=data,
                    position=len(message) - len(arguments) + position if data is not None else 0,
                    receive_into=into,
                    reply_room=reply_room(operations),
                )
        except TimeoutError:
            # A call must not be repeated where it may still be answered (section 2.9.2).
            transport.close()
            raise ConnectionLost(f"{self.name} did not answer in {terms.call_s:g} s") from None
        finally:
            self.in_flight -= 1
        try:
            return _decode(answer, operations, path, only_first)
        except XdrError as wrong:
            raise BadReply(f"{self.name} sent no sensible reply: {wrong}") from None

    def close(self) -> None:
        self._is_closed = True
        if self._transport is not None:
            self._transport.close()


def _decode(
    answer: Answer, operations: Sequence[Operation[Any]], path: str, only_first: bool
) -> Outcome:
    decoder = ReplyDecoder(answer.message)
    reply = decode_reply(decoder)
    raise_if_denied(reply)
    if not isinstance(reply, Accepted):
        why = f"credential refused ({reply.auth_status})" if reply.auth_status else "other version"
        raise CallRefused(f"call denied: {reply.status.name}, {why}")
    if reply.status != AcceptStatus.SUCCESS:
        raise CallRefused(f"call not executed: {reply.status.name}")
    decoder.placed = answer.placed
    return decode_results(decoder, operations, path, only_first=only_first)
