# SPDX-License-Identifier: BSD-2-Clause
"""Listens at addresses of a server over TCP, and writes those of connections."""

from __future__ import annotations

import errno
import ipaddress
import socket

from livedma.errors import LivedmaError, PortInUseError, reason

__all__ = ["listen", "own_address", "plain"]

_BACKLOG = 128


def own_address(sock: socket.socket) -> str:
    """Returns the server's address of a connection; "" if the connection is gone already."""
    try:
        return plain(sock.getsockname()[0])
    except OSError:
        return ""


def plain(host: str) -> str:
    """Returns an address without its zone; an IPv4 address as such, also from an IPv6 socket."""
    address = ipaddress.ip_address(host.partition("%")[0])
    return str(getattr(address, "ipv4_mapped", None) or address)


def listen(address: str, port: int) -> socket.socket:
    """Returns a listening socket; an empty address means all of this host. Raises PortInUseError or
    LivedmaError, which say why there is none.
    """
    is_v6 = ":" in address or (not address and socket.has_dualstack_ipv6())
    family = socket.AF_INET6 if is_v6 else socket.AF_INET
    try:
        listener = socket.create_server(
            (address, port),
            family=family,
            backlog=_BACKLOG,
            dualstack_ipv6=is_v6 and not address,
        )
    except OSError as error:
        what = f"TCP port {port} of {address or 'all addresses'}"
        if error.errno == errno.EADDRINUSE:
            raise PortInUseError(f"{what} is in use; take another one by --tcp PORT") from None
        raise LivedmaError(f"{what}: {_why_not(error)}") from None
    listener.setblocking(False)
    return listener


def _why_not(error: OSError) -> str:
    """Returns why a socket cannot listen there."""
    if error.errno == errno.EACCES:
        return "this user may not listen there; take another one by --tcp PORT, 1024 or above"
    if error.errno == errno.EADDRNOTAVAIL:
        return "this host does not have the address"
    return reason(error)
