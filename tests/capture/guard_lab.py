# SPDX-License-Identifier: BSD-2-Clause
"""Two hosts in network namespaces, joined by a veth: one sends, the other is guarded."""

from __future__ import annotations

import itertools
import json
import os
import socket
import subprocess
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from pyroute2 import netns

from livedma import wire
from needs import needs

MACS = ("02:00:00:00:00:01", "02:00:00:00:00:02")
PINS = Path("/sys/fs/bpf/livedma/guard")
CHUNK = 64  # frames in flight: far fewer than a veth's queue holds
_MARK = b"\x88\xb5"  # an Ethertype for experiments: what follows it is not RoCE
_numbers = itertools.count()


def require_bpf() -> None:
    needs(os.geteuid() == 0, "guards take root")
    needs(_succeeds("bpftool", "prog", "show"), "this kernel has no BPF")
    needs(_succeeds("unshare", "--net", "true"), "network namespaces cannot be made here")


def _succeeds(*words: str) -> bool:
    return subprocess.run(words, capture_output=True).returncode == 0


def ip(*words: str) -> str:
    return subprocess.run(
        ["ip", *words], check=True, capture_output=True, text=True, timeout=20
    ).stdout


@contextmanager
def inside(namespace: str) -> Iterator[None]:
    netns.pushns(namespace)
    try:
        yield
    finally:
        netns.popns()


def frame(
    operation: str = "RC_SEND_ONLY",
    *,
    src: str = "10.99.0.1",
    dst: str = "10.99.0.2",
    qp: int = 7,
    vlan: Sequence[int] = (),
    version: str = "roce2",
    payload: bytes = b"",
) -> bytes:
    packet = wire.encode(operation, src=src, dst=dst, dest_qp=qp, version=version, payload=payload)
    return wire.ethernet(packet, src=MACS[0], dst=MACS[1], vlan=vlan, version=version)


class Lab:
    def __init__(self, *, mtu: int = 1500, queues: tuple[int, int] = (1, 1)) -> None:
        mark = f"g{os.getpid()}n{next(_numbers)}"
        self.outer, self.inner = mark + "o", mark + "i"
        for name in (self.outer, self.inner):
            ip("netns", "add", name)
            for option in ("all", "default"):  # no router solicitations of its own
                self._sysctl(name, f"net/ipv6/conf/{option}/accept_dad", "0")
                self._sysctl(name, f"net/ipv6/conf/{option}/router_solicitations", "0")
        near = ["numtxqueues", str(queues[0]), "numrxqueues", "1"]
        far = ["numtxqueues", "1", "numrxqueues", str(queues[1])]
        ip("-n", self.outer, "link", "add", "out0", "mtu", str(mtu), *near, "type", "veth",
           "peer", "name", "in0", "netns", self.inner, "mtu", str(mtu), *far)  # fmt: skip
        for name, device, mac, last in (
            (self.outer, "out0", MACS[0], 1),
            (self.inner, "in0", MACS[1], 2),
        ):
            ip("-n", name, "link", "set", device, "address", mac, "up")
            ip("-n", name, "addr", "add", f"10.99.0.{last}/24", "dev", device)
            ip("-n", name, "addr", "add", f"fd99::{last}/64", "dev", device, "nodad")
        self.home = self._home()
        self.sender = self._packet_socket(self.outer, "out0")
        self.receiver = self._packet_socket(self.inner, "in0")

    def close(self) -> None:
        self.sender.close()
        self.receiver.close()
        for name in (self.outer, self.inner):
            ip("netns", "del", name)

    def _sysctl(self, namespace: str, key: str, value: str) -> None:
        with inside(namespace):
            Path("/proc/sys", key).write_text(value)

    @staticmethod
    def _packet_socket(namespace: str, device: str) -> socket.socket:
        with inside(namespace):
            made = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 0)
        made.setsockopt(socket.SOL_SOCKET, 33, 16 << 20)  # SO_RCVBUFFORCE
        with inside(namespace):
            made.bind((device, 3))  # ETH_P_ALL
        made.settimeout(60)
        return made

    def send(self, frames: Iterable[bytes]) -> list[bytes]:
        """Sends them in order; returns those that got through, once every one was judged."""
        passed: list[bytes] = []
        frames = iter(frames)
        while chunk := list(itertools.islice(frames, CHUNK)):
            for each in chunk:
                self.sender.send(each)
            # The stack takes the outer tag off before anyone sees the frame.
            ours = {each[:12] + each[16:]: each for each in chunk}
            ours |= {each: each for each in chunk}
            passed += [ours[got] for got in self.seen() if got in ours]
        return passed

    def seen(self) -> list[bytes]:
        """Returns what the guarded host's stack got since the last time, from any sender."""
        mark = os.urandom(8)
        self.sender.send(bytes(6) + bytes.fromhex(MACS[0].replace(":", "")) + _MARK + mark)
        seen = []
        while True:
            got, address = self.receiver.recvfrom(65536)
            if got[12:14] == _MARK and got[14:22] == mark:
                return seen
            if address[2] != socket.PACKET_OUTGOING:
                seen.append(got)

    def passes(self, each: bytes) -> bool:
        return bool(self.send([each]))

    def snmp(self, layer: str) -> dict[str, int]:
        """The guarded host's counters of /proc/net/snmp."""
        text = ip("netns", "exec", self.inner, "cat", "/proc/net/snmp")
        names, values = (line for line in text.splitlines() if line.startswith(layer + ":"))
        return dict(zip(names.split()[1:], map(int, values.split()[1:]), strict=True))

    def _home(self) -> Path:
        """Where the guard of in0 is pinned."""
        with inside(self.inner):
            namespace = os.stat("/proc/thread-self/ns/net").st_ino
            return PINS / f"{namespace}-{socket.if_nametoindex('in0')}"

    def command(self, *words: str) -> subprocess.CompletedProcess[str]:
        """`livedma guard in0 WORDS` on the guarded host."""
        return subprocess.run(
            ["ip", "netns", "exec", self.inner, "livedma", "guard", "in0", *words],
            capture_output=True,
            text=True,
            timeout=60,
        )


def guards() -> list[int]:
    """The ids of the guards' programs that the kernel holds, on whichever interface."""
    programs = json.loads(subprocess.check_output(["bpftool", "-j", "prog", "show"]))
    return [program["id"] for program in programs if program.get("name") == "guard_xdp"]


def eventually(holds: Callable[[], bool], seconds: float = 60) -> bool:
    end = time.monotonic() + seconds
    while not holds():
        if time.monotonic() > end:
            return False
        time.sleep(0.02)
    return True
