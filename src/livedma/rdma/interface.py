# SPDX-License-Identifier: BSD-2-Clause
"""Finds out what the system knows about the interface behind an address."""

from __future__ import annotations

import ipaddress
import socket
from dataclasses import dataclass

from livedma.rdma import rtnetlink

_LOOPBACK = ipaddress.IPv4Network("127.0.0.0/8")
_NEIGHBOURS = 250
# IP, UDP, BTH and the largest extension header, rounded up as the kernel's rxe does.
HEADERS = 80


@dataclass(frozen=True)
class Interface:
    index: int
    name: str
    mtu: int

    @property
    def path_mtu(self) -> int:
        """Is the largest RDMA MTU that fits the interface."""
        return next((m for m in (4096, 2048, 1024, 512) if m + HEADERS <= self.mtu), 256)


def interface_of(address: str) -> Interface:
    """Finds the interface that has the address. Raises LookupError if this host has none."""
    wanted = ipaddress.ip_address(address.partition("%")[0])
    for found in rtnetlink.addresses():
        # Every address of 127.0.0.0/8 belongs to this host.
        if found.own.ip == wanted or (wanted.is_loopback and wanted in found.own.network):
            link = next(link for link in rtnetlink.links() if link.index == found.index)
            return Interface(link.index, link.name, link.mtu)
    raise LookupError(f"no interface of this host has the address {address}")


def addresses() -> list[str]:
    """Returns this host's addresses but link-local ones: a server listens at them by default."""
    found = [one.own.ip for one in rtnetlink.addresses()]
    return [str(one) for one in found if not one.is_link_local]


def sources(peer: str) -> list[str]:
    """Returns addresses of this host for a device that talks to the peer, in the order to try them.

    A peer on this host has taken its own address, and sharing that needs privilege. If it is an
    IPv4 address, other addresses of the loopback interface reach it, too. IPv6 has a single one.
    The last address is the one whose refusal tells the user most.
    """
    here = source_for(peer)
    found = socket.getaddrinfo(peer, 4791, type=socket.SOCK_DGRAM)[0][4][0]
    there = ipaddress.ip_address(str(found).partition("%")[0])
    if there in _LOOPBACK:
        return [*_loopback_after(there), here]
    if there.version == 4 and here == str(there):
        return [here, *_loopback_after(_LOOPBACK[1]), here]
    return [here]


def _loopback_after(address: ipaddress.IPv4Address | ipaddress.IPv6Address) -> list[str]:
    last = min(int(address) + _NEIGHBOURS, int(_LOOPBACK.broadcast_address))
    return [str(ipaddress.IPv4Address(one)) for one in range(int(address) + 1, last)]


def source_for(peer: str) -> str:
    """Returns the address of this host that packets to the peer come from."""
    family, _, _, _, where = socket.getaddrinfo(peer, 4791, type=socket.SOCK_DGRAM)[0]
    with socket.socket(family, socket.SOCK_DGRAM) as probe:
        probe.connect(where)
        return str(probe.getsockname()[0])
