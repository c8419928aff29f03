# SPDX-License-Identifier: BSD-2-Clause
"""Neither side of a tap can hurt the other: devices and readers that lie, or vanish."""

from __future__ import annotations

import ctypes
import errno
import fcntl
import mmap
import os
import random
import socket
import struct
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from threading import Thread

import pytest
from pairs import End, connected
from tapping import ADDRESSES, caller, exchange, finish, impostor, name_of, read, tapped, until

from livedma._native.tap import TAPS_MAX, TapSession
from livedma.rdma import Device

PAGE = mmap.PAGESIZE
RING = 1 << 16
# struct ldma_tap_shared and struct ldma_record, as port/tap_ring.h and bpf/record.h have them.
PRODUCER = 64
RECORD = "<QIIIHBB"


@dataclass
class Caught:
    """What a reader sends to a device."""

    request: bytes
    memory_fd: int
    connection: socket.socket

    @property
    def memory(self) -> mmap.mmap:
        return mmap.mmap(self.memory_fd, PAGE + RING)


@contextmanager
def caught(**options: int) -> Iterator[tuple[TapSession, Caught]]:
    """A reader that took us for the device it wants."""
    session = TapSession(ADDRESSES[0], ring_bytes=RING, **options)
    with impostor(ADDRESSES[0]) as listener:
        listener.settimeout(60)
        connection = answered(session, listener, bytes(4))
        request, descriptors, _, _ = socket.recv_fds(connection, 4096, 1)
        with connection:
            yield session, Caught(request, descriptors[0], connection)
    os.close(descriptors[0])
    session.close()


def answered(session: TapSession, listener: socket.socket, answer: bytes) -> socket.socket:
    """Has the reader connect to us, and answers whatever it asks."""
    accepted: list[socket.socket] = []

    def reply() -> None:
        connection, _ = listener.accept()
        accepted.append(connection)
        connection.send(answer)

    thread = Thread(target=reply)
    thread.start()
    try:
        assert session.connect(5000)
    finally:
        thread.join()
        if len(answer) != 4 or any(answer):
            accepted[0].close()
    return accepted[0]


def sealed(size: int, flags: int = 0, seals: int = fcntl.F_SEAL_SHRINK) -> int:
    fd = os.memfd_create("reader", os.MFD_ALLOW_SEALING | flags)
    os.ftruncate(fd, size)
    fcntl.fcntl(fd, fcntl.F_ADD_SEALS, seals)
    return fd


def request_of_a_reader() -> bytes:
    with caught() as (_, seen):
        return seen.request


def ask(request: bytes, fds: list[int]) -> int:
    """What the device replies: 0 or a negative errno."""
    with caller(ADDRESSES[0]) as sock:
        with suppress(BrokenPipeError):  # it may have answered and hung up already
            socket.send_fds(sock, [request], fds)
        try:
            answer = sock.recv(16)
        except ConnectionResetError:  # the same; its answer is behind the error
            answer = sock.recv(16)
        (error,) = struct.unpack("<i", answer)
        return int(error)


def works(a: End, b: End) -> None:
    exchange(a, b)
    assert a.memory[300_008:360_000] == b.memory[8:60_000]


def with_ring(request: bytes, ring_bytes: int) -> bytes:
    return request[:8] + ring_bytes.to_bytes(8, "little") + request[16:]


def with_config(request: bytes, byte: int) -> bytes:
    """All of the filters, counts and snaplen are that byte."""
    return request[:16] + bytes([byte]) * (len(request) - 16)


GOOD = PAGE + RING


@pytest.mark.parametrize(
    ("change", "make", "error"),
    [
        (lambda r: b"\xff" + r[1:], lambda: sealed(GOOD), errno.EPROTO),  # version
        (lambda r: r[:-1], lambda: sealed(GOOD), errno.EPROTO),
        (lambda r: r + b"x", lambda: sealed(GOOD), errno.EPROTO),
        (lambda r: b"", lambda: sealed(GOOD), errno.EPROTO),
        (lambda r: r, lambda: sealed(GOOD, seals=0), errno.EINVAL),  # could shrink
        (lambda r: r, lambda: sealed(GOOD - 1), errno.EINVAL),
        (lambda r: r, lambda: sealed(PAGE), errno.EINVAL),
        (lambda r: r, lambda: os.open("/dev/zero", os.O_RDWR), errno.EINVAL),
        (lambda r: r, lambda: os.open("/proc/self/exe", os.O_RDONLY), errno.EINVAL),
        (lambda r: with_ring(r, 12288), lambda: sealed(PAGE + 12288), errno.EINVAL),
        (lambda r: with_ring(r, 0), lambda: sealed(PAGE), errno.EINVAL),
        (lambda r: with_ring(r, 2**63), lambda: sealed(PAGE), errno.EINVAL),
        (lambda r: with_ring(r, 2**31), lambda: sealed(PAGE + 2**31), errno.EINVAL),
        (lambda r: with_config(r, 255), lambda: sealed(GOOD), errno.EINVAL),
        (lambda r: with_config(r, 0), lambda: sealed(GOOD), errno.EINVAL),
    ],
)
def test_requests_that_make_no_sense_are_refused(
    change: Callable[[bytes], bytes], make: Callable[[], int], error: int
) -> None:
    request = request_of_a_reader()
    fd, good = make(), sealed(GOOD)
    try:
        with connected(addresses=ADDRESSES) as (a, b):
            assert ask(change(request), [fd]) == -error
            works(a, b)
            assert ask(request, [good]) == 0
    finally:
        os.close(fd)
        os.close(good)


def test_memory_that_may_fail_to_appear_is_refused() -> None:
    """Huge pages come from a pool, and a touch that finds it empty kills."""
    ring = 1 << 21
    request = with_ring(request_of_a_reader(), ring)
    fd = sealed(2 * ring, flags=os.MFD_HUGETLB)
    with connected(addresses=ADDRESSES):
        assert ask(request, [fd]) == -errno.EINVAL
    os.close(fd)


def test_a_request_without_memory_or_with_too_much() -> None:
    request = request_of_a_reader()
    with connected(addresses=ADDRESSES) as (a, b):
        before = len(os.listdir("/proc/self/fd"))
        assert ask(request, []) == -errno.EPROTO
        fds = [sealed(GOOD) for _ in range(20)]
        ask(request, fds)
        for fd in fds:
            os.close(fd)
        until(lambda: len(os.listdir("/proc/self/fd")) == before)
        works(a, b)


def test_readers_that_say_nothing_are_no_burden() -> None:
    with connected(addresses=ADDRESSES) as (a, b):
        with ExitStack() as silent:
            for _ in range(TAPS_MAX):
                silent.enter_context(caller(ADDRESSES[0]))
            works(a, b)
            assert ask(b"", []) == -errno.EBUSY
        until(lambda: ask(b"", []) == -errno.EPROTO)


def test_a_reader_that_scribbles_over_the_ring_spoils_only_what_it_reads() -> None:
    rng = random.Random(1)
    request = request_of_a_reader()
    fd = sealed(GOOD)
    with (
        connected(addresses=ADDRESSES) as (a, b),
        caller(ADDRESSES[0]) as sock,
        mmap.mmap(fd, PAGE + RING) as memory,
        tapped(ADDRESSES[0]) as honest,
    ):
        socket.send_fds(sock, [request], [fd])
        assert sock.recv(16) == bytes(4)
        for _ in range(20):
            memory[:] = rng.randbytes(len(memory))
            works(a, b)
        for position in (0, 1, 2**63, 2**64 - 1, RING, 2 * RING):
            memory[0:8] = position.to_bytes(8, "little")
            memory[8:12] = b"\1\0\0\0"  # it says that it sleeps
            works(a, b)
        # Punched holes are memory again; nothing else can be taken away.
        punch_holes(fd)
        works(a, b)
        seen = finish(honest)
        assert all(packet.icrc_ok for packet in seen)
        counters = a.device.counters
        assert len(seen) == counters["sent_pkts"] + counters["rcvd_pkts"]
    os.close(fd)


def test_a_sleeping_reader_is_woken_once_an_eighth_has_gathered() -> None:
    request = request_of_a_reader()
    fd = sealed(GOOD)
    with (
        connected(addresses=ADDRESSES, mtu=1024) as (a, b),
        caller(ADDRESSES[0]) as sock,
        mmap.mmap(fd, PAGE + RING) as memory,
    ):
        socket.send_fds(sock, [request], [fd])
        assert sock.recv(16) == bytes(4)
        sock.setblocking(False)

        def write(count: int) -> None:
            remote = {"remote_va": b.region.va, "rkey": b.region.rkey}
            for i in range(count):
                a.qp.post_send(i, "WRITE", [a.region[0:1024]], **remote)
                a.complete()

        memory[8:12] = b"\1\0\0\0"
        write(3)
        with pytest.raises(BlockingIOError):
            sock.recv(16)
        write(10)
        assert sock.recv(16) == bytes(4)
        assert memory[8:12] == bytes(4)
        with pytest.raises(BlockingIOError):  # a reader that is awake is not woken
            sock.recv(16)
    os.close(fd)


def punch_holes(fd: int) -> None:
    keep_size, punch_hole = 1, 2
    libc = ctypes.CDLL(None, use_errno=True)
    length = ctypes.c_long(PAGE + RING)
    assert libc.fallocate(fd, keep_size | punch_hole, ctypes.c_long(0), length) == 0


def record(captured: int, length: int, direction: int = 1) -> bytes:
    return struct.pack(RECORD, 1, captured, length, 0, 0, direction, 0)


@pytest.mark.parametrize(
    ("bytes_in_ring", "producer"),
    [
        (record(0xFFFFFFFF, 0xFFFFFFFF), 1024),
        (record(9729, 9729), RING),  # longer than what was asked for
        (record(100, 99), 1024),  # more than there was
        (record(1000, 1000), 1016),  # beyond the end
        (record(0, 0), 8),  # half a header
        (record(0, 0), RING + 8),
        (record(0, 0), 2**64 - 8),
    ],
)
def test_what_is_no_record_ends_the_capture(bytes_in_ring: bytes, producer: int) -> None:
    with caught() as (session, device), device.memory as memory:
        memory[PAGE : PAGE + len(bytes_in_ring)] = bytes_in_ring
        memory[PRODUCER : PRODUCER + 8] = producer.to_bytes(8, "little")
        with pytest.raises(OSError) as failure:
            read(session)
        assert failure.value.errno == errno.EBADMSG


def test_a_device_that_scribbles_harms_nobody() -> None:
    rng = random.Random(2)
    for _ in range(50):
        with caught() as (session, device), device.memory as memory:
            memory[PAGE:] = rng.randbytes(RING)
            # records of a good shape, with anything inside
            at = 0
            while at < RING - 2000:
                captured = rng.randrange(1500)
                memory[PAGE + at : PAGE + at + 24] = record(captured, captured, rng.randrange(256))
                at += (24 + captured + 7) & ~7
            memory[PRODUCER : PRODUCER + 8] = at.to_bytes(8, "little")
            read(session)
            memory[PRODUCER : PRODUCER + 8] = rng.randbytes(8)
            with pytest.raises(OSError):
                read(session)


@pytest.mark.parametrize(
    ("answer", "error"),
    [
        (b"\0", errno.EPROTO),
        (struct.pack("<i", 7), errno.EPROTO),
        (struct.pack("<i", -errno.EPERM), errno.EPERM),
    ],
)
def test_a_device_that_refuses_or_answers_nonsense(answer: bytes, error: int) -> None:
    session = TapSession(ADDRESSES[0])
    with impostor(ADDRESSES[0]) as listener:
        with pytest.raises(OSError) as failure:
            answered(session, listener, answer)
        assert failure.value.errno == error
    session.close()


def test_a_device_whose_name_is_taken_works_without_a_tap() -> None:
    with impostor(ADDRESSES[0]), connected(addresses=ADDRESSES) as (a, b):
        works(a, b)


def test_a_stranger_where_readers_wait_does_not_stop_a_device() -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as stranger:
        stranger.bind(name_of(ADDRESSES[0], waiting=0))
        stranger.listen(4)  # and never answers
        with Device(ADDRESSES[0]), tapped(ADDRESSES[0]) as tap:
            assert not tap.gone
