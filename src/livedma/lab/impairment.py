# SPDX-License-Identifier: BSD-2-Clause
"""Imitates a bad wire for RoCE packets: frames and the time go in, frames come out. No I/O.

    Rule("drop", 0.01)                                   every hundredth, as chance will have it
    Rule("drop", opcode="RC_SEND_LAST", skip=2, times=1)   the third of these, once
    Rule("corrupt", 0.01, to="far", part="header")       one direction only

A packet meets the rules in order, and the first that takes it decides. Frames that are not RoCEv2
(ARP, neighbour discovery, TCP) pass. The same seed and the same packets give the same result.
"""

from __future__ import annotations

import heapq
import random
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from livedma.wire.opcodes import HEADER_BYTES, OPCODES, opcode_code

__all__ = ["ACTIONS", "ENDS", "Frame", "Impairment", "Rule", "parse"]

ENDS = ("near", "far")
ACTIONS = ("drop", "duplicate", "reorder", "corrupt", "delay")
_PARTS = ("payload", "header", "icrc")

_ETHERNET, _UDP, _BTH, _ICRC = 14, 8, 12, 4
_ROCE_PORT = (4791).to_bytes(2, "big")
_UDP_PROTOCOL = 17
_MOST_HELD = 1024  # packets; more come from a wrong rule, and pass
_HOLD_NS = 20_000_000  # a packet that none overtakes goes on after this time
_HEADERS = {
    code: _BTH + sum(HEADER_BYTES[name] for name in opcode.headers)
    for code, opcode in OPCODES.items()
}


@dataclass(frozen=True)
class Rule:
    """Says what happens to which packets.

    action: "drop"; "duplicate" (the copy follows at once); "reorder" (`by` later packets of this
    direction go first); "corrupt" (one bit of `part` is turned over); "delay" (by delay_s). to: the
    end that they go to; None: both directions. opcode: only packets with this one. skip: so many
    packets that it would take pass first. times: the most packets that it takes. Each direction
    counts by itself.
    """

    action: str
    probability: float = 1.0
    to: str | None = None
    opcode: str | int | None = None
    skip: int = 0
    times: int | None = None
    part: str = "payload"
    by: int = 1
    delay_s: float = 0.005
    code: int | None = field(init=False, repr=False)

    def __post_init__(self) -> None:
        if self.action not in ACTIONS or self.part not in _PARTS or self.to not in (None, *ENDS):
            raise ValueError(f"there is no such rule: {self}")
        code = None if self.opcode is None else opcode_code(self.opcode)
        object.__setattr__(self, "code", code)


@dataclass(frozen=True)
class Frame:
    """Holds a RoCEv2 frame and the places of its parts."""

    data: bytes
    bth: int

    @property
    def opcode(self) -> int:
        return self.data[self.bth]

    def part(self, name: str) -> range:
        """Returns the places of the bytes of a part."""
        end = len(self.data) - _ICRC
        headers = min(self.bth + _HEADERS.get(self.opcode, _BTH), end)
        return {
            "header": range(self.bth, headers),
            "payload": range(headers, end),
            "icrc": range(end, len(self.data)),
        }[name]


def parse(data: bytes) -> Frame | None:
    """Returns the frame if it is RoCEv2 in Ethernet without VLAN tags, IP options or extensions."""
    if data[12:14] == b"\x08\x00" and data[14:15] == b"\x45":
        udp, protocol = _ETHERNET + 20, data[23:24]
    elif data[12:14] == b"\x86\xdd":
        udp, protocol = _ETHERNET + 40, data[20:21]
    else:
        return None
    bth = udp + _UDP
    if protocol != bytes([_UDP_PROTOCOL]) or data[udp + 2 : udp + 4] != _ROCE_PORT:
        return None
    # Ethernet pads short frames: the packet ends where UDP says so.
    end = udp + int.from_bytes(data[udp + 4 : udp + 6], "big")
    if not bth + _BTH + _ICRC <= end <= len(data):
        return None
    return Frame(data[:end], bth)


@dataclass
class _Applied:
    """Counts how often a rule has skipped and taken packets of one direction."""

    rule: Rule
    skipped: int = 0
    taken: int = 0


@dataclass(order=True)
class _Held:
    due_ns: int
    number: int
    frame: bytes = field(compare=False)
    to_overtake: int = field(compare=False, default=0)
    overtaken: int = field(compare=False, default=0)


class Impairment:
    """Treats the packets of one direction of a wire. `counts` says what was done; "seen" counts all
    RoCE packets."""

    def __init__(self, to: str, rules: Sequence[Rule] = (), seed: int = 0) -> None:
        self.to = to
        self.counts: Counter[str] = Counter()
        self._random = random.Random(f"{seed} {to}")
        self._rules: list[_Applied] = []
        self._held: list[_Held] = []
        self._numbers = iter(range(1 << 62))
        self.set_rules(rules)

    def set_rules(self, rules: Sequence[Rule]) -> None:
        """Replaces the rules; packets that are held back still come."""
        self._rules = [_Applied(rule) for rule in rules if rule.to in (None, self.to)]

    def take(self, data: bytes, now_ns: int) -> list[bytes]:
        """Takes a frame; returns the frames that go on at once."""
        frame = parse(data)
        if frame is None:
            return [data]
        self.counts["seen"] += 1
        rule = self._rule_for(frame)
        action = "pass" if rule is None else rule.action
        if rule is not None and action in ("reorder", "delay"):
            by = rule.by if action == "reorder" else 0
            wait_ns = _HOLD_NS if action == "reorder" else int(rule.delay_s * 1e9)
            number = next(self._numbers)
            heapq.heappush(self._held, _Held(now_ns + wait_ns, number, frame.data, by))
            return []
        sent = {"drop": 0, "duplicate": 2}.get(action, 1)
        if rule is not None:
            self.counts[action] += 1
            if action == "corrupt":
                frame = self._corrupted(frame, rule.part)
        return [*[frame.data] * sent, *self._overtaken()] if sent else []

    def _rule_for(self, frame: Frame) -> Rule | None:
        for applied in self._rules:
            rule = applied.rule
            if rule.times is not None and applied.taken >= rule.times:
                continue
            if rule.code not in (None, frame.opcode):
                continue
            if rule.action == "corrupt" and not frame.part(rule.part):
                continue
            if rule.action in ("reorder", "delay") and len(self._held) >= _MOST_HELD:
                continue
            if rule.probability < 1.0 and self._random.random() >= rule.probability:
                continue
            if applied.skipped < rule.skip:
                applied.skipped += 1
                continue
            applied.taken += 1
            return rule
        return None

    def _corrupted(self, frame: Frame, part: str) -> Frame:
        at = self._random.choice([i for i in frame.part(part) if i != frame.bth + 4])
        data = bytearray(frame.data)
        data[at] ^= 1 << self._random.randrange(8)
        return Frame(bytes(data), frame.bth)

    def _overtaken(self) -> Iterator[bytes]:
        """Yields held packets that enough others have overtaken now."""
        ready = []
        for held in self._held:
            if held.to_overtake:
                held.overtaken += 1
                if held.overtaken >= held.to_overtake:
                    ready.append(held)
        if ready:
            self._held = [held for held in self._held if held not in ready]
            heapq.heapify(self._held)
            for held in sorted(ready, key=lambda held: held.number):
                self.counts["reorder"] += 1
                yield held.frame

    @property
    def next_due_ns(self) -> int | None:
        return self._held[0].due_ns if self._held else None

    def due(self, now_ns: int) -> list[bytes]:
        """Returns held packets that are due. It counts them as overtaken, or only as late."""
        ready = []
        while self._held and self._held[0].due_ns <= now_ns:
            held = heapq.heappop(self._held)
            self.counts["reorder" if held.overtaken else "delay"] += 1
            ready.append(held.frame)
        return ready
