"""What the system knows about the interface behind an address."""

from __future__ import annotations

import ipaddress
import socket
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from pyroute2 import IPRoute

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
    # In a thread of its own: pyroute2 runs an event loop, which a thread with a running one cannot.
    with ThreadPoolExecutor(1) as thread:
        return thread.submit(_interface_of, address).result()


def _interface_of(address: str) -> Interface:
    wanted = ipaddress.ip_address(address.partition("%")[0])
    with IPRoute() as route:
        family = socket.AF_INET if wanted.version == 4 else socket.AF_INET6
        for entry in route.get_addr(family=family):
            text = entry.get_attr("IFA_LOCAL") or entry.get_attr("IFA_ADDRESS")
            own = ipaddress.ip_interface(f"{text}/{entry['prefixlen']}")
            # all of 127.0.0.0/8 is this host
            if own.ip == wanted or (wanted.is_loopback and wanted in own.network):
                link = route.get_links(entry["index"])[0]
                name, mtu = link.get_attr("IFLA_IFNAME"), link.get_attr("IFLA_MTU")
                return Interface(entry["index"], name, mtu)
    raise LookupError(f"no interface of this host has the address {address}")


def addresses() -> list[str]:
    """All of this host but link-local ones: those that a server without a wish listens at."""
    with ThreadPoolExecutor(1) as thread:
        return thread.submit(_addresses).result()


def _addresses() -> list[str]:
    with IPRoute() as route:
        found = [
            ipaddress.ip_address(entry.get_attr("IFA_LOCAL") or entry.get_attr("IFA_ADDRESS"))
            for entry in route.get_addr()
        ]
    return [str(one) for one in found if not one.is_link_local]


def source_for(peer: str) -> str:
    """The address of this host from which packets to the peer go."""
    family, _, _, _, where = socket.getaddrinfo(peer, 4791, type=socket.SOCK_DGRAM)[0]
    with socket.socket(family, socket.SOCK_DGRAM) as probe:
        probe.connect(where)
        return str(probe.getsockname()[0])
