# SPDX-License-Identifier: BSD-2-Clause
"""Merges what the wire and the server know of the same connections into one snapshot."""

from __future__ import annotations

import ipaddress
from dataclasses import replace
from functools import lru_cache

from livedma.monitor.snapshot import Connection, Session, Snapshot

__all__ = ["key_of", "merged"]


def merged(inside: Snapshot, outside: Snapshot) -> Snapshot:
    """Takes operations, bytes, latencies and errors on the way from the wire, where the wire has
    seen the connection (identified by its ends) or the session. All else, including what is in
    flight, comes from the server, and so does everything about connections over TCP and sessions
    that use one: the wire's source sees nothing of them, or not all.
    """
    wire = {key_of(one): one for one in outside.connections}
    wire_sessions = {one.id: one for one in outside.sessions}
    tcp = {one.number for one in inside.connections if one.is_tcp}
    return replace(
        inside,
        source="bpf+server",
        connections=tuple(
            one if one.is_tcp else _connection(one, wire.get(key_of(one)))
            for one in inside.connections
        ),
        sessions=tuple(
            one
            if tcp and not tcp.isdisjoint(one.connections)
            else _session(one, wire_sessions.get(one.id))
            for one in inside.sessions
        ),
        losses=outside.losses,
    )


def key_of(connection: Connection) -> tuple[str, int, str, int]:
    """Returns the connection's two ends, which both sources know."""
    return (
        _address(connection.server),
        connection.server_qpn,
        _address(connection.client),
        connection.client_qpn,
    )


@lru_cache(256)
def _address(text: str) -> str:
    """Writes an address in its canonical form, without a zone."""
    return str(ipaddress.ip_address(text.partition("%")[0]))


def _connection(own: Connection, seen: Connection | None) -> Connection:
    if seen is None or (own.operations and not seen.operations):
        return own  # the wire has not seen the connection yet, or not enough of it
    return replace(
        seen,
        number=own.number,
        sessions=own.sessions,
        in_flight=own.in_flight,
        inside=own.inside,
        client_port=own.client_port,
        client_name=own.client_name,
        refuses_sessions=own.refuses_sessions,
    )


def _session(own: Session, seen: Session | None) -> Session:
    if seen is None or (own.operations and not seen.operations):
        return own
    return Session(  # there may be thousands, and `replace` is slow
        own.id,
        own.connections,
        seen.operations,
        seen.read_bytes,
        seen.written_bytes,
        seen.latency,
        own.in_flight,
        own.inside,
    )
