# SPDX-License-Identifier: BSD-2-Clause
"""A requester and a responder of RC over a lossy wire, and what a capture of it can prove.

Time goes in rounds: the requester sends what its window allows, the responder answers, the
requester looks at what came back, and goes back to the first packet that is not acknowledged. At
most one packet is lost in a round, so each repetition has one cause and the truth is known.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from enum import Enum

from roce_frames import (
    ACK,
    ACK_OK,
    ATOMIC_ACK,
    FETCH_ADD,
    NAK_SEQUENCE,
    READ_FIRST,
    READ_LAST,
    READ_MIDDLE,
    READ_ONLY,
    READ_REQUEST,
    RNR_NAK,
    SEND_FIRST,
    SEND_LAST,
    SEND_MIDDLE,
    SEND_ONLY,
    WRITE_FIRST,
    WRITE_LAST,
    WRITE_MIDDLE,
    WRITE_ONLY,
    Capture,
    Packet,
)

MTU = 1024
LATENCY_NS, GAP_NS, TIMEOUT_NS = 10_000, 1_000, 5_000_000
MASK = 0xFFFFFF
_PARTS = {
    "SEND": (SEND_FIRST, SEND_MIDDLE, SEND_LAST, SEND_ONLY),
    "WRITE": (WRITE_FIRST, WRITE_MIDDLE, WRITE_LAST, WRITE_ONLY),
    "READ": (READ_FIRST, READ_MIDDLE, READ_LAST, READ_ONLY),
}


class Place(Enum):
    """Where the capture is taken: losses happen between it and the far ends, or before it."""

    MIDDLE = "before the loss in both directions"
    REQUESTER = "at the requester: behind the loss of responses"
    RESPONDER = "at the responder: behind the loss of requests"


@dataclass(frozen=True)
class Request:
    """One PSN, or for a READ all of them; positions count from 0 and become PSNs on the wire."""

    operation: str
    opcode: int
    start: int
    count: int
    payload: int
    dma_length: int
    wants_ack: bool


def requests(messages: list[tuple[str, int]]) -> list[Request]:
    """The packets of messages given as (operation, number of packets)."""
    made: list[Request] = []
    at = 0
    for operation, n in messages:
        if operation == "READ":
            made.append(Request(operation, READ_REQUEST, at, n, 0, n * MTU, True))
        elif operation == "FETCH_ADD":
            n = 1
            made.append(Request(operation, FETCH_ADD, at, 1, 0, 0, True))
        else:
            for i in range(n):
                opcode = _part(operation, i, n)
                made.append(Request(operation, opcode, at + i, 1, MTU, n * MTU, i == n - 1))
        at += n
    return made


def _part(operation: str, i: int, n: int) -> int:
    first, middle, last, only = _PARTS[operation]
    if n == 1:
        return only
    return first if i == 0 else last if i == n - 1 else middle


@dataclass
class Connection:
    """Runs to the end on creation; then `lost`, `retransmitted` and the capture can be compared."""

    messages: list[tuple[str, int]]
    drops: set[int]  # transmissions that get lost, counted over both directions
    place: Place
    capture: Capture
    first_psn: int = 0
    window: int = 12
    not_ready: int = 0  # RNR NAKs before the first SEND is taken
    qps: tuple[int, int] = (0x11, 0x22)
    start_ns: int = 1_000_000_000

    lost: int = 0
    retransmitted: int = 0
    received_again: int = 0
    naks: int = 0
    rnr_naks: int = 0
    rounds: int = 0
    _sent: int = 0
    _is_spared: bool = False
    _captured_high: int = 0
    _captured_next: int = 0
    _captured_responses: set[int] = field(default_factory=set)

    def __post_init__(self) -> None:
        self.requests = requests(self.messages)
        self.end = self.requests[-1].start + self.requests[-1].count
        self.una = 0  # first position the requester has no answer for
        self.expected = 0  # the responder's
        self.is_nak_sent = False
        now = self.start_ns
        while self.una < self.end:
            now = self._round(now)
            self.rounds += 1
            assert self.rounds < 500

    def _round(self, now: int) -> int:
        self._was_spared, self._is_spared = self._is_spared, False
        self._is_gap_captured = self._is_any_captured = False
        self._refused: int | None = None
        self._lost: tuple[str, int] | None = None
        arrived = self._send(now)
        answers = self._respond(arrived)
        is_asked = self._take(answers)
        now += (len(arrived) + len(answers) + 2) * GAP_NS + 4 * LATENCY_NS
        if self._lost is not None:
            self._account(*self._lost)
        return now if is_asked else now + TIMEOUT_NS

    def _is_dropped(self, kind: str, position: int) -> bool:
        self._sent += 1
        if self._sent not in self.drops or self._is_spared:
            return False
        # Behind two losses in a row the capture does not show where the requester went back to.
        is_restart = kind == "request" and position == self.una
        if self.place is Place.RESPONDER and self._was_spared and is_restart:
            return False
        self._is_spared = True
        self._lost = (kind, position)
        return True

    def _send(self, now: int) -> list[tuple[int, Request]]:
        arrived = []
        at = now
        allowed = [
            request
            for request in self.requests
            if request.start + request.count > self.una and request.start < self.una + self.window
        ]
        allowed[-1] = replace(allowed[-1], wants_ack=True)
        for request in allowed:
            if request.start < self.una:  # the rest of a READ
                left = request.start + request.count - self.una
                request = Request("READ", READ_REQUEST, self.una, left, 0, left * MTU, True)
            at += GAP_NS
            is_dropped = self._is_dropped("request", request.start)
            if not is_dropped:
                arrived.append((at + LATENCY_NS, request))
            if self.place is not Place.RESPONDER or not is_dropped:
                self._capture_request(at + self._on_the_way(Place.RESPONDER), request)
        return arrived

    def _on_the_way(self, far: Place) -> int:
        return {Place.MIDDLE: LATENCY_NS // 2, far: LATENCY_NS}.get(self.place, 0)

    def _capture_request(self, at: int, request: Request) -> None:
        self._is_any_captured = True
        self._is_gap_captured |= self._is_spared
        self.retransmitted += request.start < self._captured_high
        self._captured_next = request.start + request.count
        self._captured_high = max(self._captured_high, self._captured_next)
        self.capture.add(
            at,
            Packet(
                *(1, 2, self.qps[1], self._psn(request.start), request.opcode, request.payload),
                dma_length=request.dma_length,
                ack_req=request.wants_ack,
            ),
        )

    def _psn(self, position: int) -> int:
        return (self.first_psn + position) & MASK

    def _respond(self, arrived: list[tuple[int, Request]]) -> list[tuple[int, int, int]]:
        """Answers as (position, opcode, syndrome) that reach the requester."""
        answers: list[tuple[int, int, int]] = []
        at = 0

        def answer(position: int, opcode: int, payload: int = 0, syndrome: int = ACK_OK) -> None:
            nonlocal at
            at = max(at + GAP_NS, now)
            kind = "ack" if opcode == ACK else "data"
            can_drop = syndrome == ACK_OK
            is_dropped = can_drop and self._is_dropped(kind, position)
            if not is_dropped:
                answers.append((position, opcode, syndrome))
            if self.place is not Place.REQUESTER or not is_dropped:
                then = at + self._on_the_way(Place.REQUESTER)
                if kind == "data":
                    self.retransmitted += position in self._captured_responses
                    self._captured_responses.add(position)
                fields = (2, 1, self.qps[0], self._psn(position), opcode, payload)
                self.capture.add(then, Packet(*fields, syndrome=syndrome))

        for now, request in arrived:  # noqa: B007  answer() takes it
            if self._refused is not None:
                continue
            if request.start > self.expected:
                if not self.is_nak_sent:
                    self.is_nak_sent = True
                    self.naks += 1
                    answer(self.expected, ACK, syndrome=NAK_SEQUENCE)
                continue
            is_new = request.start == self.expected
            self.received_again += not is_new
            if is_new and request.operation == "SEND" and self.rnr_naks < self.not_ready:
                self.rnr_naks += 1
                self._refused = request.start
                answer(request.start, ACK, syndrome=RNR_NAK)
                continue
            self.expected = max(self.expected, request.start + request.count)
            self.is_nak_sent = self.is_nak_sent and not is_new
            if request.operation == "READ":
                for i in range(request.count):
                    answer(request.start + i, _part("READ", i, request.count), MTU)
            elif request.operation == "FETCH_ADD":
                answer(request.start, ATOMIC_ACK)
            elif request.wants_ack:
                answer(request.start, ACK)
        return answers

    def _take(self, answers: list[tuple[int, int, int]]) -> bool:
        """Moves on as far as the answers go; returns whether one asks for a repetition at once."""
        for position, _opcode, syndrome in answers:
            waiting = [
                p
                for request in self.requests
                if request.operation in ("READ", "FETCH_ADD")
                for p in range(request.start, request.start + request.count)
                if self.una <= p < position
            ]
            if waiting:  # an answer behind data that did not come
                self.una = max(self.una, waiting[0])
                return True
            if syndrome != ACK_OK:
                self.una = max(self.una, position)
                return True
            self.una = max(self.una, position + 1)
        return False

    def _account(self, kind: str, position: int) -> None:
        if self._refused is not None and position > self._refused:
            # It would have been refused as well: only a gap in the capture tells.
            self.lost += self.place is Place.RESPONDER and self._is_gap_captured
            return
        if position < self.una:
            return  # nobody missed it: a later answer covered it
        if (
            self.place is Place.RESPONDER
            and kind == "request"
            and (self._captured_next <= self.una or not self._is_any_captured)
        ):
            return  # in the capture it looks as if it had been sent late
        self.lost += 1
