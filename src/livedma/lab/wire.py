# SPDX-License-Identifier: BSD-2-Clause
"""Puts a bad wire between hosts, or between a guest and all others, as a fixture. Needs root.

A thread of this process copies frames between two packet sockets, and on the way each direction
does to them what its rules say (impairment.py). Offloads are off on both sides: the packets pass as
on a cable, one by one, with complete checksums.
"""

from __future__ import annotations

import contextlib
import os
import select
import socket
import struct
import threading
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from livedma.errors import LabError
from livedma.lab.hosts import Host, connect
from livedma.lab.impairment import ENDS, Impairment, Rule

if TYPE_CHECKING:
    from livedma.lab.guest import Guest, Lab

__all__ = ["Rule", "Wire", "guest_wire", "wire_name", "wired_hosts"]

_ALL_PROTOCOLS = 0x0003
_SOL_PACKET, _PACKET_STATISTICS, _PACKET_IGNORE_OUTGOING = 263, 6, 23
_SO_SNDBUFFORCE, _SO_RCVBUFFORCE = 32, 33
_BUFFER_BYTES = 64 << 20
_LONGEST_FRAME = 65_550
_BATCH = 64
_IDLE_MS = 200
_END_LIMIT_S = 10.0
_LAB_MTU = 9000
_OFFLOADS_OFF = {"tx": False, "sg": False, "tso": False, "gso": False, "gro": False}


class Wire:
    """Copies packets between two packet sockets, in a thread. Ends with close()."""

    def __init__(
        self, near: socket.socket, far: socket.socket, rules: Sequence[Rule] = (), seed: int = 0
    ) -> None:
        self._sockets = {"near": near, "far": far}
        self._ways = {end: Impairment(end, rules, seed) for end in ENDS}
        self._lock = threading.Lock()
        self._lost: Counter[str] = Counter()
        self._wake_read, self._wake_write = os.pipe()
        self._error: BaseException | None = None
        self._is_ending = False
        self._thread = threading.Thread(target=self._run, name="wire", daemon=True)
        self._thread.start()

    def set_rules(self, *rules: Rule) -> None:
        """Sets the rules from the next packet on; they begin to skip and count `times` anew."""
        with self._lock:
            for way in self._ways.values():
                way.set_rules(rules)

    def counts(self, to: str) -> Counter[str]:
        """Returns what was done to the packets that go to an end; "seen" counts them all."""
        with self._lock:
            return Counter(self._ways[to].counts)

    @property
    def is_working(self) -> bool:
        return self._thread.is_alive()

    def lost(self) -> int:
        """Returns the frames that came too fast for the wire: counts are exact only if it is 0."""
        for end, sock in self._sockets.items():
            # Reading them resets them.
            self._lost[end] += struct.unpack(
                "II", sock.getsockopt(_SOL_PACKET, _PACKET_STATISTICS, 8)
            )[1]
        return self._lost.total()

    def close(self) -> None:
        """Ends the thread; raises the error that ended it before, once."""
        if self._thread.is_alive():
            self._is_ending = True
            os.write(self._wake_write, b"x")
            self._thread.join(_END_LIMIT_S)
        for sock in self._sockets.values():
            sock.close()
        with contextlib.suppress(OSError):
            os.close(self._wake_read)
            os.close(self._wake_write)
        error, self._error = self._error, None
        if error is not None:
            raise LabError(f"the wire broke: {error!r}") from error

    def _run(self) -> None:
        try:
            # A veth queues frames by the sender's CPU: one that moves would overtake itself.
            os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})
            poll = select.poll()
            poll.register(self._wake_read, select.POLLIN)
            for sock in self._sockets.values():
                poll.register(sock, select.POLLIN)
            while not self._is_ending:
                poll.poll(self._patience_ms())
                self._copy("near", "far")
                self._copy("far", "near")
        except BaseException as error:  # close() raises it
            self._error = error

    def _patience_ms(self) -> int:
        dues = [way.next_due_ns for way in self._ways.values()]
        waiting = [due for due in dues if due is not None]
        if not waiting:
            return _IDLE_MS
        return max(0, min(_IDLE_MS, (min(waiting) - time.monotonic_ns()) // 1_000_000 + 1))

    def _copy(self, source: str, target: str) -> None:
        way, receive, send = self._ways[target], self._sockets[source], self._sockets[target]
        with self._lock:
            for _ in range(_BATCH):
                try:
                    data = receive.recv(_LONGEST_FRAME, socket.MSG_DONTWAIT)
                except BlockingIOError:
                    break
                for frame in way.take(data, time.monotonic_ns()):
                    send.send(frame)
            for frame in way.due(time.monotonic_ns()):
                send.send(frame)


def _packet_socket(host: Host) -> socket.socket:
    """Takes all frames that come in through the host's interface; the kernel ignores them."""
    with host.inside():
        settings = Path("/proc/sys/net")
        (settings / f"ipv6/conf/{host.iface}/disable_ipv6").write_text("1")
        (settings / f"ipv4/conf/{host.iface}/arp_ignore").write_text("8")
        sock = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 0)
    sock.setsockopt(socket.SOL_SOCKET, _SO_RCVBUFFORCE, _BUFFER_BYTES)
    sock.setsockopt(socket.SOL_SOCKET, _SO_SNDBUFFORCE, _BUFFER_BYTES)
    sock.setsockopt(_SOL_PACKET, _PACKET_IGNORE_OUTGOING, 1)
    with host.inside():
        sock.bind((host.iface, _ALL_PROTOCOLS))
    return sock


def wire_name() -> str:
    """Returns the name of the namespace between the hosts of this process."""
    return f"ldma-{os.getpid()}-wire"


@contextlib.contextmanager
def wired_hosts(*rules: Rule, mtu: int = 1500, seed: int = 0) -> Iterator[tuple[Host, Host, Wire]]:
    """Yields two hosts at 10.80.0.1 (near) and .2 (far), and the wire between them."""
    from pyroute2 import netns

    name = wire_name()
    hosts = {
        end: Host(f"{name}-{end}", "eth0", f"10.80.0.{i}", f"fd80::{i}")
        for i, end in enumerate(ENDS, 1)
    }
    with contextlib.ExitStack() as stack:
        for namespace in (name, *(host.name for host in hosts.values())):
            netns.create(namespace)
            stack.callback(netns.remove, namespace)
        middles = {end: Host(name, end, "", "") for end in ENDS}
        for end, host in hosts.items():
            connect(host, middles[end], mtu)
            host.offload(**_OFFLOADS_OFF)
        near, far = (_packet_socket(middles[end]) for end in ENDS)
        wire = Wire(near, far, rules, seed)
        stack.callback(wire.close)
        yield hosts["near"], hosts["far"], wire


@contextlib.contextmanager
def guest_wire(lab: Lab, guest: Guest, *rules: Rule, seed: int = 0) -> Iterator[Wire]:
    """Puts the guest (far) behind a wire; the host between and the other guest are near.

    A capture on the guest's TAP sees what the guest sees, one on `wire-a` (or b) what the others
    see. Offloads of the guest are off meanwhile.
    """
    ends = {"near": f"wire-{guest.name}", "inside": f"inside-{guest.name}"}
    host = lab.host
    bridge_port, inside, tap = (
        Host(host.name, iface, "", "") for iface in (*ends.values(), guest.tap)
    )
    with contextlib.ExitStack() as stack:
        guest.run("ethtool -K eth0 tx off", check=True)
        stack.callback(guest.run, "ethtool -K eth0 tx on", check=True)
        with host.netlink() as ip:
            for index in ip.link_lookup(ifname=ends["near"]):  # a killed process left it
                ip.link("del", index=index)
            ip.link("add", ifname=ends["near"], kind="veth", peer=ends["inside"])
        stack.callback(bridge_port.remove_link)
        bridge_port.offload(**_OFFLOADS_OFF)
        bridge = host.ifindex
        stack.callback(tap.set_link, master=bridge)
        tap.set_link(master=0)
        inside.set_link(mtu=_LAB_MTU, state="up")
        wire = Wire(_packet_socket(inside), _packet_socket(tap), rules, seed)
        stack.callback(wire.close)
        bridge_port.set_link(mtu=_LAB_MTU, master=bridge, state="up")
        yield wire
