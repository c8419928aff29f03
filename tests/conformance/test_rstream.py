"""Our device and librdmacm's rstream in a kernel: streams by WRITE with immediate, both ways."""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Protocol

import pytest
from counting import no_errors
from endpoints import Rxe
from ours import Ours
from rsocket import RSocket, Size

from livedma.lab.channel import Command

pytestmark = pytest.mark.slow

PATIENCE_S = 90.0
SYNC_BYTES = 16
#: Each run has a port of its own: a kernel keeps one a while after its program has ended.
ports = itertools.count(7600)
SMALL = Size(ring_bytes=8192, credits=16)

either_asks = pytest.mark.parametrize("we_ask", [True, False], ids=["we-ask", "kernel-asks"])


class Content(Protocol):
    """What goes to rstream, and what has to come from it."""

    option: str

    def next(self, length: int) -> bytes: ...
    def check(self, data: bytes) -> None: ...


class Counting:
    """rstream -T v sends a count of bytes, and wants the same."""

    option = "-T v"

    def __init__(self) -> None:
        self._sent = self._got = 0

    def next(self, length: int) -> bytes:
        self._sent += length
        return _count(self._sent - length, length)

    def check(self, data: bytes) -> None:
        assert data == _count(self._got, len(data))
        self._got += len(data)


def _count(start: int, length: int) -> bytes:
    return bytes(i & 0xFF for i in range(start, start + length))


class Mirrored:
    """Otherwise rstream sends from the buffer into which it received: we get back what we sent.

    As long as it has received nothing, nobody knows what it sends.
    """

    option = ""

    def __init__(self) -> None:
        self._random = random.Random(77)
        self._buffer = b""

    def next(self, length: int) -> bytes:
        data = self._random.randbytes(length)
        self._buffer = data + self._buffer[length:]
        return data

    def check(self, data: bytes) -> None:
        known = min(len(data), len(self._buffer))
        assert data[:known] == self._buffer[:known]


def exchange(
    stream: RSocket, content: Content, we_ask: bool, size: int, count: int, iterations: int
) -> None:
    """What rstream does at the other end: who asked sends first, then the other."""

    def transfers(length: int, number: int) -> None:
        for is_ours in (we_ask, not we_ask):
            for _ in range(number):
                if is_ours:
                    stream.send(content.next(length))
                else:
                    data = stream.receive(length)
                    assert len(data) == length
                    content.check(data)

    transfers(SYNC_BYTES, 1)
    for _ in range(iterations):
        transfers(size, count)


@contextmanager
def connected(
    kernel: Rxe, ours: Ours, version: int, we_ask: bool, size: Size, options: str
) -> Iterator[tuple[RSocket, Command]]:
    """A stream to an rstream in the guest, and that program."""
    guest, device, port = kernel.guest, ours.device, next(ports)
    guest.run(f"ping -c 1 {device.address}", check=True)  # the kernel's CM does not wait long
    if we_ask:
        server = kernel.address(version)
        with guest.command(f"exec rstream -b {server} -p {port} {options}") as program:
            guest.wait_until(f"rdma resource show cm_id | grep -q 'LISTEN.*{port}'")
            with RSocket.connect(device, server, port, size) as stream:
                yield stream, program
    else:
        from livedma.rdma import cm

        with (
            cm.listen(device, port) as listener,
            guest.command(f"exec rstream -s {device.address} -p {port} {options}") as program,
            RSocket.accept(device, listener.get(PATIENCE_S), size) as stream,
        ):
            yield stream, program


@either_asks
@pytest.mark.parametrize("content", [Counting, Mirrored])
@pytest.mark.parametrize(
    ("size", "count", "iterations"),
    [(64, 1, 50), (64, 1000, 1), (1000, 100, 2), (4096, 1, 50), (65536, 1, 10), (65536, 20, 2)],
)
def test_streams(
    kernel: Rxe,
    ours: Ours,
    version: int,
    we_ask: bool,
    content: type[Counting] | type[Mirrored],
    size: int,
    count: int,
    iterations: int,
) -> None:
    options = f"-S {size} -C {count} -I {iterations} {content.option}"
    with (
        no_errors(kernel, ours),
        connected(kernel, ours, version, we_ask, Size(), options) as (stream, program),
    ):
        exchange(stream, content(), we_ask, size, count, iterations)
        stream.wait_shut_down()
        done = program.wait(PATIENCE_S)
        assert done.returncode == 0, done.stdout + done.stderr
