# SPDX-License-Identifier: BSD-2-Clause
"""Checks the TCP ports that a server would listen on, and their present owners."""

from __future__ import annotations

from collections.abc import Sequence

from livedma.doctor.commands import livedma
from livedma.doctor.finding import Finding
from livedma.doctor.port_owner import listeners

__all__ = ["tcp_ports"]

_NFS, _WEB = 2049, 20080


def tcp_ports() -> Sequence[Finding]:
    return [
        _port("nfs-port", _NFS, "NFS over TCP", "serve DIR --tcp {}", _NFS + 10000),
        _port("web-port", _WEB, "the web page", "serve DIR --web 127.0.0.1:{}", _WEB + 1),
    ]


def _port(name: str, port: int, purpose: str, arguments: str, other: int) -> Finding:
    """Checks one port. other: where to begin to look for a free port."""
    found = listeners(port)
    facts = {
        "port": port,
        "is_free": not found,
        "listeners": [
            {"address": address, "owner": owner.text, "pid": owner.pid} for address, owner in found
        ],
        "is_own": bool(found and found[0][1].command),
    }
    if not found:
        return Finding(name, "fine", f"TCP port {port} is free, for {purpose}", facts=facts)
    address, owner = found[0]
    text = f"TCP port {port} at {address} is in use by {owner.text}"
    cost = f"{'a second server' if owner.command else 'livedma serve'} needs another for {purpose}"
    while listeners(other):
        other += 1
    fix = livedma(arguments.format(other))
    return Finding(name, "costs", text, cost, fix, facts, look=owner.look)
