"""How packets would come in, found out by opening a device at each address for a moment."""

from __future__ import annotations

import ipaddress
import os
import sys

from livedma.doctor.finding import Finding
from livedma.errors import LivedmaError
from livedma.rdma import Device

__all__ = ["ports"]


def ports(addresses: list[str]) -> list[Finding]:
    """One finding for each kind of port and the reason for it."""
    found: dict[tuple[str, str, bool], list[str]] = {}
    failed: list[Finding] = []
    for address in addresses:
        try:
            with Device(address, spin=0, max_qp=16) as device:
                is_weak = device.port_kind == "udp" and ipaddress.ip_address(address).version == 4
                key = (device.port_kind, device.port_reason, is_weak)
        except (LivedmaError, OSError) as error:
            failed.append(Finding("port", "costs", f"none at {address}", str(error)))
            continue
        found.setdefault(key, []).append(address)
    return [_port(*key, at) for key, at in found.items()] + failed


def _port(kind: str, reason: str, is_weak: bool, at: list[str]) -> Finding:
    facts = {"kind": kind, "addresses": at}
    text = f"{kind} at {', '.join(at)}"
    if not is_weak:
        return Finding("port", "fine", f"{text}: {reason}", facts=facts)
    fix = f"sudo {os.path.abspath(sys.argv[0])} …"
    return Finding("port", "costs", text, reason, fix if "CAP_NET_RAW" in reason else "", facts)
