# SPDX-License-Identifier: BSD-2-Clause
"""Keeps the connections of a run, and which of them each session uses."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager

from livedma.nfs.client.connection import Connection
from livedma.nfs.load.links import Calls, RdmaLinks, TcpLinks
from livedma.rpc.client import ConnectionLost, Transport

__all__ = ["Places"]


class Places:
    """Knows where each session is. connections: the open ones, by link. sessions: ids, by their
    numbers in the load."""

    def __init__(self, links: RdmaLinks | TcpLinks, calls: Calls, address: str, port: int) -> None:
        self._links, self._calls = links, calls
        self._address, self._port = address, port
        self._load = links.load
        self._for_new: list[int] = []
        self._being_made: Counter[int] = Counter()
        self._all: list[int] = []
        self._broken: dict[int, int] = {}
        self._replacements: dict[
            int, int
        ] = {}  # from each broken connection to the one that replaced it
        self.connections: dict[int, Connection] = {}
        self.sessions: dict[int, bytes] = {}

    @property
    def opened(self) -> int:
        """Returns how many connections were opened."""
        return len(self._all)

    def add(self, link: int) -> None:
        """Adds an open connection; new sessions use it, too."""
        self.connections[link] = self._connection(link)
        self._all.append(link)
        self._for_new.append(link)

    async def open(self) -> int:
        """Opens another connection, which no session uses yet. Raises ConnectionLost."""
        link = await self._links.open(self._address, self._port)
        self.connections[link] = self._connection(link)
        self._all.append(link)
        return link

    async def replace(self, link: int, within_s: float) -> int:
        """Opens a connection in place of a broken one. ConnectionLost: it cannot be opened."""
        new = await self._links.open(self._address, self._port, within_s)
        self.connections[new] = self.connections.pop(link)
        self._replacements[link] = new
        self._all.append(new)
        self._for_new = [new if one == link else one for one in self._for_new]
        self._links.close_link(link)
        return new

    @property
    def replaced(self) -> int:
        """Returns how many connections were replaced."""
        return len(self._replacements)

    def _connection(self, first: int) -> Connection:
        async def connect() -> Transport:
            link = first
            while link in self._replacements:
                link = self._replacements[link]
            transport = self._links.transport(self._calls, link)
            if not transport.is_open:
                raise ConnectionLost(f"the connection with {self._address} was lost")
            return transport

        return Connection(connect, f"{self._address} port {self._port}")

    def lead_to(self, link: int) -> None:
        """Lets new sessions use this connection alone."""
        self._for_new = [link]

    @contextmanager
    def for_new(self, number: int) -> Iterator[int]:
        """Yields the link for a new session, and counts the session as being made meanwhile."""
        alive = [link for link in self._for_new if not self._load.link_error(link)]
        places = alive or [link for link in self.connections if not self._load.link_error(link)]
        if not places:
            raise ConnectionLost(f"the connection with {self._address} was lost")
        link = places[number % len(places)]
        self._being_made[link] += 1
        try:
            yield link
        finally:
            self._being_made[link] -= 1

    def is_empty(self, link: int) -> bool:
        """Returns whether the connection has no sessions, and none is being made on it."""
        return not self._being_made[link] and not self.on(link)

    def on(self, link: int) -> list[int]:
        """Returns the sessions that use a connection now, without those that have failed."""
        links = enumerate(self._load.places())
        return [number for number, its in links if its == link and number in self.sessions]

    def close(self, link: int) -> bool:
        """Ends a connection; False if a session or call still uses it."""
        error = self._load.link_error(link)
        if not self._links.close_link(link):
            return False
        del self.connections[link]
        if error:
            self._broken[link] = error
        return True

    def errors(self) -> dict[int, int]:
        """Returns why connections were lost, as errnos; those that the run closed are not lost."""
        found = {link: self._load.link_error(link) for link in self.connections}
        return {**self._broken, **{link: error for link, error in found.items() if error}}

    @property
    def is_lost(self) -> bool:
        """Returns whether no connection works."""
        return all(self._load.link_error(link) for link in self.connections)
