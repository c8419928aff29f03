# SPDX-License-Identifier: BSD-2-Clause
"""Serves the paths of the page, within the bounds that hold for each request."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

from aiohttp import hdrs, web

from livedma.control.diagnose.why import why
from livedma.control.running import Controlled
from livedma.errors import LivedmaError
from livedma.ui.web.actions import Actions
from livedma.ui.web.answers import error, harden, json
from livedma.ui.web.bounds import Bounds, Limits
from livedma.ui.web.checks import Checks
from livedma.ui.web.files import Files
from livedma.ui.web.hub import Hub
from livedma.ui.web.stream import Stream

__all__ = ["Metrics", "Page", "Threads"]

_BODY_MOST = 4 << 10
_STREAM = "/stream"
_FIRST_S = 5.0  # for the first frame
_STALE_S = 10.0

#: From an Accept header to a body and its Content-Type.
Metrics = Callable[[str], tuple[bytes, str]]


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
        self._bounds = Bounds(checks, limits, unbounded=_STREAM)
        self._threads = threads
        self._metrics = metrics
        self._began_s = time.monotonic()
        self._stream = Stream(
            hub, limits.streams, keep_alive_s=limits.keep_alive_s, stuck_s=limits.stuck_s
        )

    def application(self) -> web.Application:
        ret = web.Application(client_max_size=_BODY_MOST, middlewares=[self._bounds.middleware])
        ret.on_response_prepare.append(harden)
        files, actions = Files(), Actions(self._it.by_hand, self._threads.acting)
        ret.add_routes(
            [
                web.get("/", files.index),
                web.get("/static/{name:.+}", files.handle),
                web.get(_STREAM, self._stream.handle, allow_head=False),
                web.get("/frame", self._frame),
                web.get("/why", self._why),
                web.get("/healthz", self._healthz),
                web.post("/do/{name}", actions.handle),
            ]
        )
        if self._metrics is not None:
            ret.add_routes([web.get("/metrics", self._measured)])
        return ret

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
