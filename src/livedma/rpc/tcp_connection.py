"""One peer of `TcpServer`: what it has sent and not yet been answered, what it has not yet read.

The server's thread reads; threads that serve calls send, as far as the socket takes it at once, and
leave the rest to the server's thread.
"""

from __future__ import annotations

import contextlib
import itertools
import socket
import threading
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

from livedma.rpc.record import RecordSplitter
from livedma.rpc.service import Data, Part
from livedma.rpc.xdr import WORD_BYTES

__all__ = ["TcpConnection", "TcpConnectionFacts"]

_LAST_FRAGMENT = 0x80000000
_BUFFERS_MOST = 64  # of one sendmsg
_UNSENT_MOST = 1 << 20  # bytes that a peer may leave in its way before it is called no more
# Endpoints of RDMA count from 1.
_numbers = itertools.count(1 << 32)


@dataclass(frozen=True, slots=True)
class TcpConnectionFacts:
    """What others may know of a connection."""

    number: int
    peer: str
    port: int
    calls: int
    outstanding: int
    unsent_bytes: int


class TcpConnection:
    """A `CallingConnection`. `wake` tells the server's thread that it has to look at this one."""

    kind: Literal["tcp"] = "tcp"

    def __init__(
        self,
        sock: socket.socket,
        peer: str,
        port: int,
        record_bytes: int,
        now: float,
        wake: Callable[[TcpConnection], None],
    ) -> None:
        self.number = next(_numbers)
        self.peer = peer
        self.port = port
        self.sock = sock
        self.splitter = RecordSplitter(record_bytes)
        self.moved_s = now  # when bytes moved last, or nobody owed any
        self.calls = 0
        self._wake = wake
        self._lock = threading.Lock()  # guards what follows
        self._is_open = True
        self._waiting: deque[bytes] = deque()
        self._outstanding = 0
        self._queued_bytes = 0
        self._unsent: deque[memoryview] = deque()
        self._unsent_bytes = 0
        self._is_over = False

    @property
    def is_open(self) -> bool:
        """Nobody has cut it."""
        return self._is_open

    @property
    def held_bytes(self) -> int:
        """Of calls that wait and of replies that the peer has not taken."""
        return self._queued_bytes + self._unsent_bytes

    @property
    def outstanding(self) -> int:
        """Calls that are being served."""
        return self._outstanding

    @property
    def is_waiting(self) -> bool:
        """It has sent more calls than are being served."""
        return bool(self._waiting)

    @property
    def unsent_bytes(self) -> int:
        """Of replies, those that the socket has not taken."""
        return self._unsent_bytes

    def close(self) -> None:
        """Cuts it; any thread may."""
        with self._lock:
            if not self._is_open:
                return
            self._is_open = False
        with contextlib.suppress(OSError):
            self.sock.shutdown(socket.SHUT_RDWR)
        self._wake(self)

    def wait(self, record: bytes) -> None:
        """A call waits for its turn."""
        self.calls += 1
        with self._lock:
            self._waiting.append(record)
            self._queued_bytes += len(record)

    def call_begins(self) -> bytes | None:
        """The next call that waits; it is to be ended or put back."""
        with self._lock:
            if not self._waiting:
                return None
            self._outstanding += 1
            return self._waiting.popleft()

    def put_back(self, record: bytes) -> bool:
        """It was not served yet, and waits again. False: there is nobody to serve any more."""
        with self._lock:
            if self._is_over:
                return False
            self._outstanding -= 1
            self._waiting.appendleft(record)
            return True

    def call_ends(self, record: bytes, parts: Sequence[Part] | None) -> bool:
        """Sends the reply. Whether nothing is left of a connection that is over."""
        if parts is not None:
            self._send(_buffers(parts))
        with self._lock:
            self._outstanding -= 1
            self._queued_bytes -= len(record)
            return self._is_over and self._outstanding == 0

    def call(self, message: bytes) -> bool:
        """Sends a call to the peer; False: it is gone, or does not take what it was sent before."""
        if not self._is_open or self._unsent_bytes > _UNSENT_MOST:
            return False
        self._send(_buffers([message]))
        return True

    def over(self) -> bool:
        """The server's thread has no more to do with it. Whether no call is left, either."""
        with self._lock:
            self._is_open = False
            self._is_over = True
            self._waiting.clear()
            self._unsent.clear()
            self._unsent_bytes = 0
            # Closed under the lock: whoever sends must not meet a descriptor that is another's.
            self.sock.close()
            return self._outstanding == 0

    def flush(self) -> int:
        """Sends what the socket takes. How many bytes that was."""
        with self._lock:
            return self._flush()

    def facts(self) -> TcpConnectionFacts:
        """What others may know of it."""
        return TcpConnectionFacts(
            self.number, self.peer, self.port, self.calls, self._outstanding, self._unsent_bytes
        )

    def _send(self, buffers: list[memoryview]) -> None:
        with self._lock:
            if not self._is_open:
                return
            self._unsent.extend(buffers)
            self._unsent_bytes += sum(len(buffer) for buffer in buffers)
            self._flush()
            is_stuck = bool(self._unsent)
        if is_stuck:
            self._wake(self)

    def _flush(self) -> int:
        sent_bytes = 0
        while self._unsent:
            some = list(itertools.islice(self._unsent, _BUFFERS_MOST))
            try:
                sent = self.sock.sendmsg(some, [], socket.MSG_NOSIGNAL)
            except (BlockingIOError, InterruptedError):
                break
            except OSError:  # It is gone, which the server's thread will see.
                self._unsent.clear()
                self._unsent_bytes = 0
                break
            sent_bytes += sent
            self._unsent_bytes -= sent
            while sent:
                first = self._unsent[0]
                if sent < len(first):
                    self._unsent[0] = first[sent:]
                    break
                sent -= len(first)
                self._unsent.popleft()
        return sent_bytes


def _buffers(parts: Sequence[Part]) -> list[memoryview]:
    buffers = [memoryview(b"")]
    for part in parts:
        if isinstance(part, Data):
            buffers.append(memoryview(part.data).cast("B"))
            buffers.append(memoryview(bytes(-len(part.data) % WORD_BYTES)))
        else:
            buffers.append(memoryview(part))
    length = sum(len(buffer) for buffer in buffers)
    buffers[0] = memoryview((_LAST_FRAGMENT | length).to_bytes(WORD_BYTES, "big"))
    return [buffer for buffer in buffers if len(buffer)]
