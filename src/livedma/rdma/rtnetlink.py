# SPDX-License-Identifier: BSD-2-Clause
"""Reads the interfaces of this host and their addresses, which the kernel tells by rtnetlink(7).

The code is small and written by hand: importing a library takes longer than most commands run.
"""

from __future__ import annotations

import ipaddress
import os
import socket
import struct
from collections.abc import Iterator
from dataclasses import dataclass

__all__ = [
    "GET_LINK",
    "IFF_UP",
    "LINK",
    "Address",
    "Link",
    "addresses",
    "attributes",
    "everything",
    "links",
]

IpInterface = ipaddress.IPv4Interface | ipaddress.IPv6Interface

_HEADER = struct.Struct("=IHHII")  # length, type, flags, sequence, port
_ADDRESS = struct.Struct("=BBBBI")  # family, length of the prefix, flags, scope, index
LINK = struct.Struct("=BxHiII")  # family, type, index, flags, which flags change
_ATTRIBUTE = struct.Struct("=HH")  # length, type
_ERROR = struct.Struct("=i")

GET_LINK, _GET_ADDRESS = 18, 22
_IS_ERROR, _IS_DONE = 2, 3
_REQUEST_ALL = 0x001 | 0x300
_CHANGED_MEANWHILE = 0x010
_IFLA_IFNAME, _IFLA_MTU = 3, 4
_IFA_ADDRESS, _IFA_LOCAL = 1, 2
IFF_UP = 0x1
_MESSAGE_BYTES = 1 << 16  # the kernel fills up to 32 KiB
_TYPE = 0x3FFF  # the other bits say that attributes are nested in it, or its byte order
_TRIES = 10


@dataclass(frozen=True)
class Link:
    index: int
    name: str
    mtu: int
    is_up: bool


@dataclass(frozen=True)
class Address:
    index: int  #: of its interface
    own: IpInterface


def links() -> list[Link]:
    """Returns all interfaces of the network namespace."""
    found = []
    for message in everything(GET_LINK, LINK.pack(0, 0, 0, 0, 0)):
        _, _, index, flags, _ = LINK.unpack_from(message)
        told = dict(attributes(message[LINK.size :]))
        name = told[_IFLA_IFNAME].rstrip(b"\0").decode()
        (mtu,) = struct.unpack("=I", told[_IFLA_MTU])
        found.append(Link(index, name, mtu, bool(flags & IFF_UP)))
    return found


def addresses() -> list[Address]:
    """Returns all addresses of IPv4 and IPv6."""
    found = []
    for message in everything(_GET_ADDRESS, _ADDRESS.pack(0, 0, 0, 0, 0)):
        family, prefix, _, _, index = _ADDRESS.unpack_from(message)
        told = dict(attributes(message[_ADDRESS.size :]))
        packed = told.get(_IFA_LOCAL) or told.get(_IFA_ADDRESS)
        if family in (socket.AF_INET, socket.AF_INET6) and packed is not None:
            own = ipaddress.ip_interface((packed, prefix))
            found.append(Address(index, own))
    return found


def everything(kind: int, body: bytes) -> list[bytes]:
    """Returns all messages of a kind, without their headers, as a consistent snapshot.

    If something changed while the kernel sent them, the kernel is asked again.
    """
    for _ in range(_TRIES):
        found = list(_dump(kind, body))
        if not any(flags & _CHANGED_MEANWHILE for flags, _ in found):
            break
    return [message for _, message in found]


def _dump(kind: int, body: bytes) -> Iterator[tuple[int, bytes]]:
    request = _HEADER.pack(_HEADER.size + len(body), kind, _REQUEST_ALL, 1, 0) + body
    with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, socket.NETLINK_ROUTE) as kernel:
        kernel.send(request)
        while True:
            received = kernel.recv(_MESSAGE_BYTES)
            while received:
                length, of, flags, _, _ = _HEADER.unpack_from(received)
                message = received[_HEADER.size : length]
                if of == _IS_ERROR:
                    (code,) = _ERROR.unpack_from(message)
                    raise OSError(-code, os.strerror(-code))
                if of == _IS_DONE:
                    return
                yield flags, message
                received = received[_aligned(length) :]


def attributes(rest: bytes) -> Iterator[tuple[int, bytes]]:
    """Yields types and values. Attributes nested in a value are read by another call."""
    while len(rest) >= _ATTRIBUTE.size:
        length, kind = _ATTRIBUTE.unpack_from(rest)
        yield kind & _TYPE, rest[_ATTRIBUTE.size : length]
        rest = rest[_aligned(length) :]


def _aligned(length: int) -> int:
    return (length + 3) & ~3
