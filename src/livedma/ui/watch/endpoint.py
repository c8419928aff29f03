# SPDX-License-Identifier: BSD-2-Clause
"""Answers at /metrics of a socket, in a thread of its own."""

from __future__ import annotations

import asyncio
import contextlib
import secrets
import socket
import threading
from collections.abc import Callable
from typing import Self

from aiohttp import hdrs, web

from livedma.errors import LivedmaError
from livedma.ui.web.answers import harden
from livedma.ui.web.bounds import Bounds, Limits, Refusal, runner
from livedma.ui.web.checks import Checks

__all__ = ["Endpoint"]

_START_S = 20.0
_END_S = 10.0
_BACKLOG = 32
_ACCEPTED_S = 0.05  # asyncio loses a connection that it had only just accepted when it closes
_PATH = "/metrics"

#: From an Accept header to a body and its Content-Type.
Render = Callable[[str], tuple[bytes, str]]


class Endpoint:
    """Serves the metrics until it is closed. It is a context manager. sock: it listens, and is
    closed with this.
    """

    def __init__(self, sock: socket.socket, render: Render, limits: Limits | None = None) -> None:
        self._sock, self._render = sock, render
        self._limits = limits or Limits(connections=32)
        self._ready = threading.Event()
        self._error: BaseException | None = None
        self._loop: asyncio.AbstractEventLoop
        self._stop: asyncio.Event
        self._server: web.Server
        self._thread = threading.Thread(target=self._run, name="livedma-metrics", daemon=True)
        self._thread.start()
        if not self._ready.wait(_START_S) or self._error is not None:
            raise LivedmaError(f"metrics cannot be served: {self._error or 'it hangs'}")

    def _run(self) -> None:
        try:
            asyncio.run(self._serve())
        except Exception as error:
            self._error = error
        finally:
            self._ready.set()
            self._sock.close()

    async def _serve(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._stop = asyncio.Event()
        # Nothing can be changed here, so there is a token that nobody knows.
        bounds = Bounds(Checks(secrets.token_urlsafe()), self._limits)
        application = web.Application(middlewares=[bounds.middleware])
        application.on_response_prepare.append(harden)
        application.add_routes([web.get(_PATH, self._measured)])
        started = runner(application, self._limits)
        await started.setup()
        assert started.server is not None
        self._server = started.server
        server = await self._loop.create_server(self._protocol, sock=self._sock, backlog=_BACKLOG)
        self._ready.set()
        try:
            await self._stop.wait()
        finally:
            await asyncio.sleep(_ACCEPTED_S)
            server.close()
            transports = [one.transport for one in self._server.connections]
            await started.cleanup()
            for transport in transports:
                if transport is not None:
                    transport.abort()
            await asyncio.sleep(0)

    def _protocol(self) -> asyncio.Protocol:
        if len(self._server.connections) >= self._limits.connections:
            return Refusal()
        return self._server()

    async def _measured(self, request: web.Request) -> web.Response:
        body, kind = self._render(request.headers.get(hdrs.ACCEPT, ""))
        return web.Response(body=body, headers={hdrs.CONTENT_TYPE: kind})

    def close(self) -> None:
        """Ends within seconds, whatever clients do."""
        with contextlib.suppress(RuntimeError):  # the loop has ended
            self._loop.call_soon_threadsafe(self._stop.set)
        self._thread.join(_END_S)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
