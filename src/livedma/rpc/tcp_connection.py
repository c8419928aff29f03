# SPDX-License-Identifier: BSD-2-Clause
"""Serves one peer of `TcpServer`: it keeps its calls without a reply, and the replies that it has
not yet read.

The server's thread reads. Threads that serve calls send what the socket takes at once, and leave
the rest to the server's thread.
"""

from __future__ import annotations

import contextlib
import itertools
import socket
import threading
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from livedma._native.calls import CallAccount
from livedma.rpc.names import TransportKind
from livedma.rpc.record import RecordSplitter
from livedma.rpc.service import Data, Part, connection_numbers
from livedma.rpc.xdr import WORD_BYTES

__all__ = ["TcpCall", "TcpConnection", "TcpConnectionFacts"]

_LAST_FRAGMENT = 0x80000000
_BUFFERS_MOST = 64  # of one sendmsg
_UNSENT_MOST = 1 << 20  # with more bytes unsent, the server makes no call to the peer
_COPIED_MOST = 16 << 10  # bytes of data that are copied, as that takes less than to send them apart

#: A whole message from the peer, and when it came, by the monotonic clock. Each call has one: a
#: plain tuple is made in a tenth of the time that one with names takes.
TcpCall = tuple[bytes, int]
_Buffer = bytes | bytearray | memoryview


@dataclass(frozen=True, slots=True)
class TcpConnectionFacts:
    """Holds the figures of a connection, for display."""

    number: int
    peer: str
    port: int
    calls: int
    outstanding: int
    unsent_bytes: int


class TcpConnection:
    """Implements `CallingConnection`. `wake` tells the server's thread to look at it."""

    kind = TransportKind.TCP

    def __init__(
        self,
        sock: socket.socket,
        peer: str,
        port: int,
        record_bytes: int,
        now: float,
        wake: Callable[[TcpConnection], None],
        server: str = "",
    ) -> None:
        self.number = next(connection_numbers)
        self.peer = peer
        self.port = port
        self.server = server  #: its address to which the peer connected
        self.account = CallAccount()
        #: counts what a call that is being answered has read or written in files
        self.moved = self.account.moved
        self.sock = sock
        self.splitter = RecordSplitter(record_bytes)
        self.accepted_s = now
        self.why_left = ""  #: why it has ended, or is about to; "" before
        self.moved_s = now  # when bytes moved last, or neither side owed any
        self.calls = 0
        #: the server's thread does not read from it, and has to look at it when a call has ended
        self.is_paused = False
        self._wake = wake
        self._lock = threading.Lock()  # guards what follows
        self._is_open = True
        self._waiting: deque[TcpCall] = deque()
        self._outstanding = 0
        self._queued_bytes = 0
        self._unsent: deque[_Buffer] = deque()
        self._unsent_bytes = 0
        self._is_over = False

    @property
    def is_open(self) -> bool:
        """Turns false as soon as it is cut."""
        return self._is_open

    @property
    def held_bytes(self) -> int:
        """Counts the bytes of calls without a reply, and of replies that the peer has not taken."""
        return self._queued_bytes + self._unsent_bytes

    @property
    def outstanding(self) -> int:
        """Calls that are being served."""
        return self._outstanding

    @property
    def is_waiting(self) -> bool:
        """Tells whether it has sent more calls than are being served."""
        return bool(self._waiting)

    @property
    def in_flight(self) -> int:
        """Calls that have come and have no reply yet."""
        with self._lock:
            return self._outstanding + len(self._waiting)

    @property
    def unsent_bytes(self) -> int:
        """Counts the bytes of replies that the socket has not taken."""
        return self._unsent_bytes

    def close(self, why: str = "the server cut it") -> None:
        """Cuts it; any thread may call this. why: for the log."""
        with self._lock:
            if not self._is_open:
                return
            self._is_open = False
            self.why_left = why
        with contextlib.suppress(OSError):
            self.sock.shutdown(socket.SHUT_RDWR)
        self._wake(self)

    def wait(self, record: bytes, now_ns: int) -> None:
        """Queues a call, which waits for its turn."""
        self.calls += 1
        with self._lock:
            self._waiting.append((record, now_ns))
            self._queued_bytes += len(record)

    def call_begins(self) -> TcpCall | None:
        """Takes the next call that waits. The caller has to end it or put it back."""
        with self._lock:
            if not self._waiting:
                return None
            self._outstanding += 1
            return self._waiting.popleft()

    def put_back(self, call: TcpCall) -> bool:
        """Queues a call again that was not served. False: the connection is over."""
        with self._lock:
            if self._is_over:
                return False
            self._outstanding -= 1
            self._waiting.appendleft(call)
            return True

    def call_ends(self, call: TcpCall, parts: Sequence[Part] | None) -> bool:
        """Sends the reply. Returns whether this was the last call of a connection that is over."""
        buffers = [] if parts is None else _buffers(parts)
        with self._lock:
            self._send(buffers)
            is_stuck = bool(self._unsent)
            self._outstanding -= 1
            self._queued_bytes -= len(call[0])
            is_last = self._is_over and self._outstanding == 0
        if is_stuck:
            self._wake(self)
        return is_last

    def call(self, message: bytes) -> bool:
        """Sends a call to the peer. False: it is gone, or does not take what it was sent before."""
        if not self._is_open or self._unsent_bytes > _UNSENT_MOST:
            return False
        with self._lock:
            self._send(_buffers([message]))
            is_stuck = bool(self._unsent)
        if is_stuck:
            self._wake(self)
        return True

    def over(self) -> bool:
        """Closes the socket, as the server's thread drops it. Returns whether no call is left."""
        with self._lock:
            self._is_open = False
            self._is_over = True
            self._waiting.clear()
            self._unsent.clear()
            self._unsent_bytes = 0
            # Closed under the lock: another thread must not send to a descriptor that is reused.
            self.sock.close()
            return self._outstanding == 0

    def flush(self) -> int:
        """Sends what the socket takes. Returns how many bytes that was."""
        with self._lock:
            return self._flush()

    def facts(self) -> TcpConnectionFacts:
        """Returns its figures, for display."""
        return TcpConnectionFacts(
            self.number, self.peer, self.port, self.calls, self._outstanding, self._unsent_bytes
        )

    def _send(self, buffers: list[_Buffer]) -> None:
        if self._is_open:
            self._unsent.extend(buffers)
            self._unsent_bytes += sum(map(len, buffers))
            self._flush()

    def _flush(self) -> int:
        sent_bytes = 0
        while self._unsent:
            some = itertools.islice(self._unsent, _BUFFERS_MOST)
            try:
                sent = self.sock.sendmsg(some, (), socket.MSG_NOSIGNAL)
            except (BlockingIOError, InterruptedError):
                break
            except OSError:  # The peer is gone, which the server's thread will see.
                self._unsent.clear()
                self._unsent_bytes = 0
                break
            sent_bytes += sent
            self._unsent_bytes -= sent
            if not self._unsent_bytes:
                self._unsent.clear()
            while sent and self._unsent:
                first = self._unsent.popleft()
                if sent < len(first):
                    self._unsent.appendleft(memoryview(first)[sent:])
                    break
                sent -= len(first)
        return sent_bytes


def _buffers(parts: Sequence[Part]) -> list[_Buffer]:
    """Returns the record of a message: much data stays where it is, all else is copied together."""
    data: _Buffer = b""
    before: list[_Buffer] = []
    after = before
    for part in parts:
        if isinstance(part, Data):
            padding = bytes(-len(part.data) % WORD_BYTES)
            if len(part.data) > _COPIED_MOST and after is before:
                data, after = part.data, [padding]
            else:
                after += (part.data, padding)
        else:
            after.append(part)
    head = b"".join(before)
    tail = b"" if after is before else b"".join(after)
    length = len(head) + len(data) + len(tail)
    head = (_LAST_FRAGMENT | length).to_bytes(WORD_BYTES, "big") + head
    return [one for one in (head, data, tail) if one]
