# SPDX-License-Identifier: BSD-2-Clause
"""What is decoded against what tshark 4.0 says, field by field and packet by packet.

Where tshark is wrong is listed in WRONG, with the reason; everything else has to agree. Next to the
captures there is a made one with every opcode over IPv4, IPv6 and GRH: no kernel sends them all.
"""

from __future__ import annotations

import io
import ipaddress
import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from decimal import Decimal
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from packets import ENDS, frame_of

import captures
import frames
from livedma.capture.files import read
from livedma.capture.sinks import JsonSink
from livedma.wire import OPCODES

pytestmark = pytest.mark.slow  # tshark, once for every capture

Row = dict[str, list[str]]
Seen = dict[str, Any]

# Ours (a path in the JSON form) -> tshark's field.
FIELDS = {
    "length": "frame.len",
    "opcode": "infiniband.bth.opcode",
    "solicited": "infiniband.bth.se",
    "migreq": "infiniband.bth.m",
    "pad": "infiniband.bth.padcnt",
    "pkey": "infiniband.bth.p_key",
    "dest_qp": "infiniband.bth.destqp",
    "ack_req": "infiniband.bth.a",
    "psn": "infiniband.bth.psn",
    "icrc": "infiniband.invariant.crc",
    "reth.length": "infiniband.reth.dmalen",
    "aeth.syndrome": "infiniband.aeth.syndrome",
    "aeth.msn": "infiniband.aeth.msn",
    "deth.qkey": "infiniband.deth.q_key",
    "deth.src_qp": "infiniband.deth.srcqp",
    "atomic.swap_add": "infiniband.atomiceth.swapdt",
    "atomic.compare": "infiniband.atomiceth.cmpdt",
    "atomic_ack.original": "infiniband.atomicacketh.origremdt",
    "imm": "infiniband.immdt",
    "ieth.rkey": "infiniband.ieth",
    "rdeth.ee_context": "infiniband.rdeth.eecnxt",
    "cm.attribute": "infiniband.mad.attributeid",
    "rpcrdma.xid": "rpcordma.xid",
    "rpcrdma.credits": "rpcordma.flow_control",
    # tshark has no fields for an atomic's va and rkey: it shows them as the RETH's.
    "reth.va atomic.va": "infiniband.reth.va",
    "reth.rkey atomic.rkey": "infiniband.reth.r_key",
}
ADDRESSES = {
    "src": ("ip.src", "ipv6.src", "infiniband.grh.sgid"),
    "dst": ("ip.dst", "ipv6.dst", "infiniband.grh.dgid"),
}
OTHER = (
    "frame.time_epoch",
    "udp.srcport",
    "udp.dstport",
    *ADDRESSES["src"],
    *ADDRESSES["dst"],
    "_ws.malformed",
)
CM_ATTRIBUTES = {
    "REQ": 0x10,
    "MRA": 0x11,
    "REJ": 0x12,
    "REP": 0x13,
    "RTU": 0x14,
    "DREQ": 0x15,
    "DREP": 0x16,
}


@dataclass(frozen=True)
class Wrong:
    """Something that tshark gets wrong."""

    fields: tuple[str, ...]  # ours; empty: any
    applies: Callable[[Seen, Row, list[Any], list[Any]], bool]  # to (ours, row, values, values)
    reason: str


_UNKNOWN = ("_FLUSH", "_ATOMIC_WRITE", "_RESYNC", "CNP", "XRC_")
WRONG = {
    "twice": Wrong(
        ("imm", "ieth.rkey"),
        lambda seen, row, ours, values: values == ours * 2,
        "adds ImmDt and IETH twice, as the header and as its only field, under one name",
    ),
    "malformed": Wrong(
        ("icrc",),
        lambda seen, row, ours, values: not values and bool(row["_ws.malformed"]),
        "a dissector above InfiniBand (RPC, NFS, NVMe) takes for its own what is not, reads past "
        "the end and takes the packet down with it: the ICRC behind the payload is not shown",
    ),
    "unknown": Wrong(
        (),
        lambda seen, row, ours, values: (
            not values and any(part in seen["opcode_name"] for part in _UNKNOWN)
        ),
        "does not know flush, atomic write, RESYNC, CNP and XRC: shows their BTH and nothing more",
    ),
    "reliable datagrams": Wrong(
        (),
        lambda seen, row, ours, values: seen["opcode_name"].startswith("RD_"),
        "reads everything behind the BTH of RD 8 bytes too late: the source QP of the DETH becomes "
        "the EE context, payload becomes headers, and where none is left the ICRC is missing",
    ),
}
BTH_FIELDS = {paths for paths, field in FIELDS.items() if ".bth." in field} | {"length"}


@cache
def mine(path: Path) -> list[Seen]:
    out = io.BytesIO()
    sink = JsonSink(out)
    with read(path) as file:
        for batch in file:
            sink.write(batch)
    return [json.loads(line) for line in out.getvalue().splitlines()]


def theirs(path: Path) -> list[Row]:
    rows = captures.tshark(path, *FIELDS.values(), *OTHER)
    return [row for _, row in sorted(rows.items()) if row["infiniband.bth.opcode"]]


def our_values(seen: Seen, paths: str) -> list[Any]:
    """The values at the paths that are there; at most one is."""
    found = []
    for path in paths.split():
        value: Any = seen
        for key in path.split("."):
            value = value.get(key) if isinstance(value, dict) else None
        if value is not None:
            found.append(value)
    return found


def their_value(field: str, text: str) -> int:
    if field in ("infiniband.immdt", "infiniband.ieth"):  # Bytes, not a number.
        return int(text.replace(":", ""), 16)
    value = int(text, 0)
    if field == "infiniband.invariant.crc":
        # Stored little-endian (IBA 7.8.1 sends the remainder that way), shown as if it were big.
        return int.from_bytes(value.to_bytes(4, "big"), "little")
    return value


def differences(seen: Seen, row: Row) -> Iterator[str]:
    """What neither agrees nor is tshark's fault."""
    for paths, field in FIELDS.items():
        ours = our_values(seen, paths)
        if paths == "cm.attribute":
            ours = [CM_ATTRIBUTES[name] for name in ours]
        values = [their_value(field, text) for text in row[field]]
        if ours != values and not excused(paths, seen, row, ours, values):
            yield f"packet {seen['n']} {seen['opcode_name']}: {paths} {ours}, {field} {values}"
    for key, fields in ADDRESSES.items():
        addresses = {ipaddress.ip_address(text) for field in fields for text in row[field]}
        if addresses != {ipaddress.ip_address(seen[key])}:
            yield f"packet {seen['n']}: {key} {seen[key]}, tshark {addresses}"
    for key, field in (("sport", "udp.srcport"), ("dport", "udp.dstport")):
        if our_values(seen, key) != [int(text) for text in row[field]]:
            yield f"packet {seen['n']}: {key} {seen[key]}, tshark {row[field]}"
    time_ns = int(Decimal(row["frame.time_epoch"][0]) * 10**9)
    if seen["time_ns"] != time_ns:
        yield f"packet {seen['n']}: time {seen['time_ns']}, tshark {time_ns}"


def excused(paths: str, seen: Seen, row: Row, ours: list[Any], values: list[Any]) -> str | None:
    """The key of WRONG that explains a difference. Nothing excuses one in the BTH."""
    if paths not in BTH_FIELDS:
        for key, wrong in WRONG.items():
            if (not wrong.fields or paths in wrong.fields) and wrong.applies(
                seen, row, ours, values
            ):
                return key
    return None


def disagreements(path: Path) -> list[str]:
    ours, rows = mine(path), theirs(path)
    assert len(ours) == len(rows)
    pairs = zip(ours, rows, strict=True)
    return [text for seen, row in pairs for text in differences(seen, row)]


@pytest.mark.parametrize("name", captures.names())
def test_every_packet_agrees(name: str) -> None:
    found = disagreements(captures.capture(name))
    assert not found, "\n".join(found[:10])


@pytest.mark.parametrize("name", captures.names())
def test_every_packet_of_every_capture_is_right(name: str) -> None:
    for seen in mine(captures.capture(name)):
        assert seen["icrc_ok"] is True, seen
        assert "error" not in seen, seen


def test_the_captures_are_there() -> None:
    assert len(captures.all_captures()) >= 1


@pytest.fixture(scope="session")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Every opcode over every network layer."""
    path = tmp_path_factory.mktemp("tshark") / "made.pcap"
    path.write_bytes(
        frames.pcap(*(frame_of(opcode, ends) for ends in ENDS for opcode in OPCODES.values()))
    )
    return path


def test_every_opcode_agrees(made: Path) -> None:
    assert len(mine(made)) == 3 * len(OPCODES)
    found = disagreements(made)
    assert not found, "\n".join(found)


@pytest.mark.parametrize("key", WRONG)
def test_every_excuse_is_needed(key: str, made: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An entry outlives its reason when tshark learns better: then it must go."""
    monkeypatch.delitem(WRONG, key)
    assert disagreements(made) + disagreements(captures.capture("host_userspace_rc"))
