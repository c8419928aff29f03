# SPDX-License-Identifier: BSD-2-Clause
"""Frames made by hand: IP headers with options and extensions, links, and a second ICRC.

The ICRC here is `zlib.crc32` over bytes put together from the specification's words (IBA A16.5.1,
A17.3.3): nothing of it is shared with the product.
"""

from __future__ import annotations

import ipaddress
import struct
import zlib
from dataclasses import dataclass

ETHERNET = bytes.fromhex("020000000002 020000000001")
BTH = 12


def icrc(kind: str, packet: bytes, bth: int) -> bytes:
    """The ICRC of `packet`, which starts at its IP header or GRH and ends before the ICRC."""
    ones = {
        "v4": [1, 8, 10, 11, bth - 2, bth - 1, bth + 4],
        "v6": [1, 2, 3, 7, bth - 2, bth - 1, bth + 4],
        "grh": [1, 2, 3, 7, bth + 4],
    }[kind]
    masked = bytearray(b"\xff" * 8 + packet)
    for at in ones:
        if 8 + at < len(masked):  # Tests make packets without a BTH, too.
            masked[8 + at] = 0xFF
    if kind != "v4":
        masked[8] |= 0x0F
    return zlib.crc32(masked).to_bytes(4, "little")


@dataclass(frozen=True)
class Extension:
    """An IPv6 extension header: its number and what follows next header and length."""

    number: int
    body: bytes

    def packed(self, following: int) -> bytes:
        total = 2 + len(self.body)
        if self.number == 44:
            return bytes([following, 0]) + self.body
        length = total // 4 - 2 if self.number == 51 else total // 8 - 1
        return bytes([following, length]) + self.body


def v4(
    transport: bytes,
    *,
    src: str = "10.0.0.1",
    dst: str = "10.0.0.2",
    tos: int = 0,
    ttl: int = 64,
    ident: int = 0,
    flags: int = 0x4000,
    options: bytes = b"",
    sport: int = 49152,
    dport: int = 4791,
    checksum: int = 0,
) -> bytes:
    """BTH and all that follows it, in UDP over IPv4, with its ICRC."""
    header = 20 + len(options)
    udp_length = 8 + len(transport) + 4
    packet = struct.pack(
        ">BBHHHBBH4s4s",
        0x40 | header // 4,
        tos,
        header + udp_length,
        ident,
        flags,
        ttl,
        17,
        0xBEEF,
        ipaddress.IPv4Address(src).packed,
        ipaddress.IPv4Address(dst).packed,
    )
    packet += options + struct.pack(">HHHH", sport, dport, udp_length, checksum) + transport
    return packet + icrc("v4", packet, header + 8)


def v6(
    transport: bytes,
    *,
    src: str = "fe80::1",
    dst: str = "fe80::2",
    tos: int = 0,
    flow: int = 0,
    ttl: int = 64,
    extensions: tuple[Extension, ...] = (),
    sport: int = 49152,
    dport: int = 4791,
    checksum: int = 0x1234,
) -> bytes:
    """The same over IPv6."""
    numbers = [*(extension.number for extension in extensions), 17]
    chain = b"".join(
        extension.packed(following)
        for extension, following in zip(extensions, numbers[1:], strict=True)
    )
    udp_length = 8 + len(transport) + 4
    packet = _ipv6(tos, flow, len(chain) + udp_length, numbers[0], ttl, src, dst)
    packet += chain + struct.pack(">HHHH", sport, dport, udp_length, checksum) + transport
    return packet + icrc("v6", packet, 40 + len(chain) + 8)


def grh(
    transport: bytes,
    *,
    src: str = "fe80::1",
    dst: str = "fe80::2",
    tos: int = 0,
    flow: int = 0,
    ttl: int = 64,
) -> bytes:
    """The same as RoCEv1."""
    packet = _ipv6(tos, flow, len(transport) + 4, 0x1B, ttl, src, dst) + transport
    return packet + icrc("grh", packet, 40)


def _ipv6(tos: int, flow: int, length: int, following: int, ttl: int, src: str, dst: str) -> bytes:
    addresses = ipaddress.IPv6Address(src).packed + ipaddress.IPv6Address(dst).packed
    return struct.pack(">IHBB", 6 << 28 | tos << 20 | flow, length, following, ttl) + addresses


def bth(
    opcode: int,
    *,
    flags: int = 0x40,
    pkey: int = 0xFFFF,
    byte4: int = 0,
    dest_qp: int = 0x11,
    ack: int = 0,
    psn: int = 0,
) -> bytes:
    return struct.pack(">BBHII", opcode, flags, pkey, byte4 << 24 | dest_qp, ack << 31 | psn)


def ethernet(ethertype: int, packet: bytes, tags: bytes = b"") -> bytes:
    return ETHERNET + tags + struct.pack(">H", ethertype) + packet


def roce2(packet: bytes) -> bytes:
    """In an Ethernet frame by its IP version."""
    return ethernet(0x0800 if packet[0] >> 4 == 4 else 0x86DD, packet)


def pcap(*frames: bytes, link: int = 1, lengths: tuple[int, ...] = ()) -> bytes:
    """A capture file; `lengths` are those on the wire where frames were cut."""
    out = [struct.pack("<IHHiIII", 0xA1B2C3D4, 2, 4, 0, 0, 65535, link)]
    for number, frame in enumerate(frames):
        length = lengths[number] if lengths else len(frame)
        out.append(struct.pack("<IIII", 1_700_000_000, number, len(frame), length) + frame)
    return b"".join(out)
