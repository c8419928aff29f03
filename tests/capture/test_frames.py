# SPDX-License-Identifier: BSD-2-Clause
"""The bytes of a record are the bytes on the wire, whatever precedes the BTH."""

from __future__ import annotations

import shutil
import struct
import subprocess
from collections.abc import Callable

import pytest
from taps import Tap

from livedma.lab.hosts import Host, two_hosts
from livedma.wire.encode import encode, ethernet
from needs import needs
from traffic import packet_socket, receiver_socket, udp_flow, udp_socket

pytestmark = pytest.mark.slow

SEND = 0x04
HOOKS = pytest.mark.parametrize("hook", ["xdp", "tc"])


def send(host: Host, *frames: bytes) -> None:
    with packet_socket(host, bypass_qdisc=False) as sock:
        for frame in frames:
            sock.send(frame)


def mac(host: Host) -> str:
    return host.mac.hex(":")


def packet4(src: Host, dst: Host, **fields: object) -> bytes:
    shape = {"dest_qp": 5, "psn": 7, "payload": b"payload!" * 4, "migreq": False, **fields}
    return encode(SEND, src=src.ipv4, dst=dst.ipv4, **shape)  # type: ignore[arg-type]


def packet6(src: Host, dst: Host, **fields: object) -> bytes:
    shape = {"dest_qp": 5, "psn": 7, "payload": b"payload!" * 4, "migreq": False, **fields}
    return encode(SEND, src=src.ipv6, dst=dst.ipv6, **shape)  # type: ignore[arg-type]


def with_options(packet: bytes, words: int) -> bytes:
    """IPv4 options (no-operation) between header and UDP; the ICRC is then stale."""
    header = bytearray(packet[:20])
    header[0] = 0x45 + words
    header[2:4] = (int.from_bytes(header[2:4], "big") + 4 * words).to_bytes(2, "big")
    header[10:12] = bytes(2)
    header += b"\x01" * 4 * words
    total = sum(int.from_bytes(header[i : i + 2], "big") for i in range(0, len(header), 2))
    while total >> 16:
        total = (total & 0xFFFF) + (total >> 16)
    header[10:12] = (total ^ 0xFFFF).to_bytes(2, "big")
    return bytes(header) + packet[20:]


def with_extensions(packet: bytes, count: int, bytes_each: int = 8) -> bytes:
    """So many IPv6 destination options before UDP."""
    header = bytearray(packet[:40])
    extensions = b""
    for i in range(count):
        following = 17 if i == count - 1 else 60
        padding = bytes([1, bytes_each - 4]) + bytes(bytes_each - 4)
        extensions += bytes([following, bytes_each // 8 - 1]) + padding
    header[6] = 60
    header[4:6] = (len(packet) - 40 + len(extensions)).to_bytes(2, "big")
    return bytes(header) + extensions + packet[40:]


@HOOKS
def test_every_kind_of_frame(hosts: tuple[Host, Host], tap: Callable[..., Tap], hook: str) -> None:
    src, dst = hosts
    macs = {"src": mac(src), "dst": mac(dst)}
    v4, v6 = packet4(src, dst), packet6(src, dst)
    v1 = packet6(src, dst, version="roce1")
    frames = [
        ethernet(v4, **macs),
        ethernet(v4, **macs, vlan=(100,)),
        ethernet(v4, **macs, vlan=(0x2064, 0x4007)),
        ethernet(with_options(v4, 1), **macs),
        ethernet(with_options(v4, 10), **macs),
        ethernet(v6, **macs),
        ethernet(v6, **macs, vlan=(5,)),
        ethernet(with_extensions(v6, 1), **macs),
        ethernet(with_extensions(v6, 4), **macs),
        ethernet(with_extensions(v6, 2, 64), **macs),
        ethernet(v1, **macs, version="roce1"),
        ethernet(v1, **macs, version="roce1", vlan=(1, 2)),
    ]
    rx, tx = tap(dst, "rx", hook), tap(src, "tx")
    send(src, *frames)
    for side in (rx, tx):
        seen = side.read(len(frames))
        assert [packet.frame.hex() for packet in seen] == [frame.hex() for frame in frames]
        assert all(packet.psn == 7 and packet.dest_qp == 5 for packet in seen)


@HOOKS
def test_what_is_not_roce_is_left_alone(
    hosts: tuple[Host, Host], tap: Callable[..., Tap], hook: str
) -> None:
    src, dst = hosts
    macs = {"src": mac(src), "dst": mac(dst)}
    v4 = packet4(src, dst)
    later_fragment = v4[:6] + b"\x00\x10" + v4[8:]
    others = [
        ethernet(v4[:22] + b"\x12\xb8" + v4[24:], **macs),  # another UDP port
        ethernet(v4[:9] + b"\x06" + v4[10:], **macs),  # TCP
        ethernet(later_fragment, **macs),
        ethernet(with_extensions(packet6(src, dst), 5), **macs),  # more than are followed
        bytes.fromhex("ffffffffffff") + src.mac + b"\x08\x06" + bytes(46),
    ]
    rx = tap(dst, "rx", hook)
    send(src, *others, ethernet(v4, **macs))
    assert [packet.frame for packet in rx.read(1)] == [ethernet(v4, **macs)]
    counters = rx.counters()
    assert counters["roce"] == 1
    assert counters["frames"] >= len(others)


@HOOKS
def test_a_packet_that_ends_within_its_bth_is_captured(
    hosts: tuple[Host, Host], tap: Callable[..., Tap], hook: str
) -> None:
    src, dst = hosts
    whole = packet4(src, dst)
    cut = whole[:2] + (34).to_bytes(2, "big") + whole[4:24] + (14).to_bytes(2, "big") + whole[26:34]
    rx = tap(dst, "rx", hook)
    send(src, ethernet(cut, src=mac(src), dst=mac(dst)))
    rx.read(1)
    assert rx.seen[0].frame == ethernet(cut, src=mac(src), dst=mac(dst))


@HOOKS
@pytest.mark.parametrize("snaplen", [64, 128, 129, 700, 1500])
def test_snaplen_keeps_the_front_and_the_length(
    hosts: tuple[Host, Host], tap: Callable[..., Tap], hook: str, snaplen: int
) -> None:
    src, dst = hosts
    frames = [
        ethernet(packet4(src, dst, psn=i, payload=b"abcd" * words), src=mac(src), dst=mac(dst))
        for i, words in enumerate((0, 1, 16, 32, 100, 256))
    ]
    rx = tap(dst, "rx", hook, snaplen=snaplen)
    send(src, *frames)
    seen = rx.read(len(frames))
    assert [packet.frame for packet in seen] == [frame[:snaplen] for frame in frames]
    assert [packet.length for packet in seen] == [len(frame) for frame in frames]


@pytest.mark.parametrize("snaplen", [80, 9728])
@pytest.mark.parametrize("ipv6", [False, True])
def test_gso_trains_are_split_into_what_is_on_the_wire(
    hosts: tuple[Host, Host], tap: Callable[..., Tap], ipv6: bool, snaplen: int
) -> None:
    src, dst = hosts
    count = 40 * 25 - 3  # the last train is shorter
    flow = udp_flow(src, dst, ipv6=ipv6, payload_bytes=1024)
    tx, rx = tap(src, "tx", snaplen=snaplen), tap(dst, "rx", "tc", snaplen=snaplen)
    wire = tap(dst, "rx", "tc")
    with udp_socket(src, ipv6, segments=True) as sender, receiver_socket(dst, ipv6) as receiver:
        arriving = dst.start(lambda: flow.receive(receiver, count))
        src.start(lambda: flow.send(sender, count, segments=40, rate=50_000)).result(30)
        assert arriving.result(30)["packets"] == count
    for side in (tx, rx):
        seen = side.read(count)
        assert side.counters()["frames"] < count / 10  # trains, not packets
        assert [packet.psn for packet in seen] == list(range(count))
        assert {len(packet.frame) for packet in seen} == {min(snaplen, seen[0].length)}
        if snaplen > 1024:
            assert all(packet.icrc_ok for packet in seen)
    lengths = {packet.length for packet in wire.read(count)}
    assert lengths == {14 + (40 if ipv6 else 20) + 8 + 12 + 1024 + 4}


def gso_train(src: Host, dst: Host, count: int, vlan: int) -> bytes:
    """A frame of `count` segments behind a tag, with the virtio header of a packet socket."""
    packets = [packet4(src, dst, psn=i, ip_id=100 + i) for i in range(count)]
    segments = b"".join(packet[28:] for packet in packets)
    header = bytearray(packets[0][:28])
    header[2:4] = (28 + len(segments)).to_bytes(2, "big")
    header[24:26] = (8 + len(segments)).to_bytes(2, "big")
    header[10:12] = bytes(2)
    total = sum(int.from_bytes(header[i : i + 2], "big") for i in range(0, 20, 2))
    total = (total & 0xFFFF) + (total >> 16)
    header[10:12] = (total ^ 0xFFFF).to_bytes(2, "big")
    frame = ethernet(bytes(header) + segments, src=mac(src), dst=mac(dst), vlan=(vlan,))
    needs_checksum, udp_segments = 1, 5
    virtio = struct.pack(
        "<BBHHHH", needs_checksum, udp_segments, 46, len(packets[0]) - 28, 14 + 4 + 20, 6
    )
    return virtio + frame


def test_gso_trains_behind_a_vlan_tag(hosts: tuple[Host, Host], tap: Callable[..., Tap]) -> None:
    src, dst = hosts
    tx, rx = tap(src, "tx"), tap(dst, "rx", "tc")
    with packet_socket(src, bypass_qdisc=False) as sock:
        sock.setsockopt(263, 15, 1)  # SOL_PACKET, PACKET_VNET_HDR
        sock.send(gso_train(src, dst, 20, 7))
    expected = [
        ethernet(packet4(src, dst, psn=i, ip_id=100 + i), src=mac(src), dst=mac(dst), vlan=(7,))
        for i in range(20)
    ]
    for side in (tx, rx):
        seen = side.read(20)
        assert side.counters()["frames"] < 10
        assert all(packet.icrc_ok for packet in seen)
        # all but the UDP checksum, which is still to be computed
        assert [packet.frame[:44] for packet in seen] == [frame[:44] for frame in expected]
        assert [packet.frame[46:] for packet in seen] == [frame[46:] for frame in expected]


def test_native_xdp_at_mtu_9000(bpf: None, tap: Callable[..., Tap]) -> None:
    with two_hosts(mtu=9000) as (src, dst):
        rx, tx = tap(dst, "rx"), tap(src, "tx")
        assert rx.session.rx_mode == "native XDP"
        flow = udp_flow(src, dst, payload_bytes=8192)
        with udp_socket(src) as sender, receiver_socket(dst) as receiver:
            flow.send(sender, 500)
            assert flow.receive(receiver, 500)["packets"] == 500
        for side in (rx, tx):
            seen = side.read(500)
            assert [packet.psn for packet in seen] == list(range(500))
            assert all(packet.icrc_ok for packet in seen)


def test_generic_xdp(hosts: tuple[Host, Host], tap: Callable[..., Tap]) -> None:
    loopback = Host(hosts[0].name, "lo", "127.0.0.1", "::1")
    rx, tx = tap(loopback, "rx"), tap(loopback, "tx")
    assert rx.session.rx_mode == "generic XDP"
    flow = udp_flow(loopback, loopback)
    with udp_socket(loopback) as sender:
        flow.send(sender, 100)
    for side in (rx, tx):
        seen = side.read(100)
        assert [packet.psn for packet in seen] == list(range(100))
        assert all(packet.icrc_ok for packet in seen)


def test_tshark_reads_what_was_captured(hosts: tuple[Host, Host], tmp_path: object) -> None:
    src, dst = hosts
    from livedma.capture.live import Capture
    from livedma.capture.sinks import CaptureTotals, open_sink

    path = f"{tmp_path}/t.pcapng"
    flow = udp_flow(src, dst)
    with dst.inside(), Capture("eth0", hook="tc", count=50) as capture, open(path, "wb") as out:
        with udp_socket(src) as sender:
            flow.send(sender, 50)
        sink = open_sink("pcapng", out, interface="eth0", snaplen=0)
        for batch in capture:
            sink.write(batch)
        counters = capture.counters()
        sink.close(CaptureTotals(counters.matched, counters.ring_dropped))
    needs(shutil.which("tshark"), "tshark is not installed: apt install tshark")
    fields = ("infiniband.bth.psn", "frame.interface_name", "frame.packet_flags_direction")
    wanted = [argument for field in fields for argument in ("-e", field)]
    shown = subprocess.run(
        ["tshark", "-r", path, "-T", "fields", *wanted], capture_output=True, text=True, check=True
    ).stdout.splitlines()
    assert [line.split("\t")[:2] for line in shown] == [[str(i), "eth0"] for i in range(50)]
    assert {int(line.split("\t")[2], 0) for line in shown} == {1}
