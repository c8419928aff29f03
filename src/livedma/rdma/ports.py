# SPDX-License-Identifier: BSD-2-Clause
"""Says in words how a device's packets come in: which port was chosen, why, and what to do about
it."""

from __future__ import annotations

import errno
import os

from livedma.errors import LivedmaError, PrivilegeError

_WEAKER = "16 of the ICRC's 32 bits protect, since a UDP socket hides the IPv4 ID"
_OBSTACLES = {
    errno.EPERM: "it needs CAP_NET_RAW: run it as root",
    errno.EACCES: "it needs CAP_NET_RAW: run it as root",
    errno.EOPNOTSUPP: "it needs Linux 6.10 and an interface with Ethernet headers",
}


def reason(kind: str, ip_version: int, packet_errno: int) -> str:
    """Says why a device has its port, and what that means for the ICRC: for `livedma doctor`."""
    if kind == "packet":
        return "every ICRC is verified in full"
    if ip_version == 6:
        return "every ICRC is verified in full: IPv6 needs no packet port for it"
    if not packet_errno:
        return f"{_WEAKER}; it was asked for"
    return f"{_WEAKER}; no packet port: {_obstacle(packet_errno)}"


def refusal(error: OSError, address: str, ip_version: int) -> LivedmaError:
    """Makes the error that says why the packet port that was asked for cannot be opened."""
    if ip_version == 6:
        return LivedmaError(
            f"{address} needs no packet port, which is for IPv4: the UDP port verifies every ICRC"
            " of IPv6 in full"
        )
    kind = PrivilegeError if error.errno in (errno.EPERM, errno.EACCES) else LivedmaError
    return kind(f"no packet port at {address}: {_obstacle(error.errno or 0)}; or use the UDP port")


def in_use(address: str, share_reason: str) -> LivedmaError:
    """Makes the error for an address in use. share_reason: why it cannot be shared from here."""
    taken = f"UDP port 4791 at {address} is in use by another device (see `ss -ulpn`)"
    ways = "use another address with -I, or with a server's --listen"
    if ":" in address:
        ways += "; or the server's IPv4 address, or load's --proto tcp"
    else:
        ways += " (any of 127.0.0.0/8 is this host)"
    if not share_reason:
        return LivedmaError(
            f"{taken}, which does not share it, or is another user's or container's; {ways}"
        )
    return LivedmaError(f"{taken}; {ways}. No sharing: {share_reason}")


def _obstacle(code: int) -> str:
    return _OBSTACLES.get(code, os.strerror(code))
