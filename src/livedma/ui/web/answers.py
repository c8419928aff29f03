# SPDX-License-Identifier: BSD-2-Clause
"""Answers to requests: JSON, and headers that keep browsers from unsafe use of it."""

from __future__ import annotations

from collections.abc import Mapping

import orjson
from aiohttp import web

__all__ = ["error", "harden", "json"]

_POLICY = "; ".join(
    (
        "default-src 'self'",
        "base-uri 'none'",
        "form-action 'none'",
        "frame-ancestors 'none'",
    )
)
_HEADERS = {
    "Content-Security-Policy": _POLICY,
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
    "Server": "livedma",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
}


def json(value: object, status: int = 200) -> web.Response:
    """Returns an answer; value may also be what orjson has already encoded."""
    body = value if isinstance(value, bytes) else orjson.dumps(value)
    return web.Response(body=body, status=status, content_type="application/json")


def error(status: int, text: str, headers: Mapping[str, str] | None = None) -> web.Response:
    ret = json({"error": text}, status)
    ret.headers.update(headers or {})
    return ret


async def harden(_: web.Request, response: web.StreamResponse) -> None:
    """Adds headers to every answer; a signal of aiohttp."""
    response.headers.update(_HEADERS)
    response.headers.setdefault("Cache-Control", "no-store")
