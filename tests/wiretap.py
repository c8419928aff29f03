# SPDX-License-Identifier: BSD-2-Clause
"""A live capture by the command, on a port of the guests' bridge, and what the guests counted."""

from __future__ import annotations

import contextlib
import json
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from livedma.capture.files import read
from livedma.lab.guest import Guest, Lab

_PORT = "/sys/class/infiniband/rxe0/ports/1"
_PACKETS = "hw_counters"
_SENT = f"{_PACKETS}/sent_pkts"
_PATIENCE_S = 120.0
_AT_REST_S = 10.0  # longer than a kernel waits before it sends something again
MANAGEMENT = ("req", "rep", "rtu", "dreq", "drep", "rej", "mra")


def livedma(*args: str | Path) -> list[str]:
    return [sys.executable, "-m", "livedma.cli", *map(str, args)]


@dataclass
class Wiretap:
    """What was captured; filled in at the end of the capture."""

    path: Path
    said: str = ""
    packets: list[dict[str, Any]] = field(default_factory=list)
    summary: dict[str, Any] = field(default_factory=dict)

    def opcodes(self) -> Counter[str]:
        return Counter(packet["opcode_name"] for packet in self.packets)

    def management(self) -> Counter[str]:
        """Messages of the connection manager, by kind."""
        return Counter(packet["cm"]["attribute"].lower() for packet in self.inside("cm"))

    def inside(self, protocol: str) -> list[dict[str, Any]]:
        return [packet for packet in self.packets if protocol in packet]

    def connections(self) -> list[dict[str, Any]]:
        return [one for one in self.summary["connections"] if not one["is_management"]]

    def assert_whole(self) -> None:
        """The capture lacks no packet, has none twice, and cut none short.

        What the kernels lose between each other and send again is no fault of the capture: a busy
        machine makes them do so, and what they said twice is in the capture twice.
        """
        assert self.packets
        assert all(packet["icrc_ok"] is True for packet in self.packets)
        assert not [packet for packet in self.packets if packet.get("error")]
        assert f"{len(self.packets):,} RoCE packets, no bad ICRC, 0 lost to a full" in self.said
        summary = self.summary
        assert summary["packets"] == len(self.packets)
        zeros = ("errors", "icrc_errors", "not_tracked", "not_roce")
        assert {key: summary[key] for key in zeros} == dict.fromkeys(zeros, 0)
        for connection in summary["connections"]:
            assert connection["not_captured"] == connection["copies"] == 0, connection

    def assert_has_what(self, kernels: Counts) -> None:
        """It has every packet that a kernel received, and none that the other did not send."""
        for sender, receiver in kernels.directions():
            captured = sum(packet["src"] in sender.addresses for packet in self.packets)
            arrived, sent = receiver.counted[f"{_PACKETS}/rcvd_pkts"], sender.counted[_SENT]
            assert arrived <= captured <= sent, (self.path, kernels)


@dataclass
class Counted:
    """What the kernel of one guest counted."""

    addresses: tuple[str, str]
    counted: Counter[str] = field(default_factory=Counter)


@dataclass
class Counts:
    """What the kernels of both guests counted meanwhile; filled in when they have come to rest."""

    a: Counted
    b: Counted

    def directions(self) -> tuple[tuple[Counted, Counted], tuple[Counted, Counted]]:
        """Returns the sender and the receiver."""
        return (self.a, self.b), (self.b, self.a)

    def total(self, name: str) -> int:
        return self.a.counted[name] + self.b.counted[name]


@contextlib.contextmanager
def wiretap(lab: Lab, guest: Guest, path: Path) -> Iterator[Wiretap]:
    """Captures all RoCE from and to a guest, and reads the file at the end."""
    argv = lab.host.command(*livedma("capture", guest.tap, "--format", "pcapng", "--write", path))
    tap = Wiretap(path)
    with subprocess.Popen(argv, stderr=subprocess.PIPE, text=True) as process:
        try:
            assert process.stderr is not None
            for line in process.stderr:
                tap.said += line
                if "Ctrl-C ends it" in line:
                    break
            yield tap
            process.send_signal(signal.SIGINT)
            tap.said += process.communicate(timeout=60)[1]
        finally:
            process.kill()
    assert process.returncode == 0, tap.said
    with read(path) as file:
        packets = sum(len(batch) for batch in file)
        assert file.drops == 0
        assert [one.name for one in file.interfaces] == [guest.tap]
        assert file.interfaces[0].received == packets
    lines = _output("decode", path, "--format", "json").splitlines()
    tap.packets = [json.loads(line) for line in lines]
    tap.summary = json.loads(_output("decode", path, "--summary", "--json"))


def _output(*args: str | Path) -> str:
    return subprocess.run(
        livedma(*args), check=True, stdout=subprocess.PIPE, text=True, timeout=120
    ).stdout


def counters(guest: Guest) -> Counter[str]:
    """What the guest's kernel counted: packets of rxe, messages of its connection manager."""
    files = [f"{_PORT}/hw_counters/{name}" for name in ("sent_pkts", "rcvd_pkts")]
    files += [f"{_PORT}/cm_{way}_msgs/{name}" for way in ("tx", "rx") for name in MANAGEMENT]
    lines = guest.run(f"grep -H . {' '.join(files)}", check=True).stdout.splitlines()
    found: Counter[str] = Counter()
    for line in lines:
        path, _, value = line.rpartition(":")
        found["/".join(path.split("/")[-2:])] = int(value)
    return found


@contextlib.contextmanager
def counted(lab: Lab) -> Iterator[Counts]:
    """What both guests count meanwhile. Ends when they have come to rest.

    That is when each packet has arrived and every disconnect is answered; or, if something was
    lost on the way, when nothing has been counted for a while.
    """
    found = Counts(*(Counted((guest.ipv4, guest.ipv6)) for guest in lab.guests))
    before = [counters(guest) for guest in lab.guests]
    yield found
    end_s, last, since_s = time.monotonic() + _PATIENCE_S, None, 0.0
    while True:
        now = [counters(guest) for guest in lab.guests]
        if now != last:
            last, since_s = now, time.monotonic()
        for one, after, earlier in zip((found.a, found.b), now, before, strict=True):
            one.counted = after.copy()
            one.counted.subtract(earlier)
        has_all = found.total(_SENT) == found.total(f"{_PACKETS}/rcvd_pkts")
        if has_all and found.total("cm_tx_msgs/dreq") == found.total("cm_rx_msgs/drep"):
            return
        if time.monotonic() - since_s > _AT_REST_S:
            return
        assert time.monotonic() < end_s, f"the guests do not come to rest: {found}"
