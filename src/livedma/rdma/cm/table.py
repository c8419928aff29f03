# SPDX-License-Identifier: BSD-2-Clause
"""Keeps the table of connections: how they are found, what they wait for, how they end."""

from __future__ import annotations

from livedma.rdma.cm import events, messages
from livedma.rdma.cm.connection import Connection, Retry, State, TableFullError
from livedma.rdma.cm.outbox import Outbox
from livedma.rdma.cm.timers import Timers

# A peer's codes can say microseconds or hours: these bounds keep it from making this side flood
# it, or remember it for hours.
_SHORTEST_SECONDS = 0.05
_LONGEST_SECONDS = 20.0
_LONGEST_MEMORY_SECONDS = 160.0  # twice the largest service timeout that Linux asks for


def bounded(wish_seconds: float) -> float:
    return min(max(wish_seconds, _SHORTEST_SECONDS), _LONGEST_SECONDS)


class Connections:
    def __init__(self, outbox: Outbox) -> None:
        self.outbox = outbox
        self.timers: Timers[Connection] = Timers()
        self.by_id: dict[int, Connection] = {}
        self.by_peer_id: dict[tuple[str, int], Connection] = {}  # passive ones
        self.by_peer_qpn: dict[tuple[str, int], Connection] = {}  # before TIMEWAIT
        self._rejections: dict[Connection, None] = {}  # oldest first
        self.half_open = 0

    @property
    def is_full(self) -> bool:
        return len(self.by_id) >= self.outbox.limits.connections

    def new(self, *, peer: str, port: int, is_active: bool, state: State, tid: int) -> Connection:
        if self.is_full:
            raise TableFullError(f"there are {len(self.by_id)} connections, which is the limit")
        random = self.outbox.random
        connection = Connection(
            peer=peer,
            port=port,
            is_active=is_active,
            local_id=self.outbox.new_id(self.by_id),
            transaction_id=tid,
            state=state,
            rq_psn=random.getrandbits(24),
        )
        self.by_id[connection.local_id] = connection
        return connection

    def know_peer(self, connection: Connection, remote_id: int, remote_qpn: int) -> None:
        connection.remote_id = remote_id
        connection.remote_qpn = remote_qpn
        if not connection.is_active:
            self.by_peer_id[connection.peer, remote_id] = connection
        self.by_peer_qpn[connection.peer, remote_qpn] = connection

    def move(self, connection: Connection, state: State) -> None:
        """Moves the connection to a state, in which it waits for nothing yet."""
        for old_or_new, change in ((connection.state, -1), (state, 1)):
            if old_or_new is State.REP_SENT:
                self.half_open += change
            elif old_or_new is State.REQ_RECEIVED and connection.listener:
                connection.listener.waiting += change
        connection.state = state
        connection.retry = None
        self.timers.set(connection, None)

    def ask(self, connection: Connection, mad: bytes, now: float) -> None:
        """Sends a message that the peer has to answer; it is repeated until then."""
        connection.retry = Retry(mad, connection.request_seconds, connection.max_retries)
        self.timers.set(connection, now + connection.request_seconds)
        self.outbox.send(mad, connection.peer)

    def repeat(self, connection: Connection, now: float) -> bool:
        """Sends it again; False if no retry is left."""
        retry = connection.retry
        if retry is None or not retry.left:
            return False
        retry.left -= 1
        retry.was_delayed = False
        self.timers.set(connection, now + retry.seconds)
        self.outbox.counters.repeated += 1
        self.outbox.send(retry.mad, connection.peer)
        return True

    def disconnect(self, connection: Connection, now: float, data: bytes = b"") -> None:
        mad = messages.dreq(connection, data)
        self.move(connection, State.DREQ_SENT)
        connection.answer = None
        self.ask(connection, mad, now)

    def delay(self, connection: Connection) -> None:
        """Asks the peer for more time to answer it (IBA 12.6.6), with the same MRA each time."""
        if connection.mra is None:
            timeout = self.outbox.timing.service_timeout
            answers = "REP" if connection.is_active else "REQ"
            connection.mra = messages.mra(connection, answers, timeout)
            connection.repeat_seconds = max(connection.repeat_seconds, messages.seconds(timeout))
        self.outbox.send(connection.mra, connection.peer)

    def linger(
        self,
        connection: Connection,
        now: float,
        *,
        answer: bytes | None = None,
        remember: bool = False,
    ) -> None:
        """Keeps it in TIMEWAIT until none of its packets can be under way (IBA 12.9.8.4).

        `remember`: it stays at least while the peer may repeat its REQ, which gets `answer`. If it
        were forgotten, the repeated REQ would count as a second request.
        """
        wait = bounded(messages.seconds(connection.ack_timeout))
        if remember:
            repeating = connection.repeat_seconds * (connection.max_retries + 1)
            wait = max(wait, min(repeating, _LONGEST_MEMORY_SECONDS))
        self.move(connection, State.TIMEWAIT)
        self._forget(self.by_peer_qpn, (connection.peer, connection.remote_qpn), connection)
        connection.answer = answer
        self.timers.set(connection, now + wait)
        if remember and not connection.qpn:
            self._rejections[connection] = None
            if len(self._rejections) > self.outbox.limits.rejections:
                self.outbox.counters.forgotten += 1
                self.finish(next(iter(self._rejections)))

    def finish(self, connection: Connection) -> None:
        self.move(connection, State.CLOSED)
        del self.by_id[connection.local_id]
        self._forget(self.by_peer_id, (connection.peer, connection.remote_id), connection)
        self._rejections.pop(connection, None)
        self.outbox.emit(events.TimewaitExit(connection))

    @staticmethod
    def _forget(
        table: dict[tuple[str, int], Connection], key: tuple[str, int], connection: Connection
    ) -> None:
        # Both sides of a connection may be in this table: they can have the same key.
        if table.get(key) is connection:
            del table[key]
