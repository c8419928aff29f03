# SPDX-License-Identifier: BSD-2-Clause
"""Makes hosts on this machine: network namespaces joined by veth pairs. Needs root.

pyroute2 makes them. It is imported only where they are made: a demo on loopback needs none.
"""

from __future__ import annotations

import contextlib
import ctypes
import fcntl
import itertools
import os
import socket
import struct
import subprocess
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

T = TypeVar("T")

_numbers = itertools.count(1)

_SIOCGIFHWADDR = 0x8927
_SIOCETHTOOL = 0x8946
_GET_FLAGS, _SET_FLAGS = 0x25, 0x26
_FLAGS = {"txvlan": 1 << 7, "rxvlan": 1 << 8}
_SWITCHES = {"rx": 0x15, "tx": 0x17, "sg": 0x19, "tso": 0x1F, "gso": 0x24, "gro": 0x2C}
_NO_DAD = 0x02  # IFA_F_NODAD: the address can be used at once


class Task(Generic[T]):
    """Runs a function inside a host; result() waits for it, and raises what it raised."""

    def __init__(self, host: Host, function: Callable[[], T]) -> None:
        self._host = host
        self._function = function
        self._error: BaseException | None = None
        self._value: T
        self._thread = threading.Thread(target=self._run, name=f"on {host.name}")
        self._thread.start()

    def _run(self) -> None:
        try:
            with self._host.inside():
                self._value = self._function()
        except BaseException as error:  # result() raises it
            self._error = error

    @property
    def running(self) -> bool:
        return self._thread.is_alive()

    def result(self, timeout_s: float | None = None) -> T:
        self._thread.join(timeout_s)
        if self._thread.is_alive():
            raise TimeoutError(f"{self._thread.name}: still running after {timeout_s} s")
        if self._error is not None:
            raise self._error
        return self._value


@dataclass(frozen=True)
class Host:
    """Represents one namespace with one interface in it, which has no address if that is empty."""

    name: str
    iface: str
    ipv4: str
    ipv6: str

    @contextlib.contextmanager
    def inside(self) -> Iterator[None]:
        """Moves the calling thread into the namespace; sockets made there stay there."""
        from pyroute2 import netns

        with open("/proc/thread-self/ns/net") as home:
            netns.setns(self.name)
            try:
                yield
            finally:
                netns.setns(home.fileno())

    def start(self, function: Callable[[], T]) -> Task[T]:
        """Runs a function inside, in a thread of its own."""
        return Task(self, function)

    def command(self, *argv: str) -> list[str]:
        """Returns the command line that runs argv inside."""
        return ["nsenter", f"--net=/run/netns/{self.name}", *argv]

    def run(self, *argv: str, **options: Any) -> subprocess.CompletedProcess[str]:
        return subprocess.run(self.command(*argv), check=True, text=True, **options)

    @contextlib.contextmanager
    def netlink(self) -> Iterator[Any]:
        from pyroute2 import IPRoute

        with self.inside(), IPRoute() as ip:
            yield ip

    @property
    def ifindex(self) -> int:
        with self.inside():
            return socket.if_nametoindex(self.iface)

    @property
    def mac(self) -> bytes:
        with self.inside(), socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
            request = struct.pack("16s24x", self.iface.encode())
            return fcntl.ioctl(sock, _SIOCGIFHWADDR, request)[18:24]

    def offload(self, **switches: bool) -> None:
        """Switches offloads as ethtool -K does: rx, tx, sg, tso, gso, gro, rxvlan, txvlan."""
        with self.inside(), socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
            for name, on in switches.items():
                if name in _FLAGS:
                    flags = _ethtool(sock, self.iface, _GET_FLAGS, 0) & ~_FLAGS[name]
                    _ethtool(sock, self.iface, _SET_FLAGS, flags | _FLAGS[name] * on)
                else:
                    _ethtool(sock, self.iface, _SWITCHES[name], int(on))

    def set_link(self, **attributes: Any) -> None:
        """Sets attributes as `ip link set` does: state="down", mtu=9000, …"""
        with self.netlink() as ip:
            ip.link("set", index=ip.link_lookup(ifname=self.iface)[0], **attributes)

    def remove_link(self) -> None:
        """Removes the interface, and with it its other end."""
        with self.netlink() as ip:
            ip.link("del", index=ip.link_lookup(ifname=self.iface)[0])


def _ethtool(sock: socket.socket, iface: str, command: int, value: int) -> int:
    data = ctypes.create_string_buffer(struct.pack("II", command, value))
    request = struct.pack("16sP16x", iface.encode(), ctypes.addressof(data))
    fcntl.ioctl(sock, _SIOCETHTOOL, request)
    return int(struct.unpack("II", data.raw[:8])[1])


def connect(left: Host, right: Host, mtu: int = 1500) -> None:
    """Joins two hosts by a veth pair with their addresses, and sets it up."""
    from pyroute2 import IPRoute

    number = next(_numbers)
    ends = [f"ld{os.getpid()}.{number}{end}" for end in "ab"]
    with IPRoute() as ip:
        ip.link("add", ifname=ends[0], kind="veth", peer=ends[1])
        try:
            for host, end in zip((left, right), ends, strict=True):
                index = ip.link_lookup(ifname=end)[0]
                ip.link("set", index=index, mtu=mtu)
                ip.link("set", index=index, net_ns_fd=host.name)
        except BaseException:
            for index in ip.link_lookup(ifname=ends[0]):
                ip.link("del", index=index)
            raise
    for host, end in zip((left, right), ends, strict=True):
        with host.netlink() as ip:
            index = ip.link_lookup(ifname=end)[0]
            ip.link("set", index=index, ifname=host.iface)
            if host.ipv4:
                ip.addr("add", index=index, address=host.ipv4, prefixlen=24)
            if host.ipv6:
                ip.addr("add", index=index, address=host.ipv6, prefixlen=64, flags=_NO_DAD)
            ip.link("set", index=index, state="up")
            ip.link("set", index=ip.link_lookup(ifname="lo")[0], state="up")


@contextlib.contextmanager
def two_hosts(
    mtu: int = 1500, *, iface: str = "eth0", ipv4: str = "10.80.0", ipv6: str = "fd80:"
) -> Iterator[tuple[Host, Host]]:
    """Yields two hosts joined by a veth pair, at .1 and .2; removes everything at the end."""
    from pyroute2 import netns

    number = next(_numbers)
    hosts = [
        Host(f"ldma-{os.getpid()}-{number}{end}", iface, f"{ipv4}.{i}", f"{ipv6}:{i}")
        for i, end in ((1, "a"), (2, "b"))
    ]
    with contextlib.ExitStack() as stack:
        for host in hosts:
            netns.create(host.name)
            stack.callback(netns.remove, host.name)
        connect(hosts[0], hosts[1], mtu)
        yield hosts[0], hosts[1]
