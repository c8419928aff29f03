# SPDX-License-Identifier: BSD-2-Clause
"""Serves the paths of the page, within the bounds that hold for each request."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from aiohttp import hdrs, web

from livedma.control.diagnose.why import why
from livedma.control.running import Controlled
from livedma.errors import LivedmaError
from livedma.ui.web.actions import Actions
from livedma.ui.web.answers import error, harden, json
from livedma.ui.web.checks import Checks
from livedma.ui.web.files import Files
from livedma.ui.web.hub import Hub
from livedma.ui.web.stream import Stream

__all__ = ["Limits", "Metrics", "Page", "Threads"]

_BODY_MOST = 4 << 10
_FIRST_S = 5.0  # for the first frame
_STALE_S = 10.0
_log = logging.getLogger("livedma.web")
_Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]

#: From an Accept header to a body and its Content-Type.
Metrics = Callable[[str], tuple[bytes, str]]


@dataclass(frozen=True, slots=True)
class Limits:
    """Bounds what a client may take. idle_s: for all headers of a request to come. request_s: for
    its body to come, and for the client to take the answer. stuck_s: how long a reader of the
    stream may take nothing."""

    connections: int = 256
    streams: int = 64
    idle_s: float = 15.0
    request_s: float = 30.0
    stuck_s: float = 30.0
    keep_alive_s: float = 15.0


class Threads:
    """Runs slow work in threads; each kind has one, which does one thing after the other."""

    def __init__(self) -> None:
        self.acting = ThreadPoolExecutor(1, "livedma-web-do")
        self.measuring = ThreadPoolExecutor(1, "livedma-web-metrics")

    def close(self) -> None:
        for one in (self.acting, self.measuring):
            one.shutdown(wait=False, cancel_futures=True)


class Page:
    """Serves the page of one server."""

    def __init__(
        self,
        it: Controlled,
        hub: Hub,
        checks: Checks,
        threads: Threads,
        limits: Limits,
        metrics: Metrics | None = None,
    ) -> None:
        self._it = it
        self._hub = hub
        self._checks = checks
        self._threads = threads
        self._limits = limits
        self._metrics = metrics
        self._began_s = time.monotonic()
        self._stream = Stream(
            hub, limits.streams, keep_alive_s=limits.keep_alive_s, stuck_s=limits.stuck_s
        )

    def application(self) -> web.Application:
        ret = web.Application(client_max_size=_BODY_MOST, middlewares=[self._bound])
        ret.on_response_prepare.append(harden)
        files, actions = Files(), Actions(self._it.by_hand, self._threads.acting)
        ret.add_routes(
            [
                web.get("/", files.index),
                web.get("/static/{name:.+}", files.handle),
                web.get("/stream", self._stream.handle, allow_head=False),
                web.get("/frame", self._frame),
                web.get("/why", self._why),
                web.get("/healthz", self._healthz),
                web.post("/do/{name}", actions.handle),
            ]
        )
        if self._metrics is not None:
            ret.add_routes([web.get("/metrics", self._measured)])
        return ret

    @web.middleware
    async def _bound(self, request: web.Request, handler: _Handler) -> web.StreamResponse:
        """Answers and sends every request within bounds: no client is waited for forever."""
        if request.path == "/stream":  # which has bounds of its own
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

    async def _frame(self, _: web.Request) -> web.Response:
        if await self._hub.frame(_FIRST_S) is None:
            return error(503, "the server has not seen anything yet: ask again")
        return json(self._hub.frame_json())

    async def _why(self, request: web.Request) -> web.Response:
        view = self._it.controller.view()
        if view is None:
            return error(503, "the server has not seen anything yet: ask again")
        try:
            found = why(view.snapshot, view.diagnoses, request.query.get("session"))
        except LivedmaError as unknown:
            return error(404, str(unknown))
        return json(found)

    async def _healthz(self, _: web.Request) -> web.Response:
        """Says whether the controller still looks; without that a supervisor restarts it."""
        view = self._it.controller.view()
        last_s = self._began_s if view is None else view.snapshot.at_s
        silent_s = time.monotonic() - last_s
        if silent_s > _STALE_S:
            return error(503, f"nothing was seen for {silent_s:.0f} s")
        return json({"ok": "the controller watches the server"})

    async def _measured(self, request: web.Request) -> web.Response:
        assert self._metrics is not None
        accept = request.headers.get(hdrs.ACCEPT, "")
        loop = asyncio.get_running_loop()
        body, kind = await loop.run_in_executor(self._threads.measuring, self._metrics, accept)
        return web.Response(body=body, headers={hdrs.CONTENT_TYPE: kind})
