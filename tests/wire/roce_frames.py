# SPDX-License-Identifier: BSD-2-Clause
"""Frames for tests: RoCEv2 over IPv4, cut behind their headers as by a snaplen."""

from __future__ import annotations

import struct
from dataclasses import dataclass, field

from livedma._native.flow import FlowTable
from livedma._native.wire import Batch
from livedma.wire.summary import summarize

ETHERNET = 1
SEND_FIRST, SEND_MIDDLE, SEND_LAST, SEND_ONLY = 0, 1, 2, 4
WRITE_FIRST, WRITE_MIDDLE, WRITE_LAST, WRITE_ONLY = 6, 7, 8, 10
READ_REQUEST, READ_FIRST, READ_MIDDLE, READ_LAST, READ_ONLY = 12, 13, 14, 15, 16
ACK, ATOMIC_ACK, FETCH_ADD = 17, 18, 20
UC_SEND_FIRST, UC_SEND_MIDDLE, UC_SEND_LAST = 0x20, 0x21, 0x22
ACK_OK, RNR_NAK, NAK_SEQUENCE, NAK_ACCESS = 0x1F, 0x20, 0x60, 0x62

_RETH = {WRITE_FIRST, WRITE_ONLY, READ_REQUEST}
_AETH = {READ_FIRST, READ_LAST, READ_ONLY, ACK, ATOMIC_ACK}


@dataclass(frozen=True)
class Packet:
    src: int  # last byte of the address
    dst: int
    qp: int
    psn: int
    opcode: int
    payload: int = 0
    dma_length: int = 0
    syndrome: int = ACK_OK
    ack_req: bool = False
    direction: int = 0

    def frame(self) -> tuple[bytes, int]:
        """Its headers, and its length on the wire."""
        transport = struct.pack(
            "!BBHII", self.opcode, 0x40, 0xFFFF, self.qp, self.psn | self.ack_req << 31
        )
        if self.opcode in _RETH:
            transport += struct.pack("!QII", 0x1000, 0x77, self.dma_length)
        if self.opcode in _AETH:
            transport += struct.pack("!I", self.syndrome << 24)
        if self.opcode == FETCH_ADD:
            transport += bytes(28)
        if self.opcode == ATOMIC_ACK:
            transport += bytes(8)
        wire = len(transport) + self.payload + 4
        udp = struct.pack("!HHHH", 0xC000, 4791, 8 + wire, 0)
        address = bytes([10, 0, 0, self.src, 10, 0, 0, self.dst])
        ip = struct.pack("!BBHHHBBH", 0x45, 0, 28 + wire, 0, 0x4000, 64, 17, 0) + address
        ethernet = bytes(12) + b"\x08\x00"
        return ethernet + ip + udp + transport, 14 + 28 + wire


@dataclass
class Capture:
    """Packets with their times; what a test feeds to the analysis."""

    events: list[tuple[int, Packet]] = field(default_factory=list)

    def add(self, time_ns: int, packet: Packet) -> None:
        self.events.append((time_ns, packet))

    def table(self) -> FlowTable:
        table, batch = FlowTable(), Batch(256, 1 << 16)
        for time_ns, packet in sorted(self.events, key=lambda event: event[0]):
            frame, length = packet.frame()
            if not batch.add(ETHERNET, time_ns, packet.direction, frame, length):
                table.add(batch)
                batch.reset()
                assert batch.add(ETHERNET, time_ns, packet.direction, frame, length)
        table.add(batch)
        return table

    def connections(self) -> list[dict]:
        return summarize(self.table())["connections"]
