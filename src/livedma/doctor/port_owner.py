# SPDX-License-Identifier: BSD-2-Clause
"""Finds the process or kernel service that has a port."""

from __future__ import annotations

import contextlib
import ipaddress
import os
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from livedma.doctor.commands import livedma
from livedma.doctor.holder import Holder, holder_of, user_name
from livedma.privilege import as_root

__all__ = ["ROCE_PORT", "Owner", "listeners", "owner_of"]

ROCE_PORT = 4791

Protocol = Literal["udp", "tcp"]
_LISTENS = "0A"  # a TCP socket's state


@dataclass(frozen=True)
class Owner:
    text: str
    look: str = ""  #: the command that shows more about it
    pid: int | None = None
    command: str = ""  #: livedma's command, if it is livedma's own


@dataclass(frozen=True)
class _Socket:
    address: ipaddress.IPv4Address | ipaddress.IPv6Address
    uid: int
    inode: int


def owner_of(address: str, port: int, protocol: Protocol) -> Owner:
    """Returns the owner of the socket that keeps others off the address."""
    wanted = ipaddress.ip_address(address)
    for one in _sockets(port, protocol):
        if one.address == wanted or one.address.is_unspecified or wanted.is_unspecified:
            return _describe(one, port, protocol)
    return Owner("no process any more")


def listeners(port: int) -> list[tuple[str, Owner]]:
    """Returns the addresses at which a TCP port is listened on, and the owners."""
    return [(str(one.address), _describe(one, port, "tcp")) for one in _sockets(port, "tcp")]


def _sockets(port: int, protocol: Protocol) -> Iterator[_Socket]:
    for table in (protocol, f"{protocol}6"):
        try:
            lines = Path(f"/proc/self/net/{table}").read_text().splitlines()[1:]
        except OSError:  # a kernel without IPv6
            continue
        for line in lines:
            fields = line.split()
            where, _, number = fields[1].partition(":")
            if int(number, 16) == port and (protocol == "udp" or fields[3] == _LISTENS):
                yield _Socket(_address(where), int(fields[7]), int(fields[9]))


def _address(text: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address:
    """Parses an address: the kernel prints words of four bytes, each in the machine's order."""
    words = (int(text[i : i + 8], 16) for i in range(0, len(text), 8))
    return ipaddress.ip_address(b"".join(word.to_bytes(4, sys.byteorder) for word in words))


def _describe(one: _Socket, port: int, protocol: Protocol) -> Owner:
    for pid in _holders(one.inode):
        if holder := holder_of(pid):
            return Owner(str(holder), _look(holder), pid, holder.command)
    if one.uid == 0 and (known := _of_the_kernel(protocol, port)):
        return known
    flag = "u" if protocol == "udp" else "t"
    look = as_root(f"ss -{flag}lpn 'sport = :{port}'")
    return Owner(f"a process of {user_name(one.uid)} that cannot be seen", look)


def _look(holder: Holder) -> str:
    """Returns a command that shows more of a process; whether to end it is its user's decision."""
    if holder.command == "serve" and holder.control:
        return livedma(f"why --control {holder.control}")
    return f"ps -fp {holder.pid}"


def _of_the_kernel(protocol: Protocol, port: int) -> Owner | None:
    """Returns the owner of a socket of the kernel's own: it belongs to root, and to no process."""
    rxe = sorted(path.name for path in Path("/sys/class/infiniband").glob("rxe*"))
    if (protocol, port) == ("udp", ROCE_PORT) and rxe:
        return Owner(f"the kernel's {rxe[0]}", "rdma resource show")
    if (protocol, port) == ("tcp", 2049) and os.path.exists("/proc/fs/nfsd"):
        return Owner("the kernel's NFS server", as_root("exportfs -v"))
    return None


def _holders(inode: int) -> Iterator[int]:
    target = f"socket:[{inode}]"
    for directory in Path("/proc").glob("[0-9]*/fd"):
        with contextlib.suppress(OSError):
            if any(os.readlink(entry) == target for entry in os.scandir(directory)):
                yield int(directory.parent.name)
