"""TCP ports that a server would listen on, and who does already."""

from __future__ import annotations

from collections.abc import Sequence

from livedma.doctor.commands import livedma
from livedma.doctor.finding import Finding
from livedma.doctor.port_owner import listeners

__all__ = ["tcp_ports"]

_NFS, _WEB = 2049, 20080


def tcp_ports() -> Sequence[Finding]:
    return [
        _port("nfs-port", _NFS, "NFS over TCP", f"serve DIR --tcp {_NFS + 10000}"),
        _port("web-port", _WEB, "the web page", f"serve DIR --web 127.0.0.1:{_WEB + 1}"),
    ]


def _port(name: str, port: int, purpose: str, arguments: str) -> Finding:
    found = listeners(port)
    facts = {
        "port": port,
        "is_free": not found,
        "listeners": [
            {"address": address, "owner": owner.text, "pid": owner.pid} for address, owner in found
        ],
    }
    if not found:
        return Finding(name, "fine", f"TCP port {port} is free, for {purpose}", facts=facts)
    address, owner = found[0]
    text = f"TCP port {port} at {address} is in use by {owner.text}"
    cost = f"livedma serve needs another for {purpose}"
    return Finding(name, "costs", text, cost, livedma(arguments), facts)
