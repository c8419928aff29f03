# SPDX-License-Identifier: BSD-2-Clause
"""Decides what a peer's message does to a connection (IBA 12.9, and Linux's choice where IBA is
silent)."""

from __future__ import annotations

from collections.abc import Callable

from livedma.rdma.cm import events, messages
from livedma.rdma.cm.connection import Connection, Listener, State
from livedma.rdma.cm.messages import Message, seconds
from livedma.rdma.cm.table import Connections, bounded

_FIRST_USER_QPN = 2
_LONGEST_SERVICE_TIMEOUT = 24  # what Linux asks for: 69 seconds
_INFO_BYTES = 72
_BEFORE_ESTABLISHED = (State.REQ_RECEIVED, State.REP_SENT)
_DISCONNECTABLE = (State.REP_SENT, State.REP_RECEIVED, State.ESTABLISHED, State.DREQ_SENT)


class Receiver:
    """Takes well-formed messages, and checks their sender and what they claim."""

    def __init__(self, table: Connections, listeners: dict[tuple[str, int], Listener]) -> None:
        self._table = table
        self._outbox = table.outbox
        self._counters = table.outbox.counters
        self._listeners = listeners
        self.handlers: dict[str, Callable[[Message, str, float], None]] = {
            "REQ": self._req,
            "REP": self._rep,
            "RTU": self._rtu,
            "REJ": self._rej,
            "MRA": self._mra,
            "DREQ": self._dreq,
            "DREP": self._drep,
        }

    def _req(self, message: Message, source: str, now: float) -> None:
        known = self._table.by_peer_id.get((source, message["local_comm_id"]))
        if known is not None and _is_repeated(known, message):
            self._repeated_req(known)
            return
        stale = known or self._table.by_peer_qpn.get((source, message["qpn"]))
        if stale is not None:
            self._stale(stale, message, now)
            return
        listener = self._listeners.get((message.get("port_space", ""), message.get("port", 0)))
        reason = self._refusal(message, listener)
        if reason is not None or listener is None:
            self._counters.refused += 1
            self._outbox.send(
                messages.rej_of(message, reason or messages.INVALID_SERVICE_ID), source
            )
        elif listener.waiting >= listener.backlog:
            # A peer without an answer asks again; there may be room by then.
            self._counters.backlog_full += 1
        elif self._table.half_open >= self._outbox.limits.half_open:
            self._counters.table_full += 1
        else:
            self._new_request(message, source, listener, now)

    def _refusal(self, message: Message, listener: Listener | None) -> int | None:
        """Returns the reason to refuse the request without asking the user; None: ask."""
        if listener is None or listener.space != "TCP":
            return messages.INVALID_SERVICE_ID
        if message["transport"] not in ("RC", "UC"):
            return messages.INVALID_TRANSPORT
        if not message["path_mtu"]:
            return messages.INVALID_PATH_MTU
        if message["qpn"] < _FIRST_USER_QPN or not message["local_comm_id"]:
            return messages.UNSUPPORTED_REQUEST
        if self._table.is_full:
            return messages.NO_RESOURCES
        return None

    def _new_request(self, message: Message, source: str, listener: Listener, now: float) -> None:
        connection = self._table.new(
            peer=source,
            port=message["port"],
            is_active=False,
            state=State.REQ_RECEIVED,
            tid=int(message["transaction_id"], 16),
        )
        connection.listener = listener
        listener.waiting += 1
        self._table.know_peer(connection, message["local_comm_id"], message["qpn"])
        connection.transport = message["transport"]
        connection.sq_psn = message["starting_psn"]
        connection.path_mtu = message["path_mtu"]
        connection.ack_timeout = message["primary_ack_timeout"]
        connection.retry_count = message["retry_count"]
        connection.rnr_retry_count = message["rnr_retry_count"]
        connection.responder_resources = message["initiator_depth"]
        connection.initiator_depth = message["responder_resources"]
        connection.flow_label = message["primary_flow_label"]
        connection.peer_port = message["ip_cm"]["src_port"]
        connection.request_seconds = bounded(seconds(message["local_cm_response_timeout"]))
        connection.max_retries = message["max_cm_retries"]
        patience = bounded(seconds(message["remote_cm_response_timeout"]))
        way = bounded(seconds(message["primary_ack_timeout"]))  # the round trip
        connection.repeat_seconds = patience + way
        self._table.timers.set(connection, now + patience / 2)
        data = messages.private_data(message)
        self._outbox.emit(events.ConnectRequest(connection, listener, data))

    def _repeated_req(self, connection: Connection) -> None:
        self._counters.duplicate += 1
        if connection.state is State.REQ_RECEIVED:
            self._table.delay(connection)
        elif connection.state is State.REP_SENT and connection.retry:
            self._outbox.send(connection.retry.mad, connection.peer)
        elif connection.state in (State.DREQ_SENT, State.TIMEWAIT):
            # In DREQ_SENT: a peer that has no REP yet cannot match a DREQ to a connection.
            answer = connection.answer or messages.rej(connection, "REQ", messages.STALE_CONNECTION)
            self._outbox.send(answer, connection.peer)

    def _stale(self, old: Connection, message: Message, now: float) -> None:
        """Ends the new connection and the old one that the peer has forgotten (IBA 12.9.8.3.1)."""
        self._counters.stale += 1
        self._outbox.send(messages.rej_of(message, messages.STALE_CONNECTION), old.peer)
        if old.state in (State.ESTABLISHED, State.REP_SENT):
            self._table.disconnect(old, now)

    def _rep(self, message: Message, source: str, now: float) -> None:
        connection = self._table.by_id.get(message["remote_comm_id"])
        if connection is not None and connection.peer != source:
            self._counters.misdirected += 1
        elif connection is not None and connection.is_active and connection.state is State.REQ_SENT:
            self._accepted(connection, message, now)
        elif connection is None or connection.remote_id != message["local_comm_id"]:
            # This side has no such connection; without a REJ the peer would wait for long.
            self._counters.unmatched += 1
            rejection = messages.rej_of(message, messages.INVALID_COMMUNICATION_ID)
            self._outbox.send(rejection, source)
        else:
            self._counters.duplicate += 1
            if connection.state is State.REP_RECEIVED:
                self._table.delay(connection)
            elif connection.answer is not None:
                self._outbox.send(connection.answer, source)

    def _accepted(self, connection: Connection, message: Message, now: float) -> None:
        stale = self._table.by_peer_qpn.get((connection.peer, message["qpn"]))
        if stale is not None or message["qpn"] < _FIRST_USER_QPN:
            reason = messages.STALE_CONNECTION if stale else messages.UNSUPPORTED_REQUEST
            if stale is not None:
                self._stale(stale, message, now)
            else:
                self._outbox.send(messages.rej_of(message, reason), connection.peer)
            self._outbox.emit(events.Rejected(connection, reason, b"", b""))
            self._table.linger(connection, now)
            return
        timing = self._outbox.timing
        self._table.know_peer(connection, message["local_comm_id"], message["qpn"])
        connection.sq_psn = message["starting_psn"]
        connection.ack_timeout = messages.ack_timeout(
            message["target_ack_delay"], timing.packet_lifetime
        )
        connection.rnr_retry_count = message["rnr_retry_count"]
        connection.initiator_depth = min(connection.initiator_depth, message["responder_resources"])
        connection.responder_resources = min(
            connection.responder_resources, message["initiator_depth"]
        )
        self._table.move(connection, State.REP_RECEIVED)
        self._table.timers.set(connection, now + seconds(timing.response_timeout) / 2)
        self._outbox.emit(events.ConnectResponse(connection, messages.private_data(message)))

    def _rtu(self, message: Message, source: str, now: float) -> None:
        connection = self._find(message, source)
        if connection is None:
            return
        if connection.state is State.TIMEWAIT and connection.is_unconfirmed:
            # Closed while the REP was under way: the peer could not match the DREQ to a connection.
            self._outbox.send(messages.rej(connection, "other", messages.STALE_CONNECTION), source)
        connection.was_confirmed = True
        if connection.state is not State.REP_SENT:
            self._counters.duplicate += 1
            return
        self._table.move(connection, State.ESTABLISHED)
        self._outbox.emit(events.Established(connection, messages.private_data(message)))

    def _rej(self, message: Message, source: str, now: float) -> None:
        connection = self._rejected(message, source)
        if connection is None:
            return
        state, reason = connection.state, message["reason"]
        info = bytes.fromhex(message.get("additional_info", "")).ljust(_INFO_BYTES, b"\0")
        info = info[: message["reject_info_length"]]
        data = messages.private_data(message)
        if state in (State.TIMEWAIT, State.CLOSED):
            self._counters.unexpected += 1
            return
        if state in (State.ESTABLISHED, State.DREQ_SENT):
            self._outbox.emit(events.Disconnected(connection, True, data, reason))
        else:
            self._outbox.emit(events.Rejected(connection, reason, info, data))
        if state is State.REQ_SENT and reason != messages.STALE_CONNECTION:
            self._table.finish(connection)  # no packet of its queue pair was ever sent
        else:
            self._table.linger(connection, now)

    def _rejected(self, message: Message, source: str) -> Connection | None:
        """Finds the connection of a REJ; its sender may not know the ID that this side gave it."""
        if message["message"] == "REQ":
            return self._find_requested(message, source)
        if message["reason"] == messages.TIMEOUT:
            connection = self._table.by_peer_id.get((source, message["local_comm_id"]))
            if connection is not None and connection.state in _BEFORE_ESTABLISHED:
                return connection
        return self._find(message, source)

    def _mra(self, message: Message, source: str, now: float) -> None:
        if message["message"] == "REQ":
            connection = self._find_requested(message, source)
        else:
            connection = self._find(message, source)
        if connection is None:
            return
        is_due = message["message"] == "REQ" or connection.state is State.REP_SENT
        if not is_due or message["message"] == "LAP" or connection.retry is None:
            self._counters.unexpected += 1
            return
        if connection.retry.was_delayed:
            self._counters.duplicate += 1
            return
        connection.retry.was_delayed = True
        service = seconds(min(message["service_timeout"], _LONGEST_SERVICE_TIMEOUT))
        way = bounded(seconds(connection.ack_timeout))
        self._table.timers.set(connection, now + service + way)

    def _dreq(self, message: Message, source: str, now: float) -> None:
        connection = self._table.by_id.get(message["remote_comm_id"])
        if connection is not None and connection.state is State.REQ_SENT:
            # It may have overtaken the REP: if it were answered now, it would not come again.
            self._counters.unexpected += 1
        elif connection is None or connection.remote_id != message["local_comm_id"]:
            # The answer ends the wait of a peer whose connection is gone here.
            self._counters.unmatched += 1
            self._outbox.send(messages.drep_to(message), source)
        elif connection.peer != source or connection.qpn != message["remote_qpn"]:
            self._counters.misdirected += 1
        elif connection.state is State.TIMEWAIT:
            self._counters.duplicate += 1
            self._outbox.send(messages.drep_to(message, connection.drep_private_data), source)
        elif connection.state in _DISCONNECTABLE:
            self._outbox.send(messages.drep_to(message, connection.drep_private_data), source)
            data = messages.private_data(message)
            self._outbox.emit(events.Disconnected(connection, True, data))
            self._table.linger(connection, now)
        else:
            self._counters.unexpected += 1

    def _drep(self, message: Message, source: str, now: float) -> None:
        connection = self._find(message, source)
        if connection is None:
            return
        if connection.state is not State.DREQ_SENT:
            self._counters.unexpected += 1
            return
        data = messages.private_data(message)
        self._outbox.emit(events.Disconnected(connection, False, data))
        self._table.linger(connection, now, remember=connection.is_unconfirmed)

    def _find_requested(self, message: Message, source: str) -> Connection | None:
        """Finds the connection whose REQ the message answers."""
        connection = self._table.by_id.get(message["remote_comm_id"])
        if connection is None:
            self._counters.unmatched += 1
        elif connection.peer != source:
            self._counters.misdirected += 1
        elif connection.state is not State.REQ_SENT:
            self._counters.unexpected += 1
        else:
            return connection
        return None

    def _find(self, message: Message, source: str) -> Connection | None:
        """Finds the connection with both IDs of the message and that peer."""
        connection = self._table.by_id.get(message["remote_comm_id"])
        if connection is None or connection.remote_id != message["local_comm_id"]:
            self._counters.unmatched += 1
            return None
        if connection.peer != source:
            self._counters.misdirected += 1
            return None
        return connection


def _is_repeated(connection: Connection, message: Message) -> bool:
    """Returns whether it is the same REQ again, not a new one with an ID that was used before."""
    return (connection.remote_qpn, connection.sq_psn) == (message["qpn"], message["starting_psn"])
