# SPDX-License-Identifier: BSD-2-Clause
"""Two engines and the wire between them: a vocabulary for tests of a few lines."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

from livedma._native.rdma import Completion, CompletionQueue, Engine, QueuePair, Region
from livedma._native.wire import encode

ALL = ("local_write", "remote_write", "remote_read", "remote_atomic")
ADDRESSES = ("10.0.0.1", "10.0.0.2")
MEMORY = 1 << 18


class Side:
    """An engine with one queue pair and one region over all its memory."""

    def __init__(self, kind: str, *, access: Iterable[str] = ALL, size: int = MEMORY, **init: Any):
        sizes = ("window_packets", "read_packets", "burst_packets", "iova_space")
        device = {k: init.pop(k) for k in sizes if k in init}
        self.engine = Engine(**device)
        self.cq = CompletionQueue(init.pop("completions", 4096))
        self.memory = bytearray(size)
        self.region: Region = self.engine.register(self.memory, access, va=0x10000)
        self.qp: QueuePair = self.engine.create_qp(kind, self.cq, self.cq, **init)

    def at(self, offset: int, length: int) -> tuple[int, int, int]:
        """A piece of the memory, for posting."""
        return (self.region.key, self.region.va + offset, length)

    def va(self, offset: int) -> int:
        return self.region.va + offset

    def fill(self, offset: int, length: int, seed: int = 1) -> bytes:
        data = random.Random(seed).randbytes(length)
        self.memory[offset : offset + length] = data
        return data

    def data(self, offset: int, length: int) -> bytes:
        return bytes(self.memory[offset : offset + length])

    def statuses(self) -> list[tuple[int, str]]:
        return [(c.wr_id, c.status) for c in self.cq.poll(4096)]


Fate = Callable[[bytes], list[tuple[int, bytes]]]


def faithful(packet: bytes) -> list[tuple[int, bytes]]:
    """What becomes of a packet: copies of it, each with its delay. This wire loses nothing."""
    return [(1000, packet)]


@dataclass
class Pair:
    a: Side
    b: Side
    now_ns: int = 0
    fate: Fate = faithful
    sent: list[bytes] = field(default_factory=list)
    arriving: list[tuple[int, int, Side, bytes]] = field(default_factory=list)

    def step(self) -> bool:
        """Sends what is to be sent, then lets the next thing happen. False if nothing ever will."""
        for source, target in ((self.a, self.b), (self.b, self.a)):
            for packet in source.engine.transmit(self.now_ns, 4):
                self.sent.append(packet)
                for delay_ns, copy in self.fate(packet):
                    self.arriving.append((self.now_ns + delay_ns, len(self.sent), target, copy))
        times = [side.engine.next_timer for side in (self.a, self.b)]
        events = [t for t in times if t is not None] + [t for t, *_ in self.arriving]
        if not events:
            return False
        self.now_ns = max(self.now_ns, min(events))
        due = sorted((e for e in self.arriving if e[0] <= self.now_ns), key=lambda e: e[:2])
        self.arriving = [e for e in self.arriving if e[0] > self.now_ns]
        for _, _, target, packet in due:
            target.engine.receive(packet, self.now_ns)
        return True

    def run(self, steps: int = 100_000) -> None:
        """Until both sides are quiet."""
        quiet = 0
        for _ in range(steps):
            quiet = 0 if self.step() else quiet + 1
            if quiet == 2:
                return
        raise AssertionError("the engines never came to rest")

    def completions(self) -> tuple[list[Completion], list[Completion]]:
        return self.a.cq.poll(4096), self.b.cq.poll(4096)


def connect(
    kind: str = "RC",
    *,
    mtu: int = 256,
    psns: tuple[int, int] = (0, 0),
    access: Iterable[str] = ALL,
    region_access: Iterable[str] = ALL,
    addresses: tuple[str, str] = ADDRESSES,
    fate: Fate = faithful,
    init: dict[str, Any] | None = None,
    **attributes: Any,
) -> Pair:
    """Two connected sides in RTS. psns: the first of each side's requests."""
    sides = [Side(kind, access=region_access, **(init or {})) for _ in range(2)]
    join(sides, mtu=mtu, psns=psns, access=access, addresses=addresses, **attributes)
    return Pair(sides[0], sides[1], fate=fate)


def reconnect(pair: Pair) -> None:
    """New queue pairs, of the RC kind: the old ones may have failed."""
    for side in (pair.a, pair.b):
        side.qp.close()
        side.qp = side.engine.create_qp("RC", side.cq, side.cq)
        side.cq.poll(4096)
    pair.arriving.clear()
    join([pair.a, pair.b])


def join(
    sides: list[Side],
    *,
    mtu: int = 256,
    psns: tuple[int, int] = (0, 0),
    access: Iterable[str] = ALL,
    addresses: tuple[str, str] = ADDRESSES,
    **attributes: Any,
) -> None:
    """Takes both queue pairs to RTS, connected with each other."""
    for i, side in enumerate(sides):
        side.qp.modify("INIT", access=access, qkey=0x11111111)
        side.qp.modify(
            "RTR",
            mtu=mtu,
            src=addresses[i],
            dst=addresses[1 - i],
            dest_qp=sides[1 - i].qp.number,
            rq_psn=psns[1 - i],
            **attributes,
        )
        side.qp.modify("RTS", sq_psn=psns[i], **attributes)


def lose(*numbers: int, count: Callable[[bytes], bool] = lambda packet: True) -> Fate:
    """A wire that loses the given ones (from 0) of the packets that count."""
    seen = iter(range(1 << 60))

    def fate(packet: bytes) -> list[tuple[int, bytes]]:
        if count(packet) and next(seen) in numbers:
            return []
        return faithful(packet)

    return fate


def opcode(packet: bytes) -> int:
    return packet[28] if packet[0] >> 4 == 4 else packet[48]


def psn(packet: bytes) -> int:
    return int.from_bytes(packet[37:40], "big")


RC_ACK, READ_REQUEST, ATOMIC_ACK = 0x11, 0x0C, 0x12
NAK_SEQUENCE, NAK_INVALID, NAK_ACCESS, NAK_OPERATION = 0x60, 0x61, 0x62, 0x63


def is_request(packet: bytes) -> bool:
    return opcode(packet) not in range(0x0D, 0x13)


def syndromes(pair: Pair) -> list[int]:
    return [p[40] for p in pair.sent if opcode(p) == RC_ACK]


def to_b(pair: Pair, code: int, **fields: object) -> bytes:
    """A packet to b as a could have sent it."""
    return encode(code, src=ADDRESSES[0], dst=ADDRESSES[1], dest_qp=pair.b.qp.number, **fields)  # type: ignore[arg-type]
