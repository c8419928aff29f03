# SPDX-License-Identifier: BSD-2-Clause
"""Builds packets, by the same table that decodes them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from livedma._native.wire import encode as _encode
from livedma.wire.opcodes import opcode_code

__all__ = ["encode", "ethernet", "vlan_tags"]

#: Keys of the JSON form that are computed, or that say where and how a packet was seen.
_DERIVED = (
    *("n", "time_ns", "length", "direction", "vlan", "opcode_name", "pad", "payload_length"),
    *("icrc", "icrc_ok", "error"),
)


def encode(opcode: int | str, *, payload: bytes = b"", **fields: Any) -> bytes:
    """Builds a packet from its IP header (RoCEv1: GRH) to its ICRC.

    Fields have the names and shapes of the JSON form (`Packet.to_dict`), so that a decoded packet
    encodes again: `encode(**packet.to_dict(), payload=packet.payload)`. src and dst are required.
    Lengths, pad and ICRC are computed. What the JSON form does not have (IP id, TOS, TTL) can be
    given as ip_id, tos and ttl.
    """
    given: Mapping[str, Any] = {
        key: value for key, value in fields.items() if key not in _DERIVED and value is not None
    }
    return _encode(opcode_code(opcode), payload=bytes(payload), **given)


def vlan_tags(vlan: Sequence[int]) -> bytes:
    """Encodes at most two tags, outer first, to stand between the addresses and the Ethertype."""
    return b"".join(
        (0x88A8 if outer else 0x8100).to_bytes(2, "big") + tag.to_bytes(2, "big")
        for tag, outer in zip(vlan, (len(vlan) == 2, False), strict=False)
    )


def ethernet(
    packet: bytes,
    *,
    src: str = "02:00:00:00:00:01",
    dst: str = "02:00:00:00:00:02",
    vlan: Sequence[int] = (),
    version: str = "roce2",
) -> bytes:
    """Puts the packet into an Ethernet frame, behind at most two VLAN tags (outer first)."""
    ip_type = 0x0800 if packet[0] >> 4 == 4 else 0x86DD
    ethertype = 0x8915 if version == "roce1" else ip_type
    addresses = bytes.fromhex(dst.replace(":", "") + src.replace(":", ""))
    return addresses + vlan_tags(vlan) + ethertype.to_bytes(2, "big") + packet
