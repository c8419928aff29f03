# SPDX-License-Identifier: BSD-2-Clause
"""One end of librdmacm's rsockets, streams over a reliable connection, as far as rstream uses them.

Each end has a ring for what it receives, in two halves. The first is the peer's from the start, by
the private data of the connection; a half that is free again is granted by a WRITE of its place
into the peer's list of targets. Every message is a WRITE with immediate data, whose upper three
bits say what it is; data takes a credit, which comes back with the next grant, or alone.
"""

from __future__ import annotations

import enum
import struct
import sys
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple, Self

from endpoints import Piece

from livedma.rdma import Completion, Device, QueuePair, cm

PATIENCE_S = 60.0
MAX_TRANSFER = 1 << 16
INLINE_BYTES = 64
CONTROLS = 4  #: control messages that may be under way, besides data

_VERSION = 1
_BIG_ENDIAN = 1  # a flag: how the end that sends it wants what is written into its list
# Version, flags, credits; then the list of targets and the first half of the ring.
_HELLO = struct.Struct("!BBH4xQIIQII")
_TARGETS = 2
_TARGET_BYTES = 16
_SEQUENCE = 0xFFFF
_VALUE = (1 << 29) - 1
_RECEIVE = 1 << 32  # a wr_id; those of sends are their messages


class Op(enum.IntEnum):
    DATA = 0  # with the number of bytes
    SGL = 4  # with the sequence number that data may not reach
    CTRL = 7  # with a Control


class Control(enum.IntEnum):
    DISCONNECT = 0
    KEEPALIVE = 1
    SHUTDOWN = 2


class ProtocolError(Exception):
    """The peer did what no rsocket does."""


class Target(NamedTuple):
    """Memory of a peer."""

    va: int
    key: int
    length: int


@dataclass(frozen=True)
class Size:
    """Of one end; the defaults are those of rsockets."""

    ring_bytes: int = 1 << 17
    credits: int = 384

    @property
    def half_bytes(self) -> int:
        return self.ring_bytes // 2


class RSocket:
    """Made by `connect` and `accept`. A context manager, which closes it."""

    def __init__(self, device: Device, size: Size) -> None:
        self._size = size
        self._pd = device.protection_domain()
        self._ring, self._outgoing = bytearray(size.ring_bytes), bytearray(size.ring_bytes)
        self._list = bytearray(_TARGETS * _TARGET_BYTES)
        self._ring_region = self._pd.register(self._ring, "remote_write")
        self._list_region = self._pd.register(self._list, "remote_write")
        self._out_region = self._pd.register(self._outgoing)
        self._connection: cm.Connection

        self.is_readable = self.is_connected = True
        self._unread: deque[int] = deque()  # bytes of each message
        self._arrived_bytes = self._read_bytes = 0
        self._arrived = self._read = 0  # messages
        self._granted_bytes = size.half_bytes
        self._promised, self._credits_due = size.credits, size.credits // 2

        self._targets: deque[Target] = deque()
        self._next_target = self._peer_slot = 1
        self._peer_list: Target
        self._peer_order = ""
        self._sent = self._limit = self._copied_bytes = 0
        self._open_bytes = self._open_data = self._open_controls = 0
        self._after_end = 0  # messages

    @classmethod
    def connect(cls, device: Device, address: str, port: int, size: Size) -> Self:
        made = cls(device, size)
        hello, setup = made._hello(), made._setup()
        made._connection = cm.connect(
            device, address, port, private_data=hello, timeout=PATIENCE_S, **setup
        )
        made._meet(made._connection.private_data)
        return made

    @classmethod
    def accept(cls, device: Device, request: cm.Request, size: Size) -> Self:
        made = cls(device, size)
        made._meet(request.private_data)
        hello, setup = made._hello(), made._setup()
        made._connection = request.accept(private_data=hello, timeout=PATIENCE_S, **setup)
        return made

    def send(self, data: bytes) -> None:
        """All of it; it may still be under way then."""
        left = memoryview(data)
        while left:
            self._wait_until(self._may_send)
            if not self.is_connected:
                raise ConnectionResetError(f"{len(left)} bytes were not sent")
            free = self._size.ring_bytes - self._open_bytes
            piece = left[: min(free, self._targets[0].length, MAX_TRANSFER)]
            self._send_piece(bytes(piece))
            left = left[len(piece) :]

    def receive(self, length: int) -> bytes:
        """That many bytes; fewer at the end of the stream."""
        taken = bytearray()
        while len(taken) < length:
            self._wait_until(lambda: bool(self._unread) or not self.is_readable)
            if not self._unread:
                break
            taken += self._take(length - len(taken))
        return bytes(taken)

    def shut_down(self) -> None:
        """Tells the peer that nothing more is sent or read, and ends the connection."""
        self._wait_until(lambda: self._open_controls < CONTROLS)
        if self.is_connected:
            self._post_control(Op.CTRL, Control.DISCONNECT)
            self._wait_until(lambda: not self._open_controls and not self._open_data)
        self._connection.disconnect(timeout=PATIENCE_S)

    def wait_shut_down(self) -> None:
        """Until the peer has told and done the same."""
        self._wait_until(lambda: not self.is_connected)
        if not self._connection.wait_disconnected(PATIENCE_S):
            raise TimeoutError("the peer does not end the connection")
        while found := self._connection.cq.poll():
            for completion in found:
                self._complete(completion)

    @property
    def unanswered(self) -> int:
        """Packets that the peer may not have got, since it had ended.

        Credits that were under way, and ACKs of its own last ones: rsockets give some after they
        have told that they end, and do not wait for what becomes of them.
        """
        return self._open_controls + self._after_end

    def close(self) -> None:
        self._connection.close()
        for region in (self._ring_region, self._list_region, self._out_region):
            region.close()
        self._pd.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _hello(self) -> bytes:
        ring, targets = self._ring_region, self._list_region
        return _HELLO.pack(
            _VERSION,
            _BIG_ENDIAN if sys.byteorder == "big" else 0,
            self._size.credits,
            *(targets.va, targets.rkey, _TARGETS),
            *(ring.va, ring.rkey, self._size.half_bytes),
        )

    def _meet(self, private_data: bytes) -> None:
        if len(private_data) < _HELLO.size or private_data[0] != _VERSION:
            raise ProtocolError(f"it is no rsocket: {private_data.hex()}")
        _, flags, self._limit, *places = _HELLO.unpack_from(private_data)
        self._peer_list = Target(*places[:3])
        if not self._peer_list.length:
            raise ProtocolError("its list has no place for a target")
        self._peer_order = ">" if flags & _BIG_ENDIAN else "<"
        self._targets.append(Target(*places[3:]))

    def _setup(self) -> cm.Setup:
        return {
            "pd": self._pd,
            "access": ("remote_write",),
            "prepare": self._post_receives,
            "max_send": self._size.credits + CONTROLS,
            "max_recv": self._size.credits + CONTROLS,
            "max_inline": INLINE_BYTES,
        }

    def _post_receives(self, qp: QueuePair) -> None:
        qp.post_recvs([(_RECEIVE, ())] * (self._size.credits + CONTROLS))

    def _wait_until(self, is_so: Callable[[], bool]) -> None:
        """Returns as well when the connection is over."""
        end_s = time.monotonic() + PATIENCE_S
        self._give_credits()
        while self.is_connected and not is_so():
            left_s = end_s - time.monotonic()
            found = self._connection.cq.wait(left_s) if left_s > 0 else []
            if not found:
                raise TimeoutError(f"nothing came for {PATIENCE_S} s")
            for completion in found:
                self._complete(completion)
            self._give_credits()

    def _complete(self, completion: Completion) -> None:
        if completion.status == "WR_FLUSH_ERR":
            self._end()
        elif completion.status != "SUCCESS":
            raise ProtocolError(f"{completion.operation} ended with {completion.status}")
        elif completion.wr_id == _RECEIVE:
            if completion.imm is None:
                raise ProtocolError(f"a message by {completion.operation}")
            if self.is_connected:
                self._connection.qp.post_recv(_RECEIVE)
            else:
                self._after_end += 1
            self._message(completion.imm >> 29, completion.imm & _VALUE, completion.length)
        elif completion.wr_id >> 29 == Op.DATA:
            self._open_bytes -= completion.wr_id & _VALUE
            self._open_data -= 1
        else:
            self._open_controls -= 1

    def _end(self) -> None:
        self.is_connected = self.is_readable = False

    def _message(self, op: int, value: int, length: int) -> None:
        if op == Op.DATA and length == value:
            self._take_in(value)
        elif op == Op.SGL and length in (0, _TARGET_BYTES):
            self._limit = value & _SEQUENCE
            if length:
                self._take_target()
        elif op == Op.CTRL and length == 0 and value in list(Control):
            if value == Control.DISCONNECT:
                self._end()
            elif value == Control.SHUTDOWN:
                self.is_readable = False
        else:
            raise ProtocolError(f"message {op} with {value} and {length} bytes")

    def _take_in(self, length: int) -> None:
        half = self._size.half_bytes
        room = min(self._granted_bytes - self._arrived_bytes, half - self._arrived_bytes % half)
        if length > room:
            raise ProtocolError(f"{length} bytes of data where {room} were granted")
        if self._arrived == self._promised:
            raise ProtocolError("data without a credit")
        self._arrived += 1
        self._arrived_bytes += length
        self._unread.append(length)

    def _take_target(self) -> None:
        if len(self._targets) == _TARGETS:
            raise ProtocolError("a grant in place of one that is not used up")
        place = self._next_target * _TARGET_BYTES
        self._targets.append(Target(*struct.unpack_from("=QII", self._list, place)))
        self._next_target = (self._next_target + 1) % _TARGETS

    def _take(self, most: int) -> bytes:
        """Of the oldest message."""
        start = self._read_bytes % self._size.ring_bytes
        length = min(most, self._unread[0])
        self._unread[0] -= length
        if not self._unread[0]:
            self._unread.popleft()
            self._read += 1
        self._read_bytes += length
        return bytes(self._ring[start : start + length])

    def _give_credits(self) -> None:
        size = self._size
        while self.is_connected and self._open_controls < CONTROLS:
            may_grant = self._read_bytes + size.half_bytes >= self._granted_bytes
            if not may_grant and self._read < self._credits_due:
                return
            self._promised = self._read + size.credits
            self._credits_due = self._read + size.credits // 2
            target = self._grant() if may_grant else None
            self._post_control(Op.SGL, self._promised & _SEQUENCE, target)

    def _grant(self) -> bytes:
        """The next half is the peer's."""
        start = self._granted_bytes % self._size.ring_bytes
        self._granted_bytes += self._size.half_bytes
        place = (self._ring_region.va + start, self._ring_region.rkey, self._size.half_bytes)
        return struct.pack(f"{self._peer_order}QII", *place)

    def _post_control(self, op: Op, value: int, target: bytes | None = None) -> None:
        message = op << 29 | value
        place = (0, 0)
        if target is not None:
            place = self._peer_list.va + self._peer_slot * _TARGET_BYTES, self._peer_list.key
            self._peer_slot = (self._peer_slot + 1) % self._peer_list.length
        self._open_controls += 1
        self._write(message, place, target or [])

    def _may_send(self) -> bool:
        return (
            bool(self._targets)
            and self._sent & _SEQUENCE != self._limit
            and self._open_data < self._size.credits
            and self._open_bytes < self._size.ring_bytes
        )

    def _send_piece(self, data: bytes) -> None:
        target, length = self._targets[0], len(data)
        message = Op.DATA << 29 | length
        what = data if length <= INLINE_BYTES else self._copied(data)
        self._write(message, (target.va, target.key), what)
        self._sent += 1
        self._open_data += 1
        self._open_bytes += length
        if length == target.length:
            self._targets.popleft()
        else:
            self._targets[0] = Target(target.va + length, target.key, target.length - length)

    def _write(self, message: int, place: tuple[int, int], what: bytes | list[Piece]) -> None:
        inline, pieces = (what, []) if isinstance(what, bytes) else (None, what)
        va, key = place
        post = self._connection.qp.post_send
        post(message, "WRITE_WITH_IMM", pieces, inline=inline, imm=message, remote_va=va, rkey=key)

    def _copied(self, data: bytes) -> list[Piece]:
        """Where it is in the ring of what is sent: one piece, or two at its end."""
        start, room = self._copied_bytes, self._size.ring_bytes - self._copied_bytes
        first, rest = data[:room], data[room:]
        self._outgoing[start : start + len(first)] = first
        self._outgoing[: len(rest)] = rest
        self._copied_bytes = (start + len(data)) % self._size.ring_bytes
        pieces = [self._out_region[start : start + len(first)], self._out_region[: len(rest)]]
        return pieces if rest else pieces[:1]
