# SPDX-License-Identifier: BSD-2-Clause
"""Checks the origin of a request: another site's page in a user's browser may not send any."""

from __future__ import annotations

import ipaddress
import re
import socket
from collections.abc import Iterable

from aiohttp import hdrs, web

from livedma.ui.web.answers import error
from livedma.ui.web.token import is_same

__all__ = ["Checks"]

_HOST = re.compile(r"(\[[0-9a-fA-F:.]+\]|[\w.-]+)(?::\d{1,5})?", re.ASCII)


class Checks:
    """Refuses requests of other sites. names: names by which the page may be asked for, besides
    this host's own and any address."""

    def __init__(self, token: str, names: Iterable[str] = ()) -> None:
        self._token = token
        # Not the name in the DNS: to ask for it may take seconds, and other hosts may answer.
        own = (socket.gethostname(), socket.gethostname().partition(".")[0])
        self._names = {"localhost", *(name.lower().rstrip(".") for name in (*own, *names))}

    def refusal(self, request: web.Request) -> web.Response | None:
        """Returns the answer to a request that is refused; None: it is allowed."""
        host = request.headers.get(hdrs.HOST, "")
        if not self._is_known(host):
            # A page of another name, whose address was made to be this one (DNS rebinding).
            return error(
                421, f"this page is not called {host!r}: ask by address, or see --web-name"
            )
        if _is_foreign(request, host):
            return error(403, "another site's page may not use this one")
        if request.method not in (hdrs.METH_GET, hdrs.METH_HEAD) and not self._is_authorized(
            request
        ):
            return error(401, "this needs the token of the server", {"WWW-Authenticate": "Bearer"})
        return None

    def _is_known(self, host: str) -> bool:
        match = _HOST.fullmatch(host)
        if match is None:
            return False
        name = match[1].lower().rstrip(".")
        return name in self._names or _is_address(name.strip("[]"))

    def _is_authorized(self, request: web.Request) -> bool:
        scheme, _, given = request.headers.get(hdrs.AUTHORIZATION, "").partition(" ")
        return scheme.lower() == "bearer" and is_same(given.strip(), self._token)


def _is_address(text: str) -> bool:
    try:
        ipaddress.ip_address(text)
    except ValueError:
        return False
    return True


def _is_foreign(request: web.Request, host: str) -> bool:
    """Returns whether another site's page sent the request. Browsers report it themselves; older
    ones, and those without TLS, only by the origin."""
    is_reading = request.method in (hdrs.METH_GET, hdrs.METH_HEAD)
    site = request.headers.get("Sec-Fetch-Site", "same-origin")
    # A typed address or a followed link: a page to look at, which no foreign script can read.
    is_visit = is_reading and request.headers.get("Sec-Fetch-Mode") == "navigate"
    if site != "same-origin" and not is_visit and not (is_reading and site == "none"):
        return True
    origins = request.headers.getall(hdrs.ORIGIN, [])
    own = (f"http://{host}".lower(), f"https://{host}".lower())
    return any(origin.lower() not in own for origin in origins)
