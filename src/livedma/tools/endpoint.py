# SPDX-License-Identifier: BSD-2-Clause
"""Opens the device that a command uses: at an address, towards a peer, or at this host's own
address."""

from __future__ import annotations

import contextlib
import ipaddress
import socket

from livedma.errors import LivedmaError
from livedma.rdma import Device, PortKind, rtnetlink
from livedma.rdma.interface import sources

__all__ = ["device_at", "device_towards", "own_address", "resolve"]


def resolve(name: str) -> str:
    """Returns the address of a host, given by name or address."""
    try:
        found = socket.getaddrinfo(name, None, type=socket.SOCK_DGRAM)
    except (OSError, UnicodeError):
        raise LivedmaError(
            f"{name!r} is no address, and no name that can be looked up: write 10.0.0.1 or fd00::1"
        ) from None
    address = str(found[0][4][0])
    if ipaddress.ip_address(address).is_link_local and ":" in address:
        raise LivedmaError(
            f"{name} is a link-local address, which livedma does not use: give another address of "
            "that host"
        )
    return address


def own_address(version: int | None = None) -> str:
    """Returns the first address of this host that others can reach, else loopback's."""
    up = {link.index for link in rtnetlink.links() if link.is_up}
    found = [one.own.ip for one in rtnetlink.addresses() if one.index in up]
    usable = [
        address
        for address in found
        if not address.is_link_local and version in (None, address.version)
    ]
    if not usable:
        raise LivedmaError("this host has no address that is up; see `ip address`")
    return str(min(usable, key=lambda address: (address.is_loopback, address.version)))


def device_at(
    address: str, spin: float, port: PortKind | str = PortKind.AUTO, *, share: bool | None = None
) -> Device:
    """Opens a device; spin, port and share are those of a Device."""
    try:
        return Device(address, spin=spin, port=port, share=share)
    except OSError as error:
        raise LivedmaError(
            f"no device can be opened at {address} ({error.strerror}): see `livedma doctor`"
        ) from None


def device_towards(
    peer: str,
    spin: float,
    source: str | None = None,
    port: PortKind | str = PortKind.AUTO,
    *,
    share: bool | None = None,
) -> Device:
    """Opens a device at the source, or else at the address from which packets to the peer go."""
    if source is not None:
        if (":" in source) != (":" in peer):
            raise LivedmaError(
                f"{source} and {peer} are of different IP versions: use two addresses of one"
            )
        return device_at(source, spin, port, share=share)
    try:
        *others, last = sources(peer)
    except OSError as error:
        raise LivedmaError(f"{peer} cannot be reached ({error.strerror})") from None
    for one in others:
        with contextlib.suppress(LivedmaError):  # this one may be taken
            return device_at(one, spin, port, share=share)
    return device_at(last, spin, port, share=share)
