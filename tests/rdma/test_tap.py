# SPDX-License-Identifier: BSD-2-Clause
"""The tap: every packet of a device, as it was on the wire, whatever its reader does."""

from __future__ import annotations

import itertools
import os
import socket
import threading
from collections.abc import Callable
from typing import Any

import pytest
from datagrams import Receiver, datagram, send_train, sender
from pairs import connected
from tapping import ADDRESSES, Seen, arrived, exchange, finish, read, settle, tapped, until

from livedma._native.tap import TAPS_MAX, TapSession
from livedma.capture.filters import Filters
from livedma.rdma import Device
from livedma.wire.encode import encode
from needs import needs


def ones_sum(data: bytes) -> int:
    total = sum(int.from_bytes(data[i : i + 2], "big") for i in range(0, len(data), 2))
    while total >> 16:
        total = (total & 0xFFFF) + (total >> 16)
    return total


def of(seen: list[Seen], direction: str) -> list[bytes]:
    return [packet.frame for packet in seen if packet.direction == direction]


def on_the_wire(frames: list[bytes]) -> list[bytes]:
    """Without the UDP checksum, which the kernel computes or leaves to the interface."""
    return [frame[:26] + bytes(2) + frame[28:] for frame in frames]


@pytest.fixture(params=["udp", "packet"])
def port(request: pytest.FixtureRequest) -> str:
    needs(request.param == "udp" or os.geteuid() == 0, "packet sockets need root")
    return str(request.param)


@pytest.mark.parametrize("mtu", [256, 4096])
def test_both_ends_of_a_wire_see_the_same_packets(mtu: int, port: str) -> None:
    with (
        connected(addresses=ADDRESSES, mtu=mtu, device={"port": port}) as (a, b),
        tapped(ADDRESSES[0]) as tap_a,
        tapped(ADDRESSES[1]) as tap_b,
    ):
        exchange(a, b)
        seen_a, seen_b = finish(tap_a), finish(tap_b)
        # IDs and checksums included, although a UDP socket shows its reader neither
        assert on_the_wire(of(seen_a, "tx")) == on_the_wire(of(seen_b, "rx"))
        assert on_the_wire(of(seen_a, "rx")) == on_the_wire(of(seen_b, "tx"))
        for end, seen, tap in ((a, seen_a, tap_a), (b, seen_b, tap_b)):
            counters = end.device.counters
            assert len(of(seen, "tx")) == counters["sent_pkts"]
            assert len(of(seen, "rx")) == counters["rcvd_pkts"]
            assert all(packet.icrc_ok for packet in seen)
            assert all(ones_sum(packet.frame[:20]) == 0xFFFF for packet in seen)
            assert [p.time_ns for p in seen] == sorted(p.time_ns for p in seen)
            assert tap.counters()["recorded"] == len(seen)
            assert tap.counters()["bytes"] == sum(packet.length for packet in seen)


def test_ipv6_has_its_udp_checksum_in_both_directions() -> None:
    with connected(version=6) as (a, b), tapped("::1") as tap:
        exchange(a, b)
        seen = finish(tap)
        assert of(seen, "tx") == of(seen, "rx")  # there is one device at ::1
        for frame in of(seen, "rx"):
            pseudo = frame[8:40] + len(frame[40:]).to_bytes(4, "big") + bytes([0, 0, 0, 17])
            assert ones_sum(pseudo + frame[40:]) == 0xFFFF
        assert all(packet.icrc_ok for packet in seen)


def test_a_reader_that_waits_misses_nothing() -> None:
    with tapped(ADDRESSES[0], wait=False) as tap:
        found: list[bool] = []
        thread = threading.Thread(target=lambda: found.append(tap.connect(10_000)))
        thread.start()
        with connected(addresses=ADDRESSES) as (a, b):
            exchange(a, b)
            thread.join()
            assert found == [True]
            counters = a.device.counters
            assert len(finish(tap)) == counters["sent_pkts"] + counters["rcvd_pkts"]


def test_attached_in_the_middle_it_has_the_rest() -> None:
    with connected(addresses=ADDRESSES) as (a, b):
        exchange(a, b)
        before = a.device.counters["sent_pkts"]
        with tapped(ADDRESSES[0], rx=False) as tap:
            exchange(a, b)
            seen = finish(tap)
        assert len(seen) == a.device.counters["sent_pkts"] - before > 0
        exchange(a, b)  # and the device goes on without it


def test_packets_of_a_peer_with_other_ids_verify() -> None:
    """A peer may use any IPv4 ID: the ICRC tells which one it was."""
    with (
        Device(ADDRESSES[0], port="udp") as device,
        tapped(ADDRESSES[0]) as tap,
        socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as peer,
    ):
        peer.bind((ADDRESSES[1], 0))
        fields = {"src": ADDRESSES[1], "dst": ADDRESSES[0], "sport": peer.getsockname()[1]}
        ids = (0, 1, 0x1234, 0xBEEF, 0xFFFF)
        sent = [
            encode("RC_SEND_ONLY", payload=bytes(n), dest_qp=77, psn=n, ip_id=number, **fields)
            for n, number in enumerate(ids)
        ]
        damaged = sent[0][:-1] + bytes([sent[0][-1] ^ 1])
        for packet in (*sent, damaged):
            peer.sendto(packet[28:], (ADDRESSES[0], 4791))
        until(lambda: arrived(device) == len(sent) + 1)
        seen = finish(tap)
        assert [packet.icrc_ok for packet in seen] == [True] * len(sent) + [False]
        assert [int.from_bytes(p.frame[4:6], "big") for p in seen[:-1]] == list(ids)
        assert [packet.frame for packet in seen[:-1]] == sent
        assert device.counters["dropped_icrc"] == 1


@pytest.mark.parametrize("ids", [(7, 8, 9), (0xFFFF, 0, 1), (7, 7, 7)], ids=str)
def test_a_train_on_the_packet_port_has_its_ids_and_checksums(ids: tuple[int, ...]) -> None:
    needs(os.geteuid() == 0, "packet sockets need root")
    with Device(ADDRESSES[0], port="packet") as device, tapped(ADDRESSES[0]) as tap:
        receiver = Receiver(device)
        packets = [datagram(receiver, b"abc%d" % i, number) for i, number in enumerate(ids)]
        send_train(packets)
        assert receiver.receive(3) == [b"abc0", b"abc1", b"abc2"]
        seen = finish(tap)
    assert all(packet.icrc_ok for packet in seen)
    assert [int.from_bytes(packet.frame[4:6], "big") for packet in seen] == list(ids)
    assert all(ones_sum(packet.frame[:20]) == 0xFFFF for packet in seen)


def test_filters_look_behind_ip_options(port: str) -> None:
    options = bytes([1, 1, 1, 1])
    with Device(ADDRESSES[0], port=port) as device, sender(options) as sock:
        receiver = Receiver(device)
        with (
            tapped(ADDRESSES[0], qps=[receiver.qp.number]) as wanted,
            tapped(ADDRESSES[0], qps=[receiver.qp.number + 1]) as unwanted,
        ):
            # The ICRC covers options, which a UDP socket does not show.
            packet = datagram(receiver, b"text", 0, options)
            sock.sendto(packet[32:], (ADDRESSES[0], 4791))
            until(lambda: arrived(device) == 1)
            (seen,) = finish(wanted)
            assert seen.icrc_ok is (port == "packet")
            assert finish(unwanted) == []


@pytest.mark.parametrize(
    ("given", "fits"),
    [
        ({"src": [ADDRESSES[0]]}, lambda packet: packet.direction == "tx"),
        ({"dst": [ADDRESSES[0]]}, lambda packet: packet.direction == "rx"),
        ({"host": [f"{ADDRESSES[0]}/24"]}, lambda packet: True),
        ({"host": ["10.0.0.1", "::1"]}, lambda packet: False),
        (
            {"op": ["ack,read"]},
            lambda packet: packet.operation in ("RC_ACKNOWLEDGE", "RC_RDMA_READ_REQUEST"),
        ),
        ({"op": ["write"]}, lambda packet: "WRITE" in packet.operation),
        ({"qp": ["0"]}, lambda packet: False),
    ],
    ids=str,
)
def test_filters_mean_what_they_mean_on_interfaces(
    given: dict[str, Any], fits: Callable[[Seen], bool]
) -> None:
    filters = Filters.parse(**given)
    options = {
        "prefixes": filters.prefixes,
        "qps": filters.qps,
        "operations": filters.operations,
    }
    with (
        connected(addresses=ADDRESSES) as (a, b),
        tapped(ADDRESSES[0]) as everything,
        tapped(ADDRESSES[0], **options) as some,
    ):
        exchange(a, b)
        packets = finish(everything)
        assert finish(some) == [packet for packet in packets if fits(packet)]
        assert some.counters()["roce"] == len(packets)


def test_datagrams_are_found_by_their_source_qp_too() -> None:
    with connected("UD", addresses=ADDRESSES) as (a, b):
        b.qp.post_recv(1, [b.region[0:1000]])
        with (
            tapped(ADDRESSES[1], qps=[a.qp.number]) as by_source,
            tapped(ADDRESSES[1], qps=[b.qp.number]) as by_destination,
            tapped(ADDRESSES[1], qps=[0xABCDE]) as by_neither,
        ):
            to = {"dst": b.device.address, "remote_qp": b.qp.number, "remote_qkey": 0x11111111}
            a.qp.post_send(1, "SEND", inline=b"hello", **to)
            b.complete()
            found = [len(finish(tap)) for tap in (by_source, by_destination, by_neither)]
        assert found == [1, 1, 0]


def test_one_direction_cut_and_sampled() -> None:
    with (
        connected(addresses=ADDRESSES) as (a, b),
        tapped(ADDRESSES[0]) as everything,
        tapped(ADDRESSES[0], tx=False, snaplen=64) as received,
        tapped(ADDRESSES[0], rx=False, sample=7) as sampled,
    ):
        exchange(a, b)
        seen = finish(everything)
        cut = finish(received)
        assert [p.frame for p in cut] == [frame[:64] for frame in of(seen, "rx")]
        assert [p.length for p in cut] == [len(frame) for frame in of(seen, "rx")]
        assert max(p.length for p in cut) > 64
        assert [p.frame for p in finish(sampled)] == of(seen, "tx")[::7]
        counters = sampled.counters()
        assert counters["matched"] == counters["recorded"] + counters["sampled_out"]


def test_what_a_full_ring_has_no_room_for_is_counted() -> None:
    with (
        connected(addresses=ADDRESSES) as (a, b),
        tapped(ADDRESSES[0]) as everything,
        tapped(ADDRESSES[0], ring_bytes=4096) as tight,
    ):
        exchange(a, b)  # of which nobody reads anything
        packets = read(everything)
        first = read(tight)
        assert 0 < len(first) < len(packets)
        # In order, each whole, none twice; a small one may find room where a large one did not.
        rest = iter(packets)
        assert all(packet in rest for packet in first)
        exchange(a, b)
        later = finish(tight)
        counters = tight.counters()
        assert later
        assert counters["recorded"] == len(first) + len(later)
        assert counters["ring_dropped"] > 0
        assert counters["matched"] == counters["recorded"] + counters["ring_dropped"]
        assert everything.counters()["matched"] == counters["matched"]


def test_records_run_round_the_ring_many_times() -> None:
    with (
        connected(addresses=ADDRESSES) as (a, b),
        tapped(ADDRESSES[0], rx=False, ring_bytes=8192) as tap,
    ):
        seen = []
        for i in range(200):
            data = a.fill(0, 1 + 13 * i % 1000, seed=i)
            a.qp.post_send(
                i, "WRITE", [a.region[0 : len(data)]], remote_va=b.region.va, rkey=b.region.rkey
            )
            a.complete()
            seen += read(tap)
        seen += finish(tap)
        assert [packet.psn for packet in seen] == list(range(7, 207))
        assert all(packet.icrc_ok for packet in seen)
        assert tap.counters()["ring_dropped"] == 0


def test_there_is_room_for_a_few_taps_and_room_again() -> None:
    with connected(addresses=ADDRESSES) as (a, b):
        sessions = [TapSession(ADDRESSES[0], ring_bytes=1 << 20) for _ in range(TAPS_MAX + 1)]
        try:
            assert all(session.connect(5000) for session in sessions[:-1])
            with pytest.raises(OSError, match="busy"):
                sessions[-1].connect(5000)
            exchange(a, b)
            seen = [finish(session) for session in sessions[:-1]]
            assert all(packets == seen[0] for packets in seen)
            assert sessions[-1].connect(5000)
        finally:
            for session in sessions:
                session.close()


def test_a_device_that_closes_leaves_everything_to_read() -> None:
    with tapped(ADDRESSES[0], wait=False) as tap:
        with connected(addresses=ADDRESSES) as (a, b):
            assert tap.connect(5000)
            exchange(a, b)
            counters = a.device.counters
            assert not tap.gone
        seen: list[Seen] = []
        until(lambda: seen.extend(read(tap, timeout_ms=10)) or tap.gone)
        assert len(seen) == counters["sent_pkts"] + counters["rcvd_pkts"]


def test_closing_again_and_using_what_is_closed() -> None:
    session = TapSession(ADDRESSES[0])
    session.close()
    session.close()
    with pytest.raises(ValueError, match="closed"):
        session.counters()


def test_two_devices_in_turn_at_one_address() -> None:
    for _ in range(2):
        with Device(ADDRESSES[0]), tapped(ADDRESSES[0]) as tap:
            assert not tap.gone


def test_descriptors_are_given_back() -> None:
    def count() -> int:
        return len(os.listdir("/proc/self/fd"))

    with connected(addresses=ADDRESSES) as (a, b):
        before = count()
        for _ in itertools.repeat(None, 3):
            with tapped(ADDRESSES[0]) as tap:
                exchange(a, b)
                finish(tap)
        until(lambda: count() == before)
        settle(a, b)
