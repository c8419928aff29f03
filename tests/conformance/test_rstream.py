# SPDX-License-Identifier: BSD-2-Clause
"""Our device and librdmacm's rstream in a kernel: streams by WRITE with immediate, both ways."""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterator
from contextlib import contextmanager
from typing import NamedTuple, Protocol

import pytest
from counting import no_errors
from endpoints import Rxe
from ours import Ours
from rsocket import RSocket, Size

from livedma.lab.channel import Command
from livedma.rdma import cm
from scale import at_scale

pytestmark = pytest.mark.slow

PATIENCE_S = 90.0
SYNC_BYTES = 16
#: Each run has a port of its own: a kernel keeps one a while after its program has ended.
ports = itertools.count(7600)
DEFAULT, SMALL = Size(), Size(ring_bytes=8192, credits=16)

# A starved guest repeats a packet, or is gone before our last one comes.
counts_all = pytest.mark.alone
either_asks = pytest.mark.parametrize("we_ask", [True, False], ids=["we-ask", "kernel-asks"])


class Shape(NamedTuple):
    """So many transfers in one direction, then as many in the other, so often."""

    length: int
    transfers: int
    iterations: int

    @property
    def options(self) -> str:
        return f"-S {self.length} -C {self.transfers} -I {self.iterations}"


LATENCIES = [Shape(64, 1, 50), Shape(4096, 1, 50), Shape(65536, 1, 10)]
BANDWIDTHS = [Shape(64, 1000, 1), Shape(1000, 100, 2), Shape(65536, 20, 2)]
SHAPES = [*LATENCIES, *BANDWIDTHS]


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


def exchange(stream: RSocket, content: Content, we_ask: bool, shape: Shape) -> None:
    """Does what rstream does at the other end: the side that asked sends first, then the other."""

    def transfer(length: int, count: int) -> None:
        for is_ours in (we_ask, not we_ask):
            for _ in range(count):
                if is_ours:
                    stream.send(content.next(length))
                else:
                    data = stream.receive(length)
                    assert len(data) == length
                    content.check(data)

    transfer(SYNC_BYTES, 1)
    for _ in range(shape.iterations):
        transfer(shape.length, shape.transfers)


@contextmanager
def connected(
    kernel: Rxe,
    ours: Ours,
    version: int,
    we_ask: bool,
    shape: Shape,
    options: str,
    size: Size = DEFAULT,
) -> Iterator[tuple[RSocket, Command]]:
    """A stream to an rstream in the guest, and that program."""
    guest, device, port = kernel.guest, ours.device, next(ports)
    rstream = f"exec rstream -p {port} {shape.options} {options}"
    if we_ask:
        server = kernel.address(version)
        with guest.command(f"{rstream} -b {server}") as program:
            guest.wait_until(f"rdma resource show cm_id | grep -q 'LISTEN.*{port}'")
            with RSocket.connect(device, server, port, size) as stream:
                yield stream, program
    else:
        with (
            cm.listen(device, port) as listener,
            guest.command(f"{rstream} -s {device.address}") as program,
            RSocket.accept(device, listener.get(PATIENCE_S), size) as stream,
        ):
            yield stream, program


def assert_ended_well(program: Command) -> None:
    done = program.wait(PATIENCE_S)
    assert done.returncode == 0, done.stdout + done.stderr


#: Other content goes the same way: of each kind of stream, one has it in CI, too.
STREAMS = [
    *((Counting, shape) for shape in SHAPES),
    *((Mirrored, shape) for shape in SHAPES[at_scale(0, 1) :: at_scale(1, len(LATENCIES))]),
]


@pytest.fixture(scope="module", autouse=True)
def _neighbours(kernel: Rxe, our_devices: dict[str, Ours]) -> None:
    """They know each other: the kernel's CM does not wait long."""
    for ours in our_devices.values():
        kernel.guest.run(f"ping -c 1 -W 20 {ours.device.address}", check=True)


@counts_all
@either_asks
@pytest.mark.parametrize(
    ("content", "shape"), STREAMS, ids=lambda one: getattr(one, "options", None)
)
def test_streams(
    kernel: Rxe,
    ours: Ours,
    version: int,
    we_ask: bool,
    content: type[Counting | Mirrored],
    shape: Shape,
) -> None:
    """Latency, where each transfer is answered, and bandwidth, where many are."""
    with (
        no_errors(kernel, ours) as wire,
        connected(kernel, ours, version, we_ask, shape, content.option) as (stream, program),
    ):
        exchange(stream, content(), we_ask, shape)
        stream.wait_shut_down()
        wire.unanswered = stream.unanswered
        assert_ended_well(program)


@counts_all
@either_asks
@pytest.mark.parametrize("waiting", ["blocking", "async"])
@pytest.mark.parametrize("shape", [Shape(100, 1, 50), Shape(65536, 5, 2)], ids=lambda s: s.options)
def test_small_rings_and_few_credits(
    kernel: Rxe, ours: Ours, version: int, we_ask: bool, waiting: str, shape: Shape
) -> None:
    """Grants and credits go to and fro all the time, and both ends wait for them."""
    options = f"-T v -T {waiting} -B 8192"
    with (
        no_errors(kernel, ours) as wire,
        connected(kernel, ours, version, we_ask, shape, options, SMALL) as (stream, program),
    ):
        exchange(stream, Counting(), we_ask, shape)
        stream.wait_shut_down()
        wire.unanswered = stream.unanswered
        assert_ended_well(program)


def test_we_end_it_first(kernel: Rxe, ours: Ours, version: int) -> None:
    """rstream still reads all that came before the end."""
    shape = Shape(65536, 2, 1)
    with connected(kernel, ours, version, False, shape, "-T v") as (stream, program):
        exchange(stream, Counting(), False, shape)
        stream.shut_down()
        assert_ended_well(program)


@either_asks
def test_rstream_sees_a_wrong_byte(kernel: Rxe, ours: Ours, version: int, we_ask: bool) -> None:
    """So its verification is one."""
    shape, place = Shape(4096, 1, 1), 1234
    content = Counting()
    with connected(kernel, ours, version, we_ask, shape, content.option) as (stream, program):
        exchange(stream, content, we_ask, shape._replace(iterations=0))
        if not we_ask:
            content.check(stream.receive(shape.length))
        data = bytearray(content.next(shape.length))
        data[place] ^= 1
        stream.send(bytes(data))
        stream.wait_shut_down()
        done = program.wait(PATIENCE_S)
    assert done.returncode != 0
    assert f"data verification failed byte {SYNC_BYTES + place}\n" in done.stdout
