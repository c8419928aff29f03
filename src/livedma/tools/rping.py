# SPDX-License-Identifier: BSD-2-Clause
"""Plays both sides of librdmacm's rping: the client's data goes to the server by READ and back by
WRITE.

In a ping, the client SENDs where its data is; the server READs it and says so; the client SENDs
where it wants it back; the server WRITEs it there and says so.
"""

from __future__ import annotations

import struct
from collections.abc import Callable

from livedma.errors import LivedmaError
from livedma.rdma import Completion, Device, cm
from livedma.tools.rping_plan import LARGEST, Options

__all__ = ["PingError", "ping", "serve"]

_INFO = struct.Struct("!QII")  # where data is: va, rkey, length
_GO_AHEAD = bytes(_INFO.size)
_FIRST, _LAST = ord("A"), ord("z")
_SILENCE_S = 10.0  # after so long, a side checks that the other is there
_CONNECT_S = 30.0


class PingError(LivedmaError):
    """Reports that a ping cannot be completed."""


class _Disconnected(Exception):
    """Reports that the other side ended the connection."""


class _End:
    """Holds one side of a connection: its memory has data at the start, the next message behind."""

    def __init__(self, device: Device, size: int, debug: Callable[[str], None]) -> None:
        self.debug = debug
        self.size = size
        self.memory = bytearray(2 * size + _INFO.size)
        pd, self._cq = device.protection_domain(), device.completion_queue(64)
        self.region = pd.register(self.memory, "remote_read", "remote_write")
        self._connection: cm.Connection | None = None
        # As in rping itself: one READ at a time, two Receives.
        self.setup: cm.Setup = {
            "pd": pd,
            "cq": self._cq,
            "max_send": 16,
            "max_recv": 2,
            "responder_resources": 1,
            "initiator_depth": 1,
            "prepare": lambda qp: qp.post_recv(0, [self._message]),
        }
        self.debug("allocated & registered buffers...")

    @property
    def connection(self) -> cm.Connection:
        assert self._connection is not None
        return self._connection

    @connection.setter
    def connection(self, value: cm.Connection) -> None:
        self._connection = value

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()
        self._cq.close()
        self.region.close()

    def __enter__(self) -> _End:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def _message(self) -> tuple[int, int, int]:
        return self.region[2 * self.size :]

    def send(self, message: bytes) -> None:
        self.connection.qp.post_send(0, "SEND", inline=message)

    def receive(self) -> tuple[int, int, int]:
        """Returns the next message: va, rkey, length."""
        completion = self.complete("RECV")
        if completion.length != _INFO.size:
            raise PingError(f"received bogus data, size {completion.length}: is this an rping?")
        va, rkey, length = _INFO.unpack_from(self.memory, 2 * self.size)
        self.connection.qp.post_recv(0, [self._message])
        return va, rkey, length

    def complete(self, operation: str) -> Completion:
        """Waits for a completion of this operation; others are of this side's SENDs."""
        while True:
            found = self._cq.wait(_SILENCE_S, count=1)
            if not found:
                self.connection.qp.post_send(0, "WRITE")  # of no bytes; fails if the peer is gone
                continue
            completion = found[0]
            if completion.status == "WR_FLUSH_ERR":
                raise _Disconnected
            if completion.status != "SUCCESS":
                raise PingError(f"cq completion failed status {completion.status}")
            if completion.operation == operation:
                self.debug(f"{operation.lower()} completion")
                return completion


def serve(device: Device, request: cm.Request, options: Options) -> None:
    """Accepts the request and answers pings until the client disconnects."""
    with _End(device, LARGEST, options.debug) as end:
        options.debug("accepting client connection request")
        try:
            end.connection = request.accept(timeout=_CONNECT_S, **end.setup)
        except TimeoutError:
            raise PingError(f"{request.peer} asked for a connection and does not confirm") from None
        options.debug("ESTABLISHED")
        try:
            while True:
                _answer(end, options)
        except _Disconnected:
            options.debug("server DISCONNECT EVENT...")


def _answer(end: _End, options: Options) -> None:
    va, rkey, length = end.receive()
    options.debug(f"Received rkey {rkey:x} addr {va:x} len {length} from peer")
    options.debug("server received sink adv")
    if not 0 < length <= LARGEST:
        raise PingError(f"the client offers {length} bytes: this takes 1 to {LARGEST}")
    end.connection.qp.post_send(1, "READ", [end.region[:length]], remote_va=va, rkey=rkey)
    options.debug("server posted rdma read req")
    end.complete("READ")
    options.debug("server received read complete")
    text = bytes(end.memory[:length]).partition(b"\0")[0]
    options.show(f"server ping data: {_printable(text)}")
    end.send(_GO_AHEAD)
    options.debug("server posted go ahead")

    va, rkey, room = end.receive()
    options.debug(f"Received rkey {rkey:x} addr {va:x} len {room} from peer")
    options.debug("server received sink adv")
    back = min(len(text) + 1, length)
    if back > room:
        raise PingError(f"the client takes {room} bytes only, but offered {back}")
    options.debug(f"rdma write from lkey {end.region.lkey:x} laddr {end.region.va:x} len {back}")
    end.connection.qp.post_send(2, "WRITE", [end.region[:back]], remote_va=va, rkey=rkey)
    end.complete("WRITE")
    options.debug("server rdma write complete")
    end.send(_GO_AHEAD)
    options.debug("server posted go ahead")


def ping(device: Device, peer: str, port: int, options: Options) -> int:
    """Pings as often as asked for; returns how often that was."""
    with _End(device, options.size, options.debug) as end:
        try:
            end.connection = cm.connect(
                device, peer, port, timeout=_CONNECT_S, path_mtu=options.mtu, **end.setup
            )
        except TimeoutError:
            raise PingError(f"{peer} does not answer: start `livedma rping -s` there") from None
        except cm.RejectedError as error:
            raise PingError(
                f"{error}: start `livedma rping -s -a {peer} -p {port}` there"
            ) from None
        options.debug("rdma_connect successful")
        number = 0
        try:
            while not options.count or number < options.count:
                _ask(end, number, options)
                number += 1
        except _Disconnected:
            raise PingError(f"{peer} ended the connection after {number} pings") from None
        end.connection.disconnect(timeout=_CONNECT_S)
        options.debug("client DISCONNECT EVENT...")
        return number


def _ask(end: _End, number: int, options: Options) -> None:
    size = options.size
    data = _data(number, size)
    end.memory[:size] = data
    _offer(end, 0)
    end.receive()
    _offer(end, size)
    end.receive()
    back = bytes(end.memory[size : 2 * size])
    if options.validates and back != data:
        raise PingError(f"data mismatch! (ping {number})")
    options.show(f"ping data: {_printable(back.partition(bytes(1))[0])}")


def _offer(end: _End, offset: int) -> None:
    va, rkey = end.region.va + offset, end.region.rkey
    end.debug(f"RDMA addr {va:x} rkey {rkey:x} len {end.size}")
    end.send(_INFO.pack(va, rkey, end.size))


def _data(number: int, size: int) -> bytes:
    """Returns a ping's number, the letters in turn, one further each time, and a NUL."""
    letters = bytes(range(_FIRST, _LAST + 1))
    start = number % len(letters)
    line = f"rdma-ping-{number}: ".encode()
    repeated = (letters[start:] + letters[:start]) * (size // len(letters) + 1)
    return (line + repeated)[: size - 1] + b"\0"


def _printable(data: bytes) -> str:
    """Replaces what terminals should not get: a peer's data may be anything."""
    return "".join(chr(byte) if 32 <= byte < 127 else f"\\x{byte:02x}" for byte in data)
