# SPDX-License-Identifier: BSD-2-Clause
"""Writes the `struct` format: packets as the kernel's structures (rxe_hdr.h), one block each."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from livedma._native.wire import Packet

__all__ = ["listing"]

_Field = tuple[str, str, str]  # type, name, value


def _hex(value: int) -> str:
    return f"0x{value:x}"


def _struct(name: str, fields: list[_Field]) -> Iterator[str]:
    yield f"struct {name} {{"
    for kind, field, value in fields:
        yield f"    {kind} {field}; {value}"
    yield "};"


def _network(packet: Packet, seen: Mapping[str, Any]) -> Iterator[str]:
    if "src" not in seen:
        return
    if seen["version"] == "roce1":
        name, kind, src, dst = "ib_grh", "union ib_gid", "sgid", "dgid"
    elif packet.ip_version == 4:
        name, kind, src, dst = "iphdr", "__be32", "saddr", "daddr"
    else:
        name, kind, src, dst = "ipv6hdr", "struct in6_addr", "saddr", "daddr"
    yield from _struct(name, [(kind, src, seen["src"]), (kind, dst, seen["dst"])])
    if seen["sport"] is not None:
        yield from _struct(
            "udphdr",
            [
                ("__be16", "source", str(seen["sport"])),
                ("__be16", "dest", str(seen["dport"])),
                ("__be16", "len", str(packet.udp_length)),
                ("__sum16", "check", _hex(packet.udp_checksum)),
            ],
        )


def _marks(seen: Mapping[str, Any], *names: str) -> str:
    set_ones = [name for name in names if seen[name]]
    return f" ({', '.join(set_ones)})" if set_ones else ""


def _bth(packet: Packet, seen: Mapping[str, Any]) -> Iterator[str]:
    name = seen["opcode_name"]
    yield f"IB_OPCODE_{name}" if name else f"unknown opcode {_hex(seen['opcode'])}"
    yield from _struct(
        "rxe_bth",
        [
            ("__u8", "opcode", _hex(seen["opcode"])),
            ("__u8", "flags", _hex(packet.bth_flags) + _marks(seen, "solicited", "migreq")),
            ("__be16", "pkey", _hex(seen["pkey"])),
            ("__be32", "qpn", _hex(seen["dest_qp"]) + _marks(seen, "fecn", "becn")),
            ("__be32", "apsn", _hex(seen["psn"]) + _marks(seen, "ack_req")),
        ],
    )


def _aeth_words(aeth: Mapping[str, Any]) -> str:
    detail = aeth.get("reason") or (f"{aeth['timer_us']} us" if "timer_us" in aeth else "")
    return f"{aeth['kind']}{': ' + detail if detail else ''}, msn {aeth['msn']}"


def _headers(seen: Mapping[str, Any]) -> Iterator[tuple[str, str, list[_Field]]]:
    """Yields (name in rxe's enum, name of the structure, its fields), in wire order."""
    if h := seen.get("rdeth"):
        yield "RDETH", "rxe_rdeth", [("__be32", "een", _hex(h["ee_context"]))]
    if h := seen.get("deth"):
        yield (
            "DETH",
            "rxe_deth",
            [("__be32", "qkey", _hex(h["qkey"])), ("__be32", "sqp", _hex(h["src_qp"]))],
        )
    if h := seen.get("xrceth"):
        yield "XRCETH", "rxe_xrceth", [("__be32", "srqn", _hex(h["srq"]))]
    if h := seen.get("feth"):
        bits = h["placement"] | h["selectivity"] << 4
        yield "FETH", "rxe_feth", [("__be32", "bits", _hex(bits))]
    if h := seen.get("reth"):
        yield (
            "RETH",
            "rxe_reth",
            [
                ("__be64", "va", _hex(h["va"])),
                ("__be32", "rkey", _hex(h["rkey"])),
                ("__be32", "len", str(h["length"])),
            ],
        )
    if h := seen.get("atomic"):
        yield (
            "ATMETH",
            "rxe_atmeth",
            [
                ("__be64", "va", _hex(h["va"])),
                ("__be32", "rkey", _hex(h["rkey"])),
                ("__be64", "swap_add", _hex(h["swap_add"])),
                ("__be64", "comp", _hex(h["compare"])),
            ],
        )
    if h := seen.get("aeth"):
        smsn = h["syndrome"] << 24 | h["msn"]
        yield "AETH", "rxe_aeth", [("__be32", "smsn", f"{_hex(smsn)} ({_aeth_words(h)})")]
    if h := seen.get("atomic_ack"):
        yield "ATMACK", "rxe_atmack", [("__be64", "orig", _hex(h["original"]))]
    if "imm" in seen:
        yield "IMMDT", "rxe_immdt", [("__be32", "imm", _hex(seen["imm"]))]
    if h := seen.get("ieth"):
        yield "IETH", "rxe_ieth", [("__be32", "rkey", _hex(h["rkey"]))]


def _printable(payload: bytes) -> str:
    return "".join(
        chr(byte) if 0x20 <= byte < 0x7F and byte != 0x5C else f"\\x{byte:02x}" for byte in payload
    )


def listing(packet: Packet) -> str:
    """Returns the packet as one block of lines, ended by an empty line."""
    seen = packet.to_dict()
    lines = [f"packet length: {packet.length} bytes"]
    lines += _network(packet, seen)
    if "opcode" in seen:
        lines += _bth(packet, seen)
    for name, struct, fields in _headers(seen):
        lines.append(f"RXE_{name}")
        lines += _struct(struct, fields)
    if packet.payload:
        lines += ["RXE_PAYLOAD", _printable(packet.payload)]
    if packet.icrc_ok is not None:
        value = f" {_hex(seen['icrc'])}" if seen["icrc"] is not None else ""
        lines.append(f"ICRC{value} {'ok' if packet.icrc_ok else 'BAD'}")
    if packet.error:
        lines.append(f"error: {packet.error}")
    return "\n".join(lines) + "\n\n"
