# SPDX-License-Identifier: BSD-2-Clause
"""Runs the RDMA connection manager without a wire: MADs and `now` go in, MADs and events come out.

It behaves like librdmacm on the kernel's ib_cm, and its messages have the values that Linux's
have. It has no socket, thread or clock: `now` is in seconds and only has to go forward.
"""

from __future__ import annotations

import ipaddress
import random
import secrets

from livedma.errors import PortInUseError
from livedma.rdma.cm import events, messages
from livedma.rdma.cm.connection import (
    Connection,
    ConnectionStateError,
    Counters,
    Listener,
    SidrRequest,
    State,
)
from livedma.rdma.cm.messages import Timing
from livedma.rdma.cm.outbox import Limits, Outbox
from livedma.rdma.cm.receive import Receiver
from livedma.rdma.cm.sidr import Resolution
from livedma.rdma.cm.table import Connections

_FIRST_DYNAMIC_PORT = 49152
_LOCALLY_ASSIGNED = 2 << 56  # the bit of an EUI-64 that says so


class Engine:
    """Holds what one address needs: listeners, connections and SIDR requests.

    `slot` (0 to 255) is in the upper 8 bits of every ID given out, so that packets can be steered
    among processes that share an address.
    """

    def __init__(
        self,
        address: str,
        *,
        guid: int | None = None,
        slot: int = 0,
        timing: Timing | None = None,
        limits: Limits | None = None,
        source: random.Random | None = None,
    ) -> None:
        if not 0 <= slot <= 255:
            raise ValueError(f"slot {slot} is not within 0 to 255")
        source = source or secrets.SystemRandom()
        self._outbox = Outbox(
            address=_canonical(address),
            guid=_LOCALLY_ASSIGNED | source.getrandbits(56) if guid is None else guid,
            slot=slot,
            timing=timing or Timing(),
            limits=limits or Limits(),
            random=source,
        )
        self._listeners: dict[tuple[str, int], Listener] = {}
        self._table = Connections(self._outbox)
        self._sidr = Resolution(self._outbox, self._listeners)
        self._handlers = {
            **Receiver(self._table, self._listeners).handlers,
            "SIDR_REQ": self._sidr.received_req,
            "SIDR_REP": self._sidr.received_rep,
        }

    @property
    def counters(self) -> Counters:
        return self._outbox.counters

    @property
    def connections(self) -> list[Connection]:
        """Lists the connections that it keeps, with those in TIMEWAIT."""
        return list(self._table.by_id.values())

    @property
    def is_idle(self) -> bool:
        """Tells whether it keeps nothing but listeners."""
        return not self._table.by_id and not len(self._sidr)

    @property
    def next_timer(self) -> float | None:
        """Is the time at which `expire` is due."""
        due = [at for at in (self._table.timers.next, self._sidr.timers.next) if at is not None]
        return min(due, default=None)

    def receive(self, mad: bytes, source: str, now: float) -> None:
        """Takes a MAD that arrived at QP 1. Never raises, whatever is in it."""
        self.counters.received += 1
        message = messages.parse(mad)
        if message is None:
            self.counters.malformed += 1
            return
        handler = self._handlers.get(message["attribute"])
        if handler is None:
            self.counters.unsupported += 1
            return
        handler(message, _canonical(source), now)

    def transmits(self) -> list[tuple[bytes, str]]:
        """Takes the MADs that are to be sent, each with its destination."""
        mads, self._outbox.mads = self._outbox.mads, []
        return mads

    def events(self) -> list[events.Event]:
        """Takes what happened since the last call."""
        happened, self._outbox.events = self._outbox.events, []
        return happened

    def listen(self, port: int, space: str = "TCP", backlog: int = 128) -> Listener:
        """Turns connection requests ("TCP") or SIDR requests ("UDP") to this port into events.

        Up to `backlog` of them wait for the user's answer. It drops more; the peer repeats those.
        """
        if not 1 <= port <= 65535:
            raise ValueError(f"port {port} is not within 1 to 65535")
        if space not in ("TCP", "UDP"):
            raise ValueError(f"port space {space!r} is neither TCP nor UDP")
        if (space, port) in self._listeners:
            kind = "RDMA port" if space == "TCP" else "RDMA port for datagrams"
            raise PortInUseError(f"{self._outbox.address} listens on {kind} {port} already")
        listener = self._listeners[space, port] = Listener(port, space, backlog)
        return listener

    def unlisten(self, listener: Listener, now: float) -> None:
        """Ends a listener and rejects the requests that wait for it; connections stay."""
        if self._listeners.pop((listener.space, listener.port), None) is None:
            return
        for connection in self.connections:
            if connection.listener is listener and connection.state is State.REQ_RECEIVED:
                self.reject(connection, now)
        self._sidr.reject_all(listener, now)

    def connect(
        self,
        peer: str,
        port: int,
        qpn: int,
        now: float,
        *,
        path_mtu: int = 1024,
        transport: str = "RC",
        responder_resources: int = 0,
        initiator_depth: int = 0,
        retry_count: int = 7,
        rnr_retry_count: int = 7,
        flow_control: bool = False,
        srq: bool = False,
        source_port: int | None = None,
        private_data: bytes = b"",
    ) -> Connection:
        """Asks for a connection: `ConnectResponse`, `Rejected` or `Unreachable` follows."""
        outbox, timing = self._outbox, self._outbox.timing
        connection = self._table.new(
            peer=_canonical(peer),
            port=port,
            is_active=True,
            state=State.REQ_SENT,
            tid=outbox.random.getrandbits(64),
        )
        connection.transport = transport
        connection.qpn = qpn
        connection.path_mtu = path_mtu
        connection.ack_timeout = messages.ack_timeout(timing.ack_delay, timing.packet_lifetime)
        connection.retry_count = retry_count
        connection.rnr_retry_count = rnr_retry_count
        connection.responder_resources = responder_resources
        connection.initiator_depth = initiator_depth
        connection.flow_label = outbox.random.getrandbits(20)
        connection.flow_control = flow_control
        connection.srq = srq
        connection.request_seconds = timing.request_seconds
        connection.max_retries = timing.max_retries
        try:
            mad = messages.req(
                connection,
                address=outbox.address,
                source_port=self._source_port(source_port),
                guid=outbox.guid,
                timing=timing,
                data=private_data,
            )
        except ValueError:
            del self._table.by_id[connection.local_id]
            raise
        self._table.ask(connection, mad, now)
        return connection

    def confirm(self, connection: Connection, now: float, private_data: bytes = b"") -> None:
        """Confirms, after `ConnectResponse`: the queue pair is ready, and the peer may use it."""
        _require(connection, State.REP_RECEIVED, "confirmed")
        mad = messages.rtu(connection, private_data)
        self._table.move(connection, State.ESTABLISHED)
        connection.answer = mad
        self._outbox.send(mad, connection.peer)

    def accept(
        self,
        connection: Connection,
        qpn: int,
        now: float,
        *,
        responder_resources: int = 0,
        initiator_depth: int = 0,
        rnr_retry_count: int = 7,
        flow_control: bool = False,
        srq: bool = False,
        private_data: bytes = b"",
    ) -> None:
        """Accepts, after `ConnectRequest`, with a queue pair in RTR: `Established` follows.

        The depths are cut to what the peer offered and asked for.
        """
        _require(connection, State.REQ_RECEIVED, "accepted")
        connection.qpn = qpn
        connection.responder_resources = min(connection.responder_resources, responder_resources)
        connection.initiator_depth = min(connection.initiator_depth, initiator_depth)
        connection.flow_control = flow_control
        connection.srq = srq
        mad = messages.rep(
            connection,
            guid=self._outbox.guid,
            rnr_retry_count=rnr_retry_count,
            ack_delay=self._outbox.timing.ack_delay,
            data=private_data,
        )
        self._table.move(connection, State.REP_SENT)
        self._table.ask(connection, mad, now)

    def reject(
        self,
        connection: Connection,
        now: float,
        *,
        reason: int = messages.CONSUMER_REJECT,
        info: bytes = b"",
        private_data: bytes = b"",
    ) -> None:
        """Refuses the connection, after `ConnectRequest` or `ConnectResponse`."""
        if connection.state is not State.REP_RECEIVED:
            _require(connection, State.REQ_RECEIVED, "rejected")
        rejects = "REP" if connection.is_active else "REQ"
        mad = messages.rej(connection, rejects, reason, info, private_data)
        self._outbox.send(mad, connection.peer)
        self._table.linger(connection, now, answer=mad, remember=not connection.is_active)

    def establish(self, connection: Connection) -> bool:
        """Says that a packet came from the peer. It counts as the RTU, which may be lost."""
        if connection.state is not State.REP_SENT:
            return False
        connection.was_confirmed = True
        self._table.move(connection, State.ESTABLISHED)
        self._outbox.emit(events.Established(connection, b""))
        return True

    def disconnect(self, connection: Connection, now: float, private_data: bytes = b"") -> None:
        """Ends the connection in any state; does nothing if it is ending already.

        `Disconnected` follows if it was accepted and not rejected since.
        """
        match connection.state:
            case State.REQ_SENT:
                self._withdraw(connection, now)
            case State.REP_RECEIVED | State.REQ_RECEIVED:
                self.reject(connection, now)
            case State.REP_SENT | State.ESTABLISHED:
                self._table.disconnect(connection, now, private_data)
            case State.DREQ_SENT | State.TIMEWAIT | State.CLOSED:
                pass

    def resolve(
        self,
        peer: str,
        port: int,
        now: float,
        *,
        source_port: int | None = None,
        private_data: bytes = b"",
    ) -> SidrRequest:
        """Asks which queue pair serves a UDP port: `SidrResolved` or `SidrUnreachable` follows."""
        source_port = self._source_port(source_port)
        return self._sidr.resolve(
            _canonical(peer), port, now, source_port=source_port, private_data=private_data
        )

    def cancel(self, request: SidrRequest) -> None:
        """Stops a `resolve`; nothing more is reported about it."""
        self._sidr.cancel(request)

    def answer(
        self,
        request: SidrRequest,
        now: float,
        *,
        status: str = messages.SIDR_VALID,
        qpn: int = 0,
        qkey: int = 0,
        private_data: bytes = b"",
    ) -> None:
        """Answers a peer's request, after `SidrRequested`."""
        self._sidr.answer(request, now, status, qpn=qpn, qkey=qkey, private_data=private_data)

    def expire(self, now: float) -> None:
        """Does all that is due by now."""
        while connection := self._table.timers.expired(now):
            match connection.state:
                case State.REQ_RECEIVED | State.REP_RECEIVED:
                    self._table.delay(connection)
                case State.TIMEWAIT:
                    self._table.finish(connection)
                case _ if not self._table.repeat(connection, now):
                    self._give_up(connection, now)
        self._sidr.expire(now)

    def _give_up(self, connection: Connection, now: float) -> None:
        if connection.state is State.DREQ_SENT:
            self._outbox.emit(events.Disconnected(connection, False, b""))
            self._table.linger(connection, now, remember=connection.is_unconfirmed)
        else:
            self._outbox.emit(events.Unreachable(connection))
            self._withdraw(connection, now)

    def _withdraw(self, connection: Connection, now: float) -> None:
        """Tells the peer, as far as it can be reached, not to wait (IBA 12.6.7.2)."""
        guid = self._outbox.guid.to_bytes(8, "big")
        mad = messages.rej(connection, "other", messages.TIMEOUT, guid)
        self._outbox.send(mad, connection.peer)
        self._table.linger(connection, now)

    def _source_port(self, port: int | None) -> int:
        if port is not None:
            return port
        return self._outbox.random.randint(_FIRST_DYNAMIC_PORT, 65535)


def _canonical(address: str) -> str:
    return str(ipaddress.ip_address(address))


def _require(connection: Connection, state: State, verb: str) -> None:
    if connection.state is not state:
        raise ConnectionStateError(
            f"the connection with {connection.peer} is in {connection.state.name}: "
            f"it can be {verb} in {state.name} only"
        )
