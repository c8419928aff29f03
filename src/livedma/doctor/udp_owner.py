"""Who has a UDP port."""

from __future__ import annotations

import contextlib
import ipaddress
import os
import pwd
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

__all__ = ["ROCE_PORT", "Owner", "owner_of"]

ROCE_PORT = 4791


@dataclass(frozen=True)
class Owner:
    text: str
    fix: str = ""
    pid: int | None = None


@dataclass(frozen=True)
class _Socket:
    address: ipaddress.IPv4Address | ipaddress.IPv6Address
    uid: int
    inode: int


def owner_of(address: str, port: int) -> Owner:
    """Of the socket that keeps others from the address."""
    wanted = ipaddress.ip_address(address)
    for one in _sockets(port):
        if one.address == wanted or one.address.is_unspecified:
            return _describe(one, port)
    return Owner("nobody any more")


def _sockets(port: int) -> Iterator[_Socket]:
    for table in ("udp", "udp6"):
        try:
            lines = Path(f"/proc/self/net/{table}").read_text().splitlines()[1:]
        except OSError:  # a kernel without IPv6
            continue
        for line in lines:
            fields = line.split()
            where, _, number = fields[1].partition(":")
            if int(number, 16) == port:
                yield _Socket(_address(where), int(fields[7]), int(fields[9]))


def _address(text: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address:
    """The kernel prints an address as words of four bytes, each in the machine's order."""
    words = (int(text[i : i + 8], 16) for i in range(0, len(text), 8))
    return ipaddress.ip_address(b"".join(word.to_bytes(4, sys.byteorder) for word in words))


def _describe(one: _Socket, port: int) -> Owner:
    for pid in _holders(one.inode):
        with contextlib.suppress(OSError):
            name = Path(f"/proc/{pid}/comm").read_text().strip()
            return Owner(f"{name} (process {pid})", f"kill {pid}", pid)
    rxe = sorted(path.name for path in Path("/sys/class/infiniband").glob("rxe*"))
    if one.uid == 0 and rxe:
        return Owner(f"the kernel's {rxe[0]}", f"sudo rdma link delete {rxe[0]}")
    try:
        user = pwd.getpwuid(one.uid).pw_name
    except KeyError:
        user = str(one.uid)
    return Owner(f"a process of {user} that cannot be seen", f"sudo ss -ulpn 'sport = :{port}'")


def _holders(inode: int) -> Iterator[int]:
    target = f"socket:[{inode}]"
    for directory in Path("/proc").glob("[0-9]*/fd"):
        with contextlib.suppress(OSError):
            if any(os.readlink(entry) == target for entry in os.scandir(directory)):
                yield int(directory.parent.name)
