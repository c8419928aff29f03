# SPDX-License-Identifier: BSD-2-Clause
"""Holds the page's own files, read once: no request names a file of this host."""

from __future__ import annotations

import hashlib
from pathlib import Path

from aiohttp import hdrs, web

from livedma.ui.web.answers import error

__all__ = ["Files"]

_INDEX = "index.html"
# Not from the host's own list: browsers run no script that has another type.
_TYPES = {
    ".html": "text/html; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".json": "application/json",
    ".webmanifest": "application/manifest+json",
    ".svg": "image/svg+xml",
    ".png": "image/png",
    ".ico": "image/x-icon",
    ".woff2": "font/woff2",
}


class Files:
    def __init__(self, directory: Path = Path(__file__).parent / "static") -> None:
        self._files = {
            path.relative_to(directory).as_posix(): _File(path)
            for path in directory.rglob("*")
            if path.is_file()
        }

    async def index(self, request: web.Request) -> web.Response:
        return self._answer(request, _INDEX)

    async def handle(self, request: web.Request) -> web.Response:
        return self._answer(request, request.match_info["name"])

    def _answer(self, request: web.Request, name: str) -> web.Response:
        file = self._files.get(name)
        if file is None:
            return error(404, "there is no such file")
        if file.tag in request.headers.get(hdrs.IF_NONE_MATCH, ""):
            return web.Response(status=304, headers=file.headers)
        return web.Response(body=file.body, headers={**file.headers, hdrs.CONTENT_TYPE: file.type})


class _File:
    def __init__(self, path: Path) -> None:
        self.body = path.read_bytes()
        self.tag = f'"{hashlib.sha256(self.body).hexdigest()[:16]}"'
        self.type = _TYPES.get(path.suffix, "application/octet-stream")
        # A server of another version may come next: browsers ask if the file is the same.
        self.headers = {hdrs.ETAG: self.tag, hdrs.CACHE_CONTROL: "no-cache"}
