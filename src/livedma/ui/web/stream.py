# SPDX-License-Identifier: BSD-2-Clause
"""Serves GET /stream: a server's present state, then frames and decisions as they come."""

from __future__ import annotations

import asyncio
import socket

from aiohttp import web

from livedma.ui import sse
from livedma.ui.web.answers import error
from livedma.ui.web.hub import Hub

__all__ = ["Stream"]

_KEEP_ALIVE_S = 15.0
_STUCK_S = 30.0  # without anything that the reader takes
_UNSENT_MOST = 16 << 10
_RETRY = b"retry: 2000\n"


class Stream:
    """Serves the readers. most: the most readers at a time."""

    def __init__(
        self,
        hub: Hub,
        most: int,
        *,
        keep_alive_s: float = _KEEP_ALIVE_S,
        stuck_s: float = _STUCK_S,
    ) -> None:
        self._hub = hub
        self._most = most
        self._keep_alive_s = keep_alive_s
        self._stuck_s = stuck_s

    async def handle(self, request: web.Request) -> web.StreamResponse:
        if self._hub.readers >= self._most:
            return error(503, f"{self._most} read the stream already", {"Retry-After": "10"})
        response = web.StreamResponse(
            # nginx would hold small messages back.
            headers={"Content-Type": sse.TYPE, "X-Accel-Buffering": "no"}
        )
        _keep_little(request.transport)
        try:
            with self._hub.reader() as reader:
                await response.prepare(request)
                await self._send(request, response, _RETRY + reader.hello())
                while not self._hub.is_closed:
                    chunk = sse.KEEP_ALIVE
                    if await _comes(reader.news, self._keep_alive_s):
                        chunk = reader.take()
                    await self._send(request, response, chunk)
        except TimeoutError:
            if request.transport is not None:
                request.transport.abort()  # a close would wait for it
        return response

    async def _send(self, request: web.Request, response: web.StreamResponse, chunk: bytes) -> None:
        """Returns when the system has all of it: until then, newer frames replace each other."""
        async with asyncio.timeout(self._stuck_s):
            if chunk:
                await response.write(chunk)
            await request.writer.drain()


async def _comes(news: asyncio.Event, wait_s: float) -> bool:
    try:
        async with asyncio.timeout(wait_s):
            await news.wait()
    except TimeoutError:
        return False
    return True


def _keep_little(transport: asyncio.Transport | None) -> None:
    """Keeps the host's buffers small: what waits in them would be old when it arrives."""
    if transport is None:
        return
    transport.set_write_buffer_limits(0)
    sock = transport.get_extra_info("socket")
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NOTSENT_LOWAT, _UNSENT_MOST)
