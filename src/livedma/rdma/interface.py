"""What the system knows about the interface behind an address."""

from __future__ import annotations

import ipaddress
import socket
from dataclasses import dataclass

from livedma.rdma import rtnetlink

# IP, UDP, BTH and the largest extension header, rounded up as the kernel's rxe does.
HEADERS = 80


@dataclass(frozen=True)
class Interface:
    index: int
    name: str
    mtu: int

    @property
    def path_mtu(self) -> int:
        """The largest RDMA MTU that fits the interface."""
        return next((m for m in (4096, 2048, 1024, 512) if m + HEADERS <= self.mtu), 256)


def interface_of(address: str) -> Interface:
    """Raises LookupError if no interface of this host has the address."""
    wanted = ipaddress.ip_address(address.partition("%")[0])
    for found in rtnetlink.addresses():
        # all of 127.0.0.0/8 is this host
        if found.own.ip == wanted or (wanted.is_loopback and wanted in found.own.network):
            link = next(link for link in rtnetlink.links() if link.index == found.index)
            return Interface(link.index, link.name, link.mtu)
    raise LookupError(f"no interface of this host has the address {address}")


def addresses() -> list[str]:
    """All of this host but link-local ones: those that a server without a wish listens at."""
    found = [one.own.ip for one in rtnetlink.addresses()]
    return [str(one) for one in found if not one.is_link_local]


def source_for(peer: str) -> str:
    """The address of this host from which packets to the peer go."""
    family, _, _, _, where = socket.getaddrinfo(peer, 4791, type=socket.SOCK_DGRAM)[0]
    with socket.socket(family, socket.SOCK_DGRAM) as probe:
        probe.connect(where)
        return str(probe.getsockname()[0])
