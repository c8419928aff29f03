# SPDX-License-Identifier: BSD-2-Clause
"""Runs the page beside a server: in a thread with an event loop of its own, for the server's
lifetime.

with Web(controlled, socket, token): ...
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import socket
import threading
from collections.abc import Callable, Iterable
from functools import partial
from typing import Self

from aiohttp import web

from livedma.control.events import Event
from livedma.control.running import Controlled
from livedma.errors import LivedmaError
from livedma.ui.web.app import Metrics, Page, Threads
from livedma.ui.web.bounds import Limits, Refusal, runner
from livedma.ui.web.checks import Checks
from livedma.ui.web.hub import Hub

__all__ = ["Limits", "Web"]

_log = logging.getLogger("livedma.web")

_START_S = 20.0
_THREAD_END_S = 10.0
_LOOK_S = 0.5
_BACKLOG = 128


class Web:
    """Runs the page. sock: it listens, and is closed with this. names: names by which the page may
    be asked for, besides addresses and this host's own."""

    def __init__(
        self,
        it: Controlled,
        sock: socket.socket,
        token: str,
        *,
        names: Iterable[str] = (),
        metrics: Metrics | None = None,
        limits: Limits | None = None,
    ) -> None:
        self._it = it
        self._sock = sock
        self._checks = Checks(token, names)
        self._metrics = metrics
        self._limits = limits or Limits()
        self._ready = threading.Event()
        self._stopped = threading.Event()
        self._error: BaseException | None = None
        self._loop: asyncio.AbstractEventLoop
        self._stop: asyncio.Event
        self._hub: Hub
        self._server: web.Server
        self._thread = threading.Thread(target=self._run, name="livedma-web", daemon=True)
        self._frames = threading.Thread(target=self._pump, name="livedma-web-feed", daemon=True)
        self._thread.start()
        if not self._ready.wait(_START_S) or self._error is not None:
            raise LivedmaError(f"the page did not start: {self._error or 'it hangs'}")
        self._frames.start()

    def _run(self) -> None:
        try:
            asyncio.run(self._serve())
        except Exception as error:
            self._error = error
            if self._ready.is_set():
                _log.exception("the page has ended")
        finally:
            self._ready.set()
            self._sock.close()

    async def _serve(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._stop = asyncio.Event()
        self._hub = Hub(self._it.feed)
        threads = Threads()
        page = Page(self._it, self._hub, self._checks, threads, self._limits, self._metrics)
        started = runner(page.application(), self._limits)
        await started.setup()
        assert started.server is not None
        self._server = started.server
        server = await self._loop.create_server(self._protocol, sock=self._sock, backlog=_BACKLOG)
        events = self._it.feed.events
        events.listeners = [*events.listeners, self._told]
        self._hub.events_came()
        self._ready.set()
        try:
            await self._stop.wait()
        finally:
            events.listeners = [one for one in events.listeners if one != self._told]
            server.close()
            self._hub.close()
            transports = [one.transport for one in self._server.connections]
            await started.cleanup()
            for transport in transports:
                if transport is not None:
                    transport.abort()  # data that a client does not take is dropped
            await asyncio.sleep(0)
            threads.close()

    def _protocol(self) -> asyncio.Protocol:
        """Makes the protocol for a new connection."""
        if len(self._server.connections) >= self._limits.connections:
            return Refusal()
        return self._server()

    def _told(self, _: Event) -> None:
        self._call(self._hub.events_came)

    def _pump(self) -> None:
        number = 0
        while not self._stopped.is_set():
            frame = self._it.feed.next(number, _LOOK_S)
            if frame is not None:
                number = frame.number
                self._call(partial(self._hub.see, frame))

    def _call(self, what: Callable[[], None]) -> None:
        with contextlib.suppress(RuntimeError):  # the loop has ended
            self._loop.call_soon_threadsafe(what)

    def close(self) -> None:
        """Ends within seconds, whatever clients do."""
        self._stopped.set()
        self._call(self._stop.set)
        self._thread.join(_THREAD_END_S)
        self._frames.join(_THREAD_END_S)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
