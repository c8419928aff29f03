# SPDX-License-Identifier: BSD-2-Clause
"""Two connection managers and the wire between them, on a clock that only the test moves."""

from __future__ import annotations

import heapq
import itertools
import random
from collections.abc import Callable

from livedma.rdma.cm import events
from livedma.rdma.cm.connection import Connection, Listener
from livedma.rdma.cm.engine import Engine
from livedma.wire import cm

CLIENT, SERVER, STRANGER = "10.0.0.1", "10.0.0.2", "10.0.0.66"
PORT = 7174
Fate = Callable[[bytes], list[float]]  # when each copy of a MAD arrives, in seconds from now


def faithful(mad: bytes) -> list[float]:
    return [0.001]


class World:
    """`client` and `server`, whose events end up in `seen`; MADs are carried by `step`."""

    def __init__(self, fate: Fate = faithful, **options) -> None:
        options = {"source": random.Random(1), **options}
        client, server = options.pop("addresses", (CLIENT, SERVER))
        self.client, self.server = Engine(client, **options), Engine(server, **options)
        self.engines = {engine._outbox.address: engine for engine in (self.client, self.server)}
        self.fate = fate
        self.now = 100.0
        self.sent: list[tuple[str, str, dict]] = []  # source, destination, message
        self.seen: dict[Engine, list[events.Event]] = {e: [] for e in self.engines.values()}
        self.on_event: Callable[[Engine, events.Event], None] = lambda engine, event: None
        self._order = itertools.count()
        self._due: list[tuple[float, int, Callable[[], None]]] = []

    def at(self, seconds: float, action: Callable[[], None]) -> None:
        heapq.heappush(self._due, (self.now + seconds, next(self._order), action))

    def flush(self) -> None:
        """MADs go to the wire and events to the user until there are none."""
        while True:
            quiet = True
            for address, engine in self.engines.items():
                for mad, destination in engine.transmits():
                    quiet = False
                    self.sent.append((address, destination, cm.decode(mad)["cm"]))
                    for delay in self.fate(mad):
                        self.at(delay, self._arrival(mad, address, destination))
                for event in engine.events():
                    quiet = False
                    self.seen[engine].append(event)
                    self.on_event(engine, event)
            if quiet:
                return

    def _arrival(self, mad: bytes, source: str, destination: str) -> Callable[[], None]:
        def arrive() -> None:
            if destination in self.engines:
                self.engines[destination].receive(mad, source, self.now)

        return arrive

    def step(self) -> bool:
        """To the next arrival, action or timer; False if there is none."""
        self.flush()
        timers = [engine.next_timer for engine in self.engines.values()]
        due = [at for at in (*timers, self._due[0][0] if self._due else None) if at is not None]
        if not due:
            return False
        self.now = max(self.now, min(due))
        while self._due and self._due[0][0] <= self.now:
            heapq.heappop(self._due)[2]()
        for engine in self.engines.values():
            engine.expire(self.now)
        self.flush()
        return True

    def run(self, seconds: float = float("inf")) -> None:
        """Until nothing is left to happen, or for this long."""
        end = self.now + seconds
        for _ in range(20_000):
            self.flush()
            timers = [engine.next_timer for engine in self.engines.values()]
            due = [at for at in (*timers, self._due[0][0] if self._due else None) if at is not None]
            if not due or min(due) > end:
                self.now = end if seconds != float("inf") else self.now
                return
            self.step()
        raise AssertionError("it does not come to rest")

    def names(self, source: str | None = None) -> list[str]:
        """What was sent (by one of them), by name."""
        return [m["attribute"] for src, _, m in self.sent if source in (None, src)]

    def last(self, attribute: str) -> dict:
        return [m for _, _, m in self.sent if m["attribute"] == attribute][-1]

    def got(self, engine: Engine, kind: type) -> list:
        return [event for event in self.seen[engine] if isinstance(event, kind)]

    def inject(self, engine: Engine, message: dict, source: str) -> None:
        engine.receive(cm.encode(message), source, self.now)
        self.flush()

    def listen(self, **options) -> Listener:
        return self.server.listen(PORT, **options)

    def request(self, **options) -> tuple[Connection, Connection]:
        """A request that waits for its answer: the client's connection and the server's."""
        if not self.server._listeners:
            self.listen()
        peer = self.server._outbox.address
        mine = self.client.connect(peer, PORT, options.pop("qpn", 17), self.now, **options)
        self.run(0.01)
        return mine, self.got(self.server, events.ConnectRequest)[-1].connection

    def accepted(self, **options) -> tuple[Connection, Connection]:
        """A request that was accepted; the client has not confirmed."""
        mine, theirs = self.request(**options)
        self.server.accept(theirs, 23, self.now)
        self.run(0.01)
        return mine, theirs

    def established(self, **options) -> tuple[Connection, Connection]:
        mine, theirs = self.accepted(**options)
        self.client.confirm(mine, self.now)
        self.run(0.01)
        return mine, theirs

    def assert_nothing_left(self) -> None:
        for engine in self.engines.values():
            table = engine._table
            assert engine.is_idle and engine.next_timer is None
            assert not table.by_peer_id and not table.by_peer_qpn and not table._rejections
            assert table.half_open == 0
            assert all(listener.waiting == 0 for listener in engine._listeners.values())


def losing(*attributes: str, times: int = 10**9) -> Fate:
    """Loses the first MADs of these kinds."""
    left = dict.fromkeys(attributes, times)

    def fate(mad: bytes) -> list[float]:
        name = cm.decode(mad)["cm"]["attribute"]
        if left.get(name, 0):
            left[name] -= 1
            return []
        return [0.001]

    return fate


def altered_request(world: World, **fields) -> None:
    """A REQ as the client would send it, but for these fields."""
    engine = Engine(CLIENT)
    engine.connect(SERVER, PORT, 17, 0.0)
    message = cm.decode(engine.transmits()[0][0])["cm"]
    world.inject(world.server, {**message, **fields}, CLIENT)
