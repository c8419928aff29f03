"""Captures for the tests of `livedma.wire`, read by a walker of classic pcap that knows little.

The directory comes from LIVEDMA_PCAPS, else it is shared/pcaps beside the repository.
"""

from __future__ import annotations

import functools
import ipaddress
import os
import shutil
import struct
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

_ROOT = Path(__file__).resolve().parents[2]
DIRECTORY = Path(os.environ.get("LIVEDMA_PCAPS") or _ROOT.parent / "shared" / "pcaps")
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


def packets(path: Path) -> Iterator[Packet]:
    """The RoCEv2 packets of a classic little-endian Ethernet pcap; payloads of SENDs only."""
    raw = path.read_bytes()
    assert raw[:4] in (b"\xd4\xc3\xb2\xa1", b"\x4d\x3c\xb2\xa1"), f"{path} is no classic pcap"
    pos, frame = 24, 0
    while pos < len(raw):
        (length,) = struct.unpack_from("<I", raw, pos + 8)
        data, pos, frame = raw[pos + 16 : pos + 16 + length], pos + 16 + length, frame + 1
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
        yield Packet(frame, src, dst, bth[0], qpn, src_qp, psn, payload)


def capture(name: str) -> Path:
    """The path of a capture; skips the test where it is not there."""
    path = DIRECTORY / f"{name}.pcap"
    if not path.exists():
        pytest.skip(f"no capture {path} (LIVEDMA_PCAPS names the directory)")
    return path


def all_captures() -> list[Path]:
    """Every capture there is; skips the test if there is none."""
    paths = sorted(DIRECTORY.glob("*.pcap"))
    if not paths:
        pytest.skip(f"no captures in {DIRECTORY} (LIVEDMA_PCAPS names the directory)")
    return paths


@functools.cache
def tshark(path: Path, *fields: str) -> dict[int, dict[str, list[str]]]:
    """frame -> field -> values, as tshark sees them; skips the test without tshark."""
    if shutil.which("tshark") is None:
        pytest.skip("tshark is not installed")
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
