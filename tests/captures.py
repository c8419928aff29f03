# SPDX-License-Identifier: BSD-2-Clause
"""Captures of real traffic, and a walker of classic pcap that knows just enough.

They are those of the repository (tests/recorded.py) or, if LIVEDMA_PCAPS names a directory, the
captures in there.
"""

from __future__ import annotations

import functools
import ipaddress
import shutil
import struct
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import recorded
from needs import needs
from recorded import BUNDLED, names

__all__ = [
    "BUNDLED",
    "Frame",
    "Packet",
    "all_captures",
    "capture",
    "frames",
    "names",
    "own_captures",
    "packets",
    "tshark",
]

# Bytes of extension headers by opcode within RC, UC and XRC (XRC: 4 more), for those with SEND.
_SEND_EXTRA = {0x00: 0, 0x01: 0, 0x02: 0, 0x03: 4, 0x04: 0, 0x05: 4, 0x16: 4, 0x17: 4}


@dataclass(frozen=True)
class Packet:
    frame: int
    src: str
    dst: str
    opcode: int
    dest_qp: int
    src_qp: int | None
    psn: int
    payload: bytes


@dataclass(frozen=True)
class Frame:
    number: int  # from 1
    time_ns: int
    data: bytes


def frames(path: Path) -> Iterator[Frame]:
    """The frames of a classic little-endian Ethernet pcap."""
    raw = path.read_bytes()
    assert raw[:4] in (b"\xd4\xc3\xb2\xa1", b"\x4d\x3c\xb2\xa1"), f"{path} is no classic pcap"
    unit_ns = 1 if raw[0] == 0x4D else 1000
    pos, number = 24, 0
    while pos < len(raw):
        seconds, fraction, length = struct.unpack_from("<III", raw, pos)
        pos, number = pos + 16 + length, number + 1
        yield Frame(number, seconds * 10**9 + fraction * unit_ns, raw[pos - length : pos])


def packets(path: Path) -> Iterator[Packet]:
    """The RoCEv2 packets of a capture; payloads of SENDs only."""
    for frame in frames(path):
        data = frame.data
        if data[12:14] == b"\x08\x00":
            udp, ends = 14 + 4 * (data[14] & 15), (data[26:30], data[30:34])
        else:
            udp, ends = 54, (data[22:38], data[38:54])
        if data[udp + 2 : udp + 4] != b"\x12\xb7":
            continue
        bth = data[udp + 8 : udp + struct.unpack_from(">H", data, udp + 4)[0]]
        src, dst = (str(ipaddress.ip_address(end)) for end in ends)
        qpn, psn = (int.from_bytes(bth[at : at + 3], "big") for at in (5, 9))
        is_ud = bth[0] >> 5 == 3
        extra = 8 + 4 * (bth[0] == 0x65) if is_ud else _SEND_EXTRA.get(bth[0] & 0x1F, 0)
        payload = bth[12 + extra : len(bth) - 4 - (bth[1] >> 4 & 3)]
        src_qp = int.from_bytes(bth[17:20], "big") if is_ud else None
        yield Packet(frame.number, src, dst, bth[0], qpn, src_qp, psn, payload)


def capture(name: str) -> Path:
    """The path of a capture; without it the test is skipped."""
    found = recorded.find(name)
    needs(found, f"there is no capture {name}.pcap")
    assert found is not None
    return found


def all_captures() -> list[Path]:
    """Every capture: there is at least one."""
    return [capture(name) for name in names()]


def own_captures() -> list[Path]:
    """Those of the repository, for tests that know what is in them."""
    return [capture(name) for name in recorded.own()]


@functools.cache
def tshark(path: Path, *fields: str) -> dict[int, dict[str, list[str]]]:
    """frame -> field -> values, as tshark sees them; without tshark the test is skipped."""
    needs(shutil.which("tshark"), "tshark is not installed")
    command = [
        "tshark",
        "-r",
        str(path),
        "-T",
        "fields",
        "-E",
        "occurrence=a",
        "-E",
        "aggregator=;",
    ]
    for field in ("frame.number", *fields):
        command += ["-e", field]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    rows: dict[int, dict[str, list[str]]] = {}
    for line in done.stdout.splitlines():
        number, *values = line.split("\t")
        rows[int(number)] = {
            field: value.split(";") if value else []
            for field, value in zip(fields, values, strict=True)
        }
    return rows
