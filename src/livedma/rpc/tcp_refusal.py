# SPDX-License-Identifier: BSD-2-Clause
"""Refuses peers over TCP that may not connect: it denies their first call, then ends the
connection.

A connection that is closed at once looks like a server that is not there, and clients try again for
minutes. The server keeps so few of them, and for so short a time, that they cost little.
"""

from __future__ import annotations

import contextlib
import selectors
import socket

from livedma.rpc.message import encode_reply
from livedma.rpc.refusal import denied
from livedma.wire.rpc import CALL

__all__ = ["Refusal", "Refusals"]

AT_ONCE = 32
PATIENCE_S = 3.0
_HEAD_BYTES = 12  # the record's mark, the XID and the message type
_READ_BYTES = 4096
_LAST_FRAGMENT = 0x80000000


class Refusal:
    """Handles one such peer."""

    def __init__(self, sock: socket.socket, until_s: float) -> None:
        self.sock, self.until_s = sock, until_s
        self._head = b""
        self._is_told = False

    def move(self) -> bool:
        """Reads what has come, and denies the first call. False: there is nothing left to do."""
        try:
            data = self.sock.recv(_READ_BYTES)
            if not data:
                return False
            if not self._is_told:
                self._head += data[:_HEAD_BYTES]
                return self._deny()
        except (BlockingIOError, InterruptedError):
            return True
        except OSError:
            return False
        return True  # Data left unread would make the close drop the reply.

    def _deny(self) -> bool:
        head = self._head
        if len(head) < _HEAD_BYTES:
            return True
        if int.from_bytes(head[8:12], "big") != CALL:
            return False
        reply = encode_reply(denied(int.from_bytes(head[4:8], "big")))
        mark = (_LAST_FRAGMENT | len(reply)).to_bytes(4, "big")
        self.sock.send(mark + reply, socket.MSG_NOSIGNAL)
        self.sock.shutdown(socket.SHUT_WR)
        self._is_told = True
        return True


class Refusals:
    """Handles all such peers of one listener. Only the listener's thread uses it."""

    def __init__(self, selector: selectors.BaseSelector) -> None:
        self._selector = selector
        self._open: set[Refusal] = set()

    def add(self, sock: socket.socket, now_s: float) -> None:
        """Takes over the socket, and closes it at once if there are AT_ONCE already."""
        if len(self._open) >= AT_ONCE:
            sock.close()
            return
        sock.setblocking(False)
        refusal = Refusal(sock, now_s + PATIENCE_S)
        self._open.add(refusal)
        self._selector.register(sock, selectors.EVENT_READ, refusal)

    def move(self, refusal: Refusal) -> None:
        if refusal in self._open and not refusal.move():
            self._end(refusal)

    def tick(self, now_s: float) -> None:
        for refusal in [one for one in self._open if now_s > one.until_s]:
            self._end(refusal)

    def close(self) -> None:
        for refusal in list(self._open):
            self._end(refusal)

    def _end(self, refusal: Refusal) -> None:
        self._open.discard(refusal)
        with contextlib.suppress(KeyError, ValueError):
            self._selector.unregister(refusal.sock)
        refusal.sock.close()
