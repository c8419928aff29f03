# SPDX-License-Identifier: BSD-2-Clause
"""Both ends of an rsocket are ours, on loopback: its long run, and a peer that breaks the rules."""

from __future__ import annotations

import os
import random
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest
from rsocket import CONTROLS, Control, Op, ProtocolError, RSocket, Size

from livedma.rdma import Device, cm

PATIENCE_S = 60.0
PORT = 7471
SMALL = Size(ring_bytes=4096, credits=8)
Ends = tuple[RSocket, RSocket]


@pytest.fixture
def devices() -> Iterator[tuple[Device, Device]]:
    net = f"127.{1 + os.getpid() % 250}.{os.getpid() // 250 % 250}"
    with Device(f"{net}.251") as one, Device(f"{net}.252") as other:
        yield one, other


@pytest.fixture
def ends(devices: tuple[Device, Device]) -> Iterator[Ends]:
    client, server = devices
    with cm.listen(server, PORT) as listener, ThreadPoolExecutor(1) as thread:
        asking = thread.submit(RSocket.connect, client, server.address, PORT, SMALL)
        with (
            RSocket.accept(server, listener.get(PATIENCE_S), SMALL) as accepted,
            asking.result(PATIENCE_S) as connected,
        ):
            yield connected, accepted


@pytest.mark.slow
def test_sequence_numbers_begin_again(ends: Ends) -> None:
    """They have 16 bits, and each message one."""
    pieces = [random.Random(1).randbytes(1 + number % 7) for number in range(70_000)]

    def send() -> None:
        for piece in pieces:
            ends[0].send(piece)

    with ThreadPoolExecutor(1) as thread:
        sending = thread.submit(send)
        data = b"".join(pieces)
        assert ends[1].receive(len(data)) == data
        sending.result(PATIENCE_S)


def test_both_send_at_once(ends: Ends) -> None:
    data = [random.Random(seed).randbytes(100_000) for seed in (1, 2)]

    def talk(number: int) -> bytes:
        got = b""
        for start in range(0, len(data[number]), 1000):
            ends[number].send(data[number][start : start + 1000])
            got += ends[number].receive(1000)
        return got

    with ThreadPoolExecutor(2) as threads:
        assert list(threads.map(talk, (0, 1))) == data[::-1]


def test_what_was_sent_before_the_end_is_read(ends: Ends) -> None:
    with ThreadPoolExecutor(1) as thread:
        ends[0].send(b"last words")
        ending = thread.submit(ends[0].shut_down)
        assert ends[1].receive(100) == b"last words"
        ends[1].wait_shut_down()
        ending.result(PATIENCE_S)
    with pytest.raises(ConnectionResetError):
        ends[1].send(b"too late")


def settle(end: RSocket) -> None:
    """All that it has told so far has come."""
    end._wait_until(lambda: not end._open_controls)


@pytest.mark.parametrize("credits_after", [0, 2])
def test_who_gives_credits_after_its_end_may_miss_the_answers(
    ends: Ends, credits_after: int
) -> None:
    for end in ends:
        settle(end)
    ends[0]._post_control(Op.CTRL, Control.DISCONNECT)
    for _ in range(credits_after):
        ends[0]._post_control(Op.SGL, SMALL.credits)
    settle(ends[0])
    with ThreadPoolExecutor(1) as thread:
        ending = thread.submit(ends[0]._connection.disconnect, timeout=PATIENCE_S)
        ends[1].wait_shut_down()
        ending.result(PATIENCE_S)
    assert ends[1].unanswered == credits_after


@pytest.mark.parametrize(
    ("hello", "says"), [(b"\2" * 40, "no rsocket"), (b"\1" + bytes(39), "no place")]
)
def test_who_is_no_rsocket_is_refused(
    devices: tuple[Device, Device], hello: bytes, says: str
) -> None:
    client, server = devices
    with cm.listen(server, PORT) as listener, ThreadPoolExecutor(1) as thread:
        asking = thread.submit(cm.connect, client, server.address, PORT, private_data=hello)
        request = listener.get(PATIENCE_S)
        with pytest.raises(ProtocolError, match=says):
            RSocket.accept(server, request, SMALL)
        request.reject()
        with pytest.raises(cm.RejectedError):
            asking.result(PATIENCE_S)


def too_long(bad: RSocket) -> None:
    bad._targets[0] = bad._targets[0]._replace(length=SMALL.ring_bytes)
    bad._send_piece(bytes(SMALL.half_bytes + 1))


def without_credit(bad: RSocket) -> None:
    for _ in range(SMALL.credits + 1):
        bad._send_piece(b"x")
    bad._wait_until(lambda: not bad._open_data)  # before any is read, which gives credits


def unlike_its_length(bad: RSocket) -> None:
    bad._post_control(Op.DATA, 7)


def unknown(bad: RSocket) -> None:
    bad._post_control(Op.CTRL, len(Control))


def granted_again(bad: RSocket) -> None:
    for _ in range(CONTROLS):
        bad._post_control(Op.SGL, SMALL.credits, bad._grant())


@pytest.mark.parametrize(
    ("misdeed", "says"),
    [
        (too_long, "2049 bytes of data where 2048 were granted"),
        (without_credit, "data without a credit"),
        (unlike_its_length, "message 0 with 7 and 0 bytes"),
        (unknown, "message 7 with 3 and 0 bytes"),
        (granted_again, "not used up"),
    ],
)
def test_a_peer_that_breaks_the_rules(
    ends: Ends, misdeed: Callable[[RSocket], None], says: str
) -> None:
    misdeed(ends[0])
    with pytest.raises(ProtocolError, match=says):
        ends[1].receive(1 << 20)


def test_a_send_is_no_message(ends: Ends) -> None:
    ends[0]._connection.qp.post_send(Op.CTRL << 29, "SEND")
    with pytest.raises(ProtocolError, match="a message by RECV"):
        ends[1].receive(1)
