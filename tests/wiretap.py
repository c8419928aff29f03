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
        """Every packet is there, whole, and nothing was lost on the way."""
        assert self.packets
        assert all(packet["icrc_ok"] is True for packet in self.packets)
        assert not [packet for packet in self.packets if packet.get("error")]
        assert f"{len(self.packets):,} RoCE packets, no bad ICRC, 0 lost to a full" in self.said
        summary = self.summary
        assert summary["packets"] == len(self.packets)
        zeros = ("errors", "icrc_errors", "not_tracked", "not_roce")
        assert {key: summary[key] for key in zeros} == dict.fromkeys(zeros, 0)
        for connection in summary["connections"]:
            assert connection["not_captured"] == connection["lost"] == connection["copies"] == 0


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
def counted(lab: Lab) -> Iterator[Counter[str]]:
    """What both guests together counted meanwhile. Ends when every disconnect is answered."""
    found: Counter[str] = Counter()
    before = counters(lab.a) + counters(lab.b)
    yield found
    end_s = time.monotonic() + 60
    while True:
        now = counters(lab.a) + counters(lab.b)
        now.subtract(before)
        is_quiet = now["hw_counters/sent_pkts"] == now["hw_counters/rcvd_pkts"]
        if is_quiet and now["cm_tx_msgs/dreq"] == now["cm_rx_msgs/drep"]:
            found.update(now)
            return
        assert time.monotonic() < end_s, f"the guests do not come to rest: {now}"
