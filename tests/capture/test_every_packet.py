# SPDX-License-Identifier: BSD-2-Clause
"""Every packet arrives, or is counted as lost; and the traffic does not notice."""

from __future__ import annotations

import time
from collections.abc import Callable
from itertools import pairwise

import pytest
from taps import Tap

from livedma.lab.hosts import Host
from livedma.wire.encode import encode
from traffic import receiver_socket, udp_flow, udp_socket

pytestmark = pytest.mark.slow

PAYLOAD = 64


def expected_packet(src: Host, dst: Host, i: int) -> bytes:
    payload = i.to_bytes(4, "big") + bytes([i & 0xFF]) * (PAYLOAD - 4)
    return encode(
        "RC_SEND_ONLY",
        src=src.ipv4,
        dst=dst.ipv4,
        dest_qp=0x11,
        psn=i,
        migreq=False,
        payload=payload,
    )


def exchange(src: Host, dst: Host, count: int, rate: float) -> dict[str, int]:
    """Sends `count` packets from src to dst; returns what dst's socket made of them."""
    flow = udp_flow(src, dst, payload_bytes=PAYLOAD)
    with udp_socket(src) as sender, receiver_socket(dst) as receiver:
        arriving = dst.start(lambda: flow.receive(receiver, count))
        sent = src.start(lambda: flow.send(sender, count, rate=rate)).result(60)
        assert sent == count
        return arriving.result(60)


@pytest.mark.alone
@pytest.mark.parametrize("hook", ["xdp", "tc"])
def test_every_one_of_100000_packets_rx_and_tx(
    hosts: tuple[Host, Host], tap: Callable[..., Tap], hook: str
) -> None:
    count = 100_000
    src, dst = hosts
    taps = {"tx": tap(src, "tx"), "rx": tap(dst, "rx", hook)}
    traffic = src.start(lambda: exchange(src, dst, count, 40_000))
    readers = {side: src.start(lambda t=t: t.read(count)) for side, t in taps.items()}
    result = traffic.result(60)
    assert (result["packets"], result["wrong"], result["out_of_order"]) == (count, 0, 0)
    for side, reader in readers.items():
        seen = reader.result(60)
        counters = taps[side].counters()
        assert counters["ring_dropped"] == counters["unreadable"] == 0
        assert [packet.psn for packet in seen] == list(range(count))
        assert {packet.direction for packet in seen} == {side}
        assert all(packet.icrc_ok for packet in seen)
        assert all(later.time_ns >= one.time_ns for one, later in pairwise(seen))
        ethernet = dst.mac + src.mac + b"\x08\x00"
        for i in range(0, count, 7):
            assert seen[i].frame == ethernet + expected_packet(src, dst, i)


def read_to_the_end(tap: Tap, count: int) -> int:
    """Reads until each packet was seen or is counted as lost; how many were seen."""
    end_s = time.monotonic() + 60
    while True:
        seen = len(tap.read(count, timeout_s=0.1))
        if seen + tap.counters()["ring_dropped"] >= count or time.monotonic() > end_s:
            return seen


@pytest.mark.parametrize("hook", ["xdp", "tc"])
def test_what_a_full_ring_lost_is_counted(
    hosts: tuple[Host, Host], tap: Callable[..., Tap], hook: str
) -> None:
    count = 50_000
    src, dst = hosts
    rx = tap(dst, "rx", hook, ring_bytes=16384)
    result = exchange(src, dst, count, 0)
    received = read_to_the_end(rx, count)
    counters = rx.counters()
    assert counters["roce"] == count
    assert counters["ring_dropped"] > 0
    assert received + counters["ring_dropped"] == count
    assert result["wrong"] == 0


def test_lossless_at_an_unbounded_rate_or_said(
    hosts: tuple[Host, Host], tap: Callable[..., Tap]
) -> None:
    count = 100_000
    src, dst = hosts
    rx = tap(dst, "rx", snaplen=128)
    reader = src.start(lambda: rx.read(count, timeout_s=1))
    exchange(src, dst, count, 0)
    reader.result(60)  # which may have given up before the sender had its turn
    received = read_to_the_end(rx, count)
    assert received + rx.counters()["ring_dropped"] == count


@pytest.mark.alone
@pytest.mark.parametrize("hook", ["xdp", "tc"])
def test_traffic_is_the_same_with_and_without_capture(
    hosts: tuple[Host, Host], tap: Callable[..., Tap], hook: str
) -> None:
    src, dst = hosts
    without = exchange(src, dst, 20_000, 40_000)
    tap(src, "tx")
    tap(dst, "rx", hook)
    assert exchange(src, dst, 20_000, 40_000) == without
    assert without["packets"] == 20_000
