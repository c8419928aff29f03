# SPDX-License-Identifier: BSD-2-Clause
"""Defines the events that the connection manager reports to its user.

A connection made by `connect` or reported by `ConnectRequest` has at most one of `Rejected`,
`Unreachable` and `Disconnected`, and last of all one `TimewaitExit`.
"""

from __future__ import annotations

from dataclasses import dataclass

from livedma.rdma.cm.connection import Connection, Listener, SidrRequest


@dataclass(frozen=True)
class ConnectRequest:
    """A peer wants a connection: `accept` or `reject` it."""

    connection: Connection
    listener: Listener
    private_data: bytes


@dataclass(frozen=True)
class ConnectResponse:
    """The peer accepted: bring the queue pair to RTS, then `confirm`."""

    connection: Connection
    private_data: bytes


@dataclass(frozen=True)
class Established:
    """Passive side: the peer confirmed, or its data came first (then without private data)."""

    connection: Connection
    private_data: bytes


@dataclass(frozen=True)
class Rejected:
    """The peer refused the connection, or withdrew it. What `info` holds depends on the reason."""

    connection: Connection
    reason: int
    info: bytes
    private_data: bytes


@dataclass(frozen=True)
class Unreachable:
    """The peer did not answer any of the repeated requests."""

    connection: Connection


@dataclass(frozen=True)
class Disconnected:
    """The connection has ended. `reason` is set if the peer rejected it once it was established."""

    connection: Connection
    by_peer: bool
    private_data: bytes
    reason: int | None = None


@dataclass(frozen=True)
class TimewaitExit:
    """No packet of the connection can be under way any more: its queue pair may be reused."""

    connection: Connection


@dataclass(frozen=True)
class SidrRequested:
    """A peer asks for the queue pair of a datagram service: `answer` it."""

    request: SidrRequest
    listener: Listener
    private_data: bytes


@dataclass(frozen=True)
class SidrResolved:
    """Brings the answer to `resolve`; `qpn` and `qkey` count if `status` is "valid"."""

    request: SidrRequest
    status: str
    qpn: int
    qkey: int
    private_data: bytes


@dataclass(frozen=True)
class SidrUnreachable:
    """The peer did not answer `resolve`."""

    request: SidrRequest


Event = (
    ConnectRequest
    | ConnectResponse
    | Established
    | Rejected
    | Unreachable
    | Disconnected
    | TimewaitExit
    | SidrRequested
    | SidrResolved
    | SidrUnreachable
)
