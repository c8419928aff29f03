# SPDX-License-Identifier: BSD-2-Clause
"""Bounds what an HTTP server of livedma does for its clients, whatever they do."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from aiohttp import hdrs, web

from livedma.ui.web.answers import error
from livedma.ui.web.checks import Checks

__all__ = ["Bounds", "Limits", "Refusal", "runner"]

_log = logging.getLogger("livedma.web")
_END_S = 1.0  # for requests that are under way; after that they are cut off
_LINE_MOST = 4 << 10
_FIELD_MOST = 16 << 10  # browsers also send the cookies of other servers at localhost
_HEADERS_MOST = 64
_LINGER_S = 1.0  # for a body that is not read
_Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]

# For mistakes of clients: the answer tells the client, and the log need not.
_quiet = logging.getLogger("livedma.web.http")
_quiet.addHandler(logging.NullHandler())
_quiet.propagate = False


@dataclass(frozen=True, slots=True)
class Limits:
    """Bounds times and sizes. idle_s: for all headers of a request to come. request_s: for its body
    to come, and for the client to take the answer. stuck_s: how long a reader of the stream may
    take nothing.
    """

    connections: int = 256
    streams: int = 64
    idle_s: float = 15.0
    request_s: float = 30.0
    stuck_s: float = 30.0
    keep_alive_s: float = 15.0


class Bounds:
    """Checks each request, and bounds its time. unbounded: a path with bounds of its own."""

    def __init__(self, checks: Checks, limits: Limits, unbounded: str = "") -> None:
        self._checks, self._limits, self._unbounded = checks, limits, unbounded

    @web.middleware
    async def middleware(self, request: web.Request, handler: _Handler) -> web.StreamResponse:
        """Answers and sends every request within bounds: no client is waited for forever."""
        if request.path == self._unbounded:
            return await self._checked(request, handler)
        response: web.StreamResponse = error(408, "the request took too long")
        try:
            async with asyncio.timeout(self._limits.request_s):
                response = await self._checked(request, handler)
                await response.prepare(request)
                await response.write_eof()
        except TimeoutError:
            if request.transport is not None:
                request.transport.abort()
        return response

    async def _checked(self, request: web.Request, handler: _Handler) -> web.StreamResponse:
        refusal = self._checks.refusal(request)
        if refusal is not None:
            return refusal
        try:
            return await handler(request)
        except web.HTTPException as found:  # aiohttp's own: no such path, too long a body, …
            allowed = found.headers.get(hdrs.ALLOW)
            return error(found.status, found.reason, {hdrs.ALLOW: allowed} if allowed else None)
        except (TimeoutError, ConnectionError):
            raise
        except Exception:
            _log.exception("%s %s failed", request.method, request.path)
            return error(500, "this failed here: the server's log says how")


def runner(application: web.Application, limits: Limits) -> web.AppRunner:
    """Returns what runs an application within these limits."""
    return web.AppRunner(
        application,
        access_log=None,
        logger=_quiet,
        shutdown_timeout=_END_S,
        handler_cancellation=True,
        auto_decompress=False,  # a small body may become a large one
        keepalive_timeout=limits.idle_s,  # it also covers headers that do not come
        lingering_time=_LINGER_S,
        max_line_size=_LINE_MOST,
        max_field_size=_FIELD_MOST,
        max_headers=_HEADERS_MOST,
    )


class Refusal(asyncio.Protocol):
    """Answers a connection when there are too many."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        transport.write(
            b"HTTP/1.1 503 Service Unavailable\r\nRetry-After: 10\r\nContent-Length: 0\r\n"
            b"Connection: close\r\n\r\n"
        )
        transport.close()
