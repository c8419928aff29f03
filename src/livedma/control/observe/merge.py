"""What the wire and the server know of the same connections, as one snapshot."""

from __future__ import annotations

import ipaddress
from dataclasses import replace
from functools import lru_cache

from livedma.monitor.snapshot import Connection, Session, Snapshot

__all__ = ["key_of", "merged"]


def merged(inside: Snapshot, outside: Snapshot) -> Snapshot:
    """Operations, bytes, latencies and what went wrong on the way: from the wire, where it has
    seen the connection (its ends tell which) or the session. All else, also what is in flight: the
    server's.
    """
    wire = {key_of(one): one for one in outside.connections}
    wire_sessions = {one.id: one for one in outside.sessions}
    return replace(
        inside,
        source="bpf+server",
        connections=tuple(_connection(one, wire.get(key_of(one))) for one in inside.connections),
        sessions=tuple(_session(one, wire_sessions.get(one.id)) for one in inside.sessions),
        losses=outside.losses,
    )


def key_of(connection: Connection) -> tuple[str, int, str, int]:
    """Its ends, which both know."""
    return (
        _address(connection.server),
        connection.server_qpn,
        _address(connection.client),
        connection.client_qpn,
    )


@lru_cache(256)
def _address(text: str) -> str:
    """As everybody writes it."""
    return str(ipaddress.ip_address(text.partition("%")[0]))


def _connection(own: Connection, seen: Connection | None) -> Connection:
    if seen is None or (own.operations and not seen.operations):
        return own  # it does not know it yet, or not enough of it
    return replace(
        seen,
        number=own.number,
        sessions=own.sessions,
        in_flight=own.in_flight,
        inside=own.inside,
    )


def _session(own: Session, seen: Session | None) -> Session:
    if seen is None or (own.operations and not seen.operations):
        return own
    return Session(  # there may be thousands, and `replace` takes its time
        own.id,
        own.connections,
        seen.operations,
        seen.read_bytes,
        seen.written_bytes,
        seen.latency,
        own.in_flight,
        own.inside,
    )
