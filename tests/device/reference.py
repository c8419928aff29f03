# SPDX-License-Identifier: BSD-2-Clause
"""A second responder, in Python and written from the rules alone, to check the core's against.

It is slow and simple on purpose: every rule is one line, memory is a dict of regions, and answers
are lists. RC only, one queue pair, responses at once.
"""

from __future__ import annotations

from dataclasses import dataclass, field

MASK = 0xFFFFFF
ACK, RNR, SEQUENCE, INVALID, ACCESS = 0x1F, 0x20, 0x60, 0x61, 0x62
LONGEST = 1 << 31

# BTH opcode -> (operation, position)
KINDS = {
    0x00: ("send", "first"), 0x01: ("send", "middle"), 0x02: ("send", "last"),
    0x03: ("send", "last"), 0x04: ("send", "only"), 0x05: ("send", "only"),
    0x06: ("write", "first"), 0x07: ("write", "middle"), 0x08: ("write", "last"),
    0x09: ("write", "last"), 0x0A: ("write", "only"), 0x0B: ("write", "only"),
    0x0C: ("read", "only"), 0x13: ("swap", "only"), 0x14: ("add", "only"),
}  # fmt: skip
WITH_IMMEDIATE = (0x03, 0x05, 0x09, 0x0B)


@dataclass
class Request:
    opcode: int
    psn: int
    payload: bytes = b""
    va: int = 0
    key: int = 0
    length: int = 0
    compare: int = 0
    swap_add: int = 0
    ack_req: bool = False


@dataclass
class Answer:
    """An acknowledge (kind "ack"), part of a READ ("read") or an atomic's result ("atomic")."""

    kind: str
    psn: int
    syndrome: int = ACK
    data: bytes = b""


@dataclass
class Region:
    va: int
    memory: bytearray
    rights: frozenset[str]


@dataclass
class Done:
    psn: int
    count: int
    request: Request
    result: bytes = b""


@dataclass
class Reference:
    mtu: int
    expected: int
    regions: dict[int, Region]
    receives: list[int] = field(default_factory=list)  # lengths of their buffers
    resources: int = 4
    rnr_timer: int = 1
    dead: bool = False
    silent: bool = False  # a NAK went out
    operation: str | None = None
    received: int = 0  # of the SEND in progress
    va: int = 0
    key: int = 0
    left: int = 0
    history: list[Done] = field(default_factory=list)
    completed: list[int] = field(default_factory=list)  # lengths of messages that took a Receive

    def reach(self, va: int, key: int, length: int, right: str) -> tuple[bytearray, int] | None:
        region = self.regions.get(key)
        if region is None or right not in region.rights:
            return None
        at = va - region.va
        return (region.memory, at) if 0 <= at <= len(region.memory) - length else None

    def take(self, r: Request) -> list[Answer]:
        if self.dead:
            return []
        ahead = (r.psn - self.expected) & MASK
        if ahead >= 1 << 23:
            return self.repeat(r)
        if ahead:
            said, self.silent = self.silent, True
            return [] if said else [Answer("ack", self.expected, SEQUENCE)]
        self.silent = False
        answers = self.execute(r)
        if answers and answers[-1].syndrome in (INVALID, ACCESS):
            self.dead = True
        return answers

    def repeat(self, r: Request) -> list[Answer]:
        operation = KINDS.get(r.opcode, (None, None))[0]
        if operation in ("send", "write"):
            last = (self.expected - 1) & MASK
            for done in self.history[-self.resources :]:
                distance = (done.psn - r.psn) & MASK
                if 0 < distance <= (last - r.psn) & MASK:
                    last = (done.psn - 1) & MASK
            return [Answer("ack", last)]
        for done in reversed(self.history[-self.resources :]):
            offset = (r.psn - done.psn) & MASK
            same = done.request.opcode == r.opcode and done.request.key == r.key
            if offset >= done.count or not same or r.va != done.request.va + offset * self.mtu:
                continue
            if operation == "read":
                fits = r.length <= done.request.length - offset * self.mtu
                return self.parts(r) if fits else []
            return [Answer("atomic", r.psn, ACK, done.result)]
        return []

    def execute(self, r: Request) -> list[Answer]:
        refusal = [Answer("ack", r.psn, INVALID)]
        if r.opcode not in KINDS:
            return refusal
        operation, position = KINDS[r.opcode]
        starts, ends = position in ("first", "only"), position in ("last", "only")
        if self.operation is not None if starts else self.operation != operation:
            return refusal
        size = len(r.payload)
        if size > self.mtu or (not ends and size != self.mtu) or (position == "last" and not size):
            return refusal
        if operation in ("swap", "add"):
            return self.atomic(r, operation)
        if operation in ("read", "write") and starts and r.length > LONGEST:
            return refusal
        if operation == "read":
            return self.read(r)
        if operation == "write":
            left = r.length if starts else self.left
            if size != left if ends else size >= left:
                return refusal
            if starts and r.length and not self.reach(r.va, r.key, r.length, "write"):
                return [Answer("ack", r.psn, ACCESS)]
        consumes = r.opcode in WITH_IMMEDIATE or (operation == "send" and starts)
        if consumes and not self.receives and (operation == "write" or starts):
            self.silent = True
            return [Answer("ack", r.psn, RNR | self.rnr_timer)]
        if operation == "send":
            if starts:
                self.received = 0
            if self.received + size > self.receives[0]:
                return refusal
            self.received += size
        else:
            self.write(r, starts)
        return self.finish(r, operation, ends)

    def write(self, r: Request, starts: bool) -> None:
        if starts:
            self.va, self.key, self.left, self.received = r.va, r.key, r.length, r.length
        if r.payload:
            memory, at = self.reach(self.va, self.key, len(r.payload), "write")  # type: ignore[misc]
            memory[at : at + len(r.payload)] = r.payload
        self.va += len(r.payload)
        self.left -= len(r.payload)

    def finish(self, r: Request, operation: str, ends: bool) -> list[Answer]:
        self.operation = None if ends else operation
        self.expected = (self.expected + 1) & MASK
        if ends and (operation == "send" or r.opcode in WITH_IMMEDIATE):
            self.receives.pop(0)
            self.completed.append(self.received)
        return [Answer("ack", r.psn)] if r.ack_req else []

    def parts(self, r: Request) -> list[Answer]:
        data = b""
        if r.length:
            memory, at = self.reach(r.va, r.key, r.length, "read")  # type: ignore[misc]
            data = bytes(memory[at : at + r.length])
        cuts = range(0, len(data), self.mtu) if data else [0]
        return [
            Answer("read", (r.psn + i) & MASK, ACK, data[cut : cut + self.mtu])
            for i, cut in enumerate(cuts)
        ]

    def read(self, r: Request) -> list[Answer]:
        if r.length and not self.reach(r.va, r.key, r.length, "read"):
            return [Answer("ack", r.psn, ACCESS)]
        answers = self.parts(r)
        self.history.append(Done(r.psn, len(answers), r))
        self.expected = (self.expected + len(answers)) & MASK
        return answers

    def atomic(self, r: Request, operation: str) -> list[Answer]:
        if r.va % 8:
            return [Answer("ack", r.psn, INVALID)]
        reached = self.reach(r.va, r.key, 8, "atomic")
        if reached is None:
            return [Answer("ack", r.psn, ACCESS)]
        memory, at = reached
        old = bytes(memory[at : at + 8])
        value = int.from_bytes(old, "little")
        if operation == "add":
            value = (value + r.swap_add) % 2**64
        elif value == r.compare:
            value = r.swap_add
        memory[at : at + 8] = value.to_bytes(8, "little")
        self.history.append(Done(r.psn, 1, r, old))
        self.expected = (self.expected + 1) & MASK
        return [Answer("atomic", r.psn, ACK, old)]
