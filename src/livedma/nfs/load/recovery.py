# SPDX-License-Identifier: BSD-2-Clause
"""Recovers when the server restarts or a connection is cut: the run pauses, and goes on.

Connections are made again, the client gets its state back, and each session goes on as it was or,
if the server has forgotten it, as another one (`livedma.nfs.load.sessions`).
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from livedma._native.load import Load
from livedma.errors import LivedmaError
from livedma.nfs.client.connection import Backoff
from livedma.nfs.load.control import Control
from livedma.nfs.load.places import Places
from livedma.nfs.load.sessions import Sessions
from livedma.nfs.numbers import NfsError

__all__ = ["Recovery"]

_TRY_S = 3.0  # for one connection
_ATTEMPT_S = 30.0  # for all connections and all sessions
_PAUSE_S, _PAUSE_MOST_S = 0.1, 1.0
_LOOK_S = 0.005
_S = 1e-9


class Recovery:
    """Runs beside the load. gaps_s: the lengths of past times without an answer.

    words: why the run cannot go on, or nothing.
    """

    def __init__(
        self,
        load: Load,
        places: Places,
        sessions: Sessions,
        control: Control,
        *,
        moving: asyncio.Lock,
        watch: Callable[[int], None],
        give_up: Callable[[], None],
        patience_s: float,
    ) -> None:
        """Prepares to recover connections. moving: held while sessions move between connections.
        watch: is called with each new connection. give_up: is called if the server is away for
        longer than patience_s."""
        self._load, self._places = load, places
        self._sessions, self._control = sessions, control
        self._moving, self._watch = moving, watch
        self._give_up, self._patience_s = give_up, patience_s
        self._ignored: set[int] = set()  # connections whose sessions have all found another one
        self._since_ns: int | None = None
        self._restored_ns = 0
        self._why = ""
        self.gaps_s: list[float] = []
        self.words = ""

    @property
    def why(self) -> str:
        """Returns why the last attempt failed, if connections were lost and are not back."""
        return self.words or (self._why if self._since_ns is not None else "")

    def away_s(self, now_ns: int) -> float:
        """Returns how long there has been no answer, if a connection was lost and is not back."""
        self._settle()
        return 0.0 if self._since_ns is None else max(now_ns - self._since_ns, 1) * _S

    def _settle(self) -> None:
        """Ends the gap if sessions that were got back have been answered meanwhile."""
        heard_ns = self._load.heard_ns()
        if self._since_ns is not None and self._restored_ns and heard_ns > self._restored_ns:
            self.gaps_s.append((heard_ns - self._since_ns) * _S)
            self._since_ns = None

    async def run(self, stirred: asyncio.Event) -> None:
        """Recovers each time. stirred: is set when a connection may have broken."""
        while True:
            await stirred.wait()
            stirred.clear()
            if not self._is_needed():
                continue
            self._since_ns, self._restored_ns = self._load.heard_ns() or time.monotonic_ns(), 0
            self._why = "it does not answer"
            if not await self._go_on_trying():
                self._give_up()
                return
            self._since_ns = None

    def _is_needed(self) -> bool:
        """Returns whether the connection needs recovery: not if its sessions have all moved to
        another."""
        broken = {link for link in self._places.connections if self._load.link_error(link)}
        if self._sessions.lost or (broken and self._places.is_lost):
            return True
        self._ignored |= broken
        return False

    async def _go_on_trying(self) -> bool:
        """Tries until sessions are answered again; False if the server does not come back."""
        backoff = Backoff(self._patience_s, _PAUSE_S, _PAUSE_MOST_S)
        connecting = asyncio.create_task(self._reconnect(), name="reconnect")
        try:
            while True:
                while self._places.is_lost and not backoff.is_over:
                    await asyncio.sleep(_LOOK_S)
                if not self._places.is_lost and await self._tries():
                    return True
                if backoff.is_over:
                    limit_s = f"{self._patience_s:g} s"
                    self.words = f"the server did not come back in {limit_s}: {self._why}"
                    return False
                await backoff.wait()
        finally:
            connecting.cancel()
            await asyncio.gather(connecting, return_exceptions=True)

    async def _tries(self) -> bool:
        with self._noting():
            async with asyncio.timeout(_ATTEMPT_S):
                await self._restore()
            return await self._is_answered()
        return False

    @contextmanager
    def _noting(self) -> Iterator[None]:
        """Notes the error of a server that is away or coming back; the caller tries again."""
        try:
            yield
        except TimeoutError:
            pass  # The reason is known; or it is that the server does not answer.
        except (LivedmaError, NfsError, OSError) as error:
            self._why = str(error)

    async def _reconnect(self) -> None:
        """Replaces connections that are lost, also those that are lost again: getting sessions back
        waits for them.
        """
        while True:
            for link in [*self._places.connections]:
                if self._load.link_error(link) and link not in self._ignored:
                    with self._noting():
                        async with self._moving:
                            if link in self._places.connections:
                                self._watch(await self._places.replace(link, _TRY_S))
            await asyncio.sleep(_PAUSE_S)

    async def _restore(self) -> None:
        async with self._control.use() as client:
            await client.through.compound()  # this call gets back what a restart took
            await self._sessions.restore(client)
        self._restored_ns = time.monotonic_ns()

    async def _is_answered(self) -> bool:
        """Returns whether an operation was answered before the connection is lost again."""
        while True:
            self._settle()
            if self._since_ns is None or not self._load.places():  # None: no session asks yet
                return True
            if self._is_needed():
                self._restored_ns = 0
                return False
            await asyncio.sleep(_LOOK_S)
