# SPDX-License-Identifier: BSD-2-Clause
"""Packets of every opcode, with values that no two fields share: made by the product's encoder."""

from __future__ import annotations

from typing import Any

from livedma import wire
from livedma.wire.opcodes import Opcode

#: Of each header, in the JSON form.
HEADERS: dict[str, tuple[str, Any]] = {
    "RDETH": ("rdeth", {"ee_context": 0xA1B2C3}),
    "DETH": ("deth", {"qkey": 0x80010000, "src_qp": 0x0C0D0E}),
    "XRCETH": ("xrceth", {"srq": 0x112233}),
    "FETH": ("feth", {"placement": 2, "selectivity": 1}),
    "RETH": ("reth", {"va": 0x1122334455667788, "rkey": 0x99AABBCC, "length": 0}),
    "ATOMICETH": (
        "atomic",
        {
            "va": 0x8877665544332211,
            "rkey": 0xCCBBAA99,
            "swap_add": 0x0102030405060708,
            "compare": 0xF1F2F3F4F5F6F7F8,
        },
    ),
    "AETH": ("aeth", {"syndrome": 0x1F, "msn": 0x0A0B0C}),
    "ATOMICACKETH": ("atomic_ack", {"original": 0xDEADBEEF00C0FFEE}),
    "IMMDT": ("imm", 0x01020304),
    "IETH": ("ieth", {"rkey": 0x55667788}),
}
ENDS = {
    "v4": {"src": "10.1.2.3", "dst": "10.4.5.6"},
    "v6": {"src": "2001:db8::1", "dst": "2001:db8::2:0"},
    "roce1": {"src": "fe80::1", "dst": "fe80::2", "version": "roce1"},
}


def payload_of(opcode: Opcode) -> bytes:
    """Some that suits the opcode: with pad where that may be."""
    if not opcode.may_carry_payload:
        return b""
    if opcode.operation == "ATOMIC_WRITE":
        return b"8 bytes!"
    return b"whole words " if not opcode.is_last else b"some payload"[:10]


def fields_of(opcode: Opcode, payload: bytes) -> dict[str, Any]:
    """What `wire.encode` takes, for the headers of the opcode."""
    fields = {}
    for header in opcode.headers:
        if header != "CNPETH":
            name, value = HEADERS[header]
            fields[name] = dict(value) if isinstance(value, dict) else value
    if "reth" in fields and opcode.operation == "WRITE":
        fields["reth"]["length"] = len(payload) if opcode.is_last else 65536
    return fields


def packet_of(opcode: Opcode, ends: str, **more: Any) -> bytes:
    """From its IP header or GRH on."""
    payload = payload_of(opcode)
    fields = {"dest_qp": 0x123456, "psn": 0xABCDEF, "ack_req": True, **fields_of(opcode, payload)}
    return wire.encode(opcode.code, payload=payload, **ENDS[ends], **{**fields, **more})


def frame_of(opcode: Opcode, ends: str, vlan: tuple[int, ...] = (), **more: Any) -> bytes:
    """In an Ethernet frame."""
    version = ENDS[ends].get("version", "roce2")
    return wire.ethernet(packet_of(opcode, ends, **more), vlan=vlan, version=version)
