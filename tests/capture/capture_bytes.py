# SPDX-License-Identifier: BSD-2-Clause
"""Capture files made by hand, byte by byte: every variant, and the broken ones.

Independent of the writer in the product. `order` is '<' or '>', as in struct formats.
"""

import struct
from typing import NamedTuple

ETHERNET, RAW, LINUX_SLL, IPV4, IPV6, LINUX_SLL2 = 1, 101, 113, 228, 229, 276
MICRO, NANO, MODIFIED = 0xA1B2C3D4, 0xA1B23C4D, 0xA1B2CD34


class Frame(NamedTuple):
    time_ns: int
    data: bytes
    length: int = -1  # on the wire; -1: all of it was captured

    @property
    def wire_length(self) -> int:
        return len(self.data) if self.length < 0 else self.length


def pcap_header(order: str = "<", magic: int = MICRO, link: int = ETHERNET) -> bytes:
    return struct.pack(order + "IHHiIII", magic, 2, 4, 0, 0, 262144, link)


def pcap_record(frame: Frame, order: str = "<", magic: int = MICRO) -> bytes:
    seconds, fraction = divmod(frame.time_ns, 10**9)
    if magic != NANO:
        fraction //= 1000
    head = struct.pack(order + "IIII", seconds, fraction, len(frame.data), frame.wire_length)
    if magic == MODIFIED:
        head += struct.pack(order + "IHBB", 2, 0x0800, 4, 0)  # outgoing
    return head + frame.data


def pcap(frames: list[Frame], order: str = "<", magic: int = MICRO, link: int = ETHERNET) -> bytes:
    records = [pcap_record(frame, order, magic) for frame in frames]
    return b"".join([pcap_header(order, magic, link), *records])


def padded(data: bytes) -> bytes:
    return data + bytes(-len(data) % 4)


def block(kind: int, body: bytes, order: str = "<") -> bytes:
    total = struct.pack(order + "I", 12 + len(padded(body)))
    return struct.pack(order + "I", kind) + total + padded(body) + total


def option(code: int, value: bytes, order: str = "<") -> bytes:
    return struct.pack(order + "HH", code, len(value)) + padded(value)


END_OF_OPTIONS = bytes(4)


def section(order: str = "<", options: bytes = b"") -> bytes:
    return block(0x0A0D0D0A, struct.pack(order + "IHHq", 0x1A2B3C4D, 1, 0, -1) + options, order)


def interface(
    order: str = "<",
    link: int = ETHERNET,
    snaplen: int = 262144,
    name: str = "",
    resolution: int | None = None,
    offset_s: int | None = None,
) -> bytes:
    body = struct.pack(order + "HHI", link, 0, snaplen)
    if name:
        body += option(2, name.encode(), order)
    if resolution is not None:
        body += option(9, bytes([resolution]), order)
    if offset_s is not None:
        body += option(14, struct.pack(order + "q", offset_s), order)
    return block(1, body + END_OF_OPTIONS, order)


def enhanced(
    frame: Frame,
    order: str = "<",
    interface_id: int = 0,
    units: int | None = None,
    flags: int | None = None,
    drops: int | None = None,
) -> bytes:
    """units: the time as the block has it; the default fits microseconds."""
    time = frame.time_ns // 1000 if units is None else units
    body = struct.pack(
        order + "IIIII",
        interface_id,
        time >> 32,
        time & 0xFFFFFFFF,
        len(frame.data),
        frame.wire_length,
    )
    body += padded(frame.data)
    if flags is not None:
        body += option(2, struct.pack(order + "I", flags), order)
    if drops is not None:
        body += option(4, struct.pack(order + "Q", drops), order)
    if flags is not None or drops is not None:
        body += END_OF_OPTIONS
    return block(6, body, order)


def simple(frame: Frame, order: str = "<") -> bytes:
    return block(3, struct.pack(order + "I", frame.wire_length) + frame.data, order)


def obsolete(frame: Frame, order: str = "<", drops: int = 0xFFFF) -> bytes:
    time = frame.time_ns // 1000
    body = struct.pack(
        order + "HHIIII",
        0,
        drops,
        time >> 32,
        time & 0xFFFFFFFF,
        len(frame.data),
        frame.wire_length,
    )
    return block(2, body + frame.data, order)


def statistics(
    order: str = "<", interface_id: int = 0, received: int = 0, dropped: int = 0, later: int = 0
) -> bytes:
    body = struct.pack(order + "III", interface_id, 0, 0)
    for code, count in ((4, received), (5, dropped), (7, later)):
        body += option(code, struct.pack(order + "Q", count), order)
    return block(5, body + END_OF_OPTIONS, order)


def pcapng(frames: list[Frame], order: str = "<", link: int = ETHERNET) -> bytes:
    blocks = [enhanced(frame, order) for frame in frames]
    return b"".join([section(order), interface(order, link), *blocks])


def cooked(ethernet: bytes) -> bytes:
    """The frame as Linux cooked capture v1 has it."""
    return struct.pack(">HHH8s", 0, 1, 6, ethernet[6:12]) + ethernet[12:]


def cooked2(ethernet: bytes) -> bytes:
    head = struct.pack(">HIHBB8s", 0, 2, 1, 0, 6, ethernet[6:12])
    return ethernet[12:14] + head + ethernet[14:]
