"""Where the sessions of a run are: its connections, and which of them each session uses."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager

from livedma.nfs.client.connection import Connection
from livedma.nfs.load.links import Calls, RdmaLinks, TcpLinks
from livedma.rpc.client import ConnectionLost, Transport

__all__ = ["Places"]


class Places:
    """connections: those that are open, by link. sessions: ids, by their numbers in the load."""

    def __init__(self, links: RdmaLinks | TcpLinks, calls: Calls, address: str, port: int) -> None:
        self._links, self._calls = links, calls
        self._address, self._port = address, port
        self._load = links.load
        self._for_new: list[int] = []
        self._being_made: Counter[int] = Counter()
        self._all: list[int] = []
        self._broken: dict[int, int] = {}
        self.connections: dict[int, Connection] = {}
        self.sessions: dict[int, bytes] = {}

    @property
    def opened(self) -> int:
        """Connections that there were."""
        return len(self._all)

    def add(self, link: int) -> None:
        """A connection that is open, for new sessions as well."""
        self.connections[link] = self._connection(link)
        self._all.append(link)
        self._for_new.append(link)

    async def open(self) -> int:
        """Another connection, to which nothing goes yet. ConnectionLost."""
        link = await self._links.open(self._address, self._port)
        self.connections[link] = self._connection(link)
        self._all.append(link)
        return link

    def _connection(self, link: int) -> Connection:
        async def connect() -> Transport:
            transport = self._links.transport(self._calls, link)
            if not transport.is_open:
                raise ConnectionLost(f"the connection with {self._address} was lost")
            return transport

        return Connection(connect, f"{self._address} port {self._port}")

    def lead_to(self, link: int) -> None:
        """New sessions go there, and nowhere else."""
        self._for_new = [link]

    @contextmanager
    def for_new(self, number: int) -> Iterator[int]:
        """The link of a new session, which is being made meanwhile."""
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
        """Neither has it sessions, nor will it get some."""
        return not self._being_made[link] and not self.on(link)

    def on(self, link: int) -> list[int]:
        """The sessions that use a connection now, but for those that have failed."""
        links = enumerate(self._load.places())
        return [number for number, its in links if its == link and number in self.sessions]

    def close(self, link: int) -> bool:
        """Ends a connection that nobody needs any more; False: somebody does."""
        error = self._load.link_error(link)
        if not self._links.close_link(link):
            return False
        del self.connections[link]
        if error:
            self._broken[link] = error
        return True

    def errors(self) -> dict[int, int]:
        """Why connections were lost, as errnos; those that were closed by us were not."""
        found = {link: self._load.link_error(link) for link in self.connections}
        return {**self._broken, **{link: error for link, error in found.items() if error}}

    @property
    def is_lost(self) -> bool:
        """There is no connection that works."""
        return all(self._load.link_error(link) for link in self.connections)
