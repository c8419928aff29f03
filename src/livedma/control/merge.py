"""What the wire and the server know of the same connections, as one snapshot."""

from __future__ import annotations

from dataclasses import replace

from livedma.monitor.snapshot import Connection, Session, Snapshot

__all__ = ["merged"]


def merged(inside: Snapshot, outside: Snapshot) -> Snapshot:
    """Operations, bytes, latencies and what went wrong on the way: from the wire, where it has
    seen the connection (its queue pairs tell which) or the session. All else: the server's.
    """
    wire = {(one.server_qpn, one.client_qpn): one for one in outside.connections}
    wire_sessions = {one.id: one for one in outside.sessions}
    return replace(
        inside,
        source="bpf+server",
        connections=tuple(
            _connection(one, wire.get((one.server_qpn, one.client_qpn)))
            for one in inside.connections
        ),
        sessions=tuple(_session(one, wire_sessions.get(one.id)) for one in inside.sessions),
        losses=outside.losses,
    )


def _connection(own: Connection, seen: Connection | None) -> Connection:
    if seen is None or (own.operations and not seen.operations):
        return own  # it does not know it yet, or not enough of it
    return replace(seen, number=own.number, sessions=own.sessions, inside=own.inside)


def _session(own: Session, seen: Session | None) -> Session:
    if seen is None or (own.operations and not seen.operations):
        return own
    return replace(seen, connections=own.connections, inside=own.inside)
