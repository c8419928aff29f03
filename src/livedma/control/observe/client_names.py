# SPDX-License-Identifier: BSD-2-Clause
"""Cleans the names that clients give themselves, which come from the wire, so that they can be
shown.
"""

from __future__ import annotations

import re
from functools import lru_cache

from livedma.nfs.server.state.sessions import Session

__all__ = ["NAME_MOST", "Names", "name_of"]

NAME_MOST = 64  # characters
_OWNER_MOST = 256  # bytes that are read
# Linux: "Linux NFSv4.2 HOST", with perhaps a unique string and a slash before HOST. The client of
# livedma: "livedma HOST PID", and random digits that make it unique.
_HOST = re.compile(r"(?:Linux NFSv4\.\d+ (?:.*/)?|livedma )(\S+)")


@lru_cache(1024)
def name_of(owner: bytes) -> str:
    """Returns the host's name in an owner string (co_ownerid of EXCHANGE_ID) where its form is
    known, else all of the string that can be printed.
    """
    text = owner[:_OWNER_MOST].decode(errors="replace")
    found = _HOST.match(text)
    shown = found.group(1) if found else text
    plain = "".join(
        one for one in shown if one.isprintable() and one != "\N{REPLACEMENT CHARACTER}"
    )
    plain = " ".join(plain.split())
    return plain if len(plain) <= NAME_MOST else plain[: NAME_MOST - 1] + "…"


class Names:
    """Collects the names of each connection's clients from sessions."""

    def __init__(self) -> None:
        self._names: dict[int, dict[str, None]] = {}

    def add(self, session: Session) -> None:
        name = name_of(session.client.owner)
        if not name:
            return
        for number in tuple(session.connections):
            self._names.setdefault(number, {})[name] = None

    def of(self, connection: int) -> str:
        """Returns a connection's name. Empty: it has no session, or its client has no name."""
        found = self._names.get(connection)
        if not found:
            return ""
        first = next(iter(found))
        return first if len(found) == 1 else f"{first} and {len(found) - 1} more"
