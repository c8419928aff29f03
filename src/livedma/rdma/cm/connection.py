# SPDX-License-Identifier: BSD-2-Clause
"""Holds what the connection manager knows about a connection, a listener and a SIDR request."""

from __future__ import annotations

import enum
from dataclasses import dataclass, field

from livedma.errors import LivedmaError


class ConnectionStateError(LivedmaError):
    """Reports that the connection's state does not allow this call, either no longer or not yet."""


class TableFullError(LivedmaError):
    """Reports that this side keeps as many connections or requests as it may."""


class State(enum.Enum):
    """Names a connection's state: those of IBA 12.9.5 to 12.9.7 in which the user or a peer can
    act."""

    REQ_SENT = enum.auto()
    REP_RECEIVED = enum.auto()  # active side: confirm() or disconnect() is due
    REQ_RECEIVED = enum.auto()  # passive side: accept() or reject() is due
    REP_SENT = enum.auto()
    ESTABLISHED = enum.auto()
    DREQ_SENT = enum.auto()
    TIMEWAIT = enum.auto()
    CLOSED = enum.auto()


@dataclass(slots=True)
class Retry:
    """Sends a message again until it is answered or `left` is 0."""

    mad: bytes
    seconds: float
    left: int
    was_delayed: bool = False  # an MRA has come since it was last sent


@dataclass(eq=False)
class Listener:
    port: int
    space: str  # "TCP" or "UDP"
    backlog: int
    waiting: int = 0  # requests that the user has not answered yet


@dataclass(eq=False, slots=True)
class Connection:
    """Holds one side of a connection. Its queue pair needs the fields up to `srq`.

    PSNs: this side's first packet has `sq_psn`, the peer's first one `rq_psn`.
    """

    peer: str
    port: int  # of the service
    is_active: bool
    local_id: int
    transaction_id: int
    state: State
    transport: str = "RC"  # or "UC"
    qpn: int = 0
    remote_qpn: int = 0
    rq_psn: int = 0
    sq_psn: int = 0
    path_mtu: int = 1024
    ack_timeout: int = 0
    retry_count: int = 7
    rnr_retry_count: int = 7
    responder_resources: int = 0  # READs and atomics of the peer that may be open at this side
    initiator_depth: int = 0  # READs and atomics that this side may have open at the peer
    flow_label: int = 0
    flow_control: bool = False
    srq: bool = False
    peer_port: int = 0  # passive side: the port that the peer says it comes from
    remote_id: int = 0
    drep_private_data: bytes = b""  # is sent to the peer when it disconnects

    # For the engine only.
    listener: Listener | None = None
    request_seconds: float = 0.0  # how long this side waits for an answer
    max_retries: int = 0
    repeat_seconds: float = 0.0  # a peer without an answer has repeated its REQ after this time
    deadline: float | None = None
    retry: Retry | None = None
    mra: bytes | None = None  # the one that was sent
    answer: bytes | None = None  # the answer to a repeated REQ or REP
    was_confirmed: bool = False  # passive side: the peer is known to have received the REP

    @property
    def is_unconfirmed(self) -> bool:
        """Tells whether the peer may still repeat its REQ."""
        return not self.is_active and not self.was_confirmed


@dataclass(eq=False, slots=True)
class SidrRequest:
    """Holds a request for the queue pair of a datagram service: the peer's, or one of our own."""

    peer: str
    port: int
    request_id: int
    is_ours: bool
    peer_port: int = 0
    listener: Listener | None = None
    message: dict[str, object] = field(default_factory=dict)  # of a peer's
    deadline: float | None = None
    retry: Retry | None = None
    answer: bytes | None = None


@dataclass
class Counters:
    """Counts what happened to messages: every message that is dropped is counted here."""

    received: int = 0
    sent: int = 0
    repeated: int = 0  # sent again because no answer came
    malformed: int = 0
    unsupported: int = 0  # messages about alternate paths
    duplicate: int = 0
    unmatched: int = 0  # for a connection that is not known
    misdirected: int = 0  # known, but from another address or about another queue pair
    unexpected: int = 0  # not in this state
    refused: int = 0  # a request that is refused without asking a listener
    stale: int = 0  # a peer's queue pair turned up in a second connection
    backlog_full: int = 0
    table_full: int = 0
    forgotten: int = 0  # rejections forgotten while the peer could still repeat its request
