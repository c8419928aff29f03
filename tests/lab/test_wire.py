# SPDX-License-Identifier: BSD-2-Clause
"""The wire fixture: frames between two hosts, and a guest's RDMA behind it."""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Iterator

import pytest
from psn_frames import frame, psns

from livedma.errors import LabError
from livedma.lab.guest import Lab
from livedma.lab.hosts import Host
from livedma.lab.impairment import parse
from livedma.lab.wire import Rule, Wire, guest_wire, wired_hosts
from livedma.wire import decode
from stock_rping import assert_ended_well
from traffic import packet_socket, udp_flow, udp_socket

pytestmark = pytest.mark.slow

COUNT = 2000
KINDS = ("drop", "duplicate", "reorder", "corrupt", "delay")


@pytest.fixture(autouse=True)
def one_cpu() -> Iterator[None]:
    """A veth keeps the order of frames only as long as they are sent by one CPU."""
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {min(before)})
    yield
    os.sched_setaffinity(0, before)


def listener(host: Host) -> socket.socket:
    with host.inside():
        sock = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(0x0003))
        sock.setsockopt(socket.SOL_SOCKET, 33, 64 << 20)  # SO_RCVBUFFORCE
        sock.bind((host.iface, 0x0003))
    return sock


def roce_frames(sock: socket.socket, count: int) -> list[bytes]:
    """That many RoCE frames, or as many as came; and no more than that followed."""
    found: list[bytes] = []
    end_s = time.monotonic() + 20
    while len(found) < count and time.monotonic() < end_s:
        sock.settimeout(1)
        try:
            data, address = sock.recvfrom(65536)
        except TimeoutError:
            continue
        if address[2] != socket.PACKET_OUTGOING and parse(data) is not None:
            found.append(data)
    return found


def wait_for_seen(wire: Wire, to: str, count: int) -> None:
    end_s = time.monotonic() + 20
    while wire.counts(to)["seen"] < count:
        assert time.monotonic() < end_s, wire.counts(to)
        time.sleep(0.01)


@pytest.mark.parametrize("version", [4, 6])
@pytest.mark.parametrize("to", ["far", "near"])
def test_each_kind_is_seen_and_counted(bpf: None, version: int, to: str) -> None:
    rules = [Rule(kind, 0.02, delay_s=0.1) for kind in KINDS]
    with wired_hosts(*rules, mtu=1500, seed=3) as (near, far, wire):
        source, target = (near, far) if to == "far" else (far, near)
        frames = [frame(psn, version=version) for psn in range(COUNT)]
        with listener(target) as heard, packet_socket(source, bypass_qdisc=False) as sock:
            for one in frames:
                sock.send(one)
            wait_for_seen(wire, to, COUNT)
            counts = wire.counts(to)
            assert all(counts[kind] for kind in KINDS[:4]), counts
            expected = COUNT - counts["drop"] + counts["duplicate"]
            got = roce_frames(heard, expected)
            counts = wire.counts(to)
        assert wire.lost() == 0
        assert wire.counts({"far": "near", "near": "far"}[to]) == {}
    assert len(got) == expected
    assert counts["seen"] == COUNT and counts["delay"]
    wrong = [one for one in got if not decode(one).icrc_ok]
    assert len(wrong) == counts["corrupt"]
    right = psns([one for one in got if decode(one).icrc_ok])
    assert len(right) - len(set(right)) == counts["duplicate"]
    assert COUNT - len(set(right)) == counts["drop"] + counts["corrupt"]
    # Frames that come behind a later one were held back, each exactly once.
    highest, late = -1, 0
    for psn in psns(got):
        late += psn < highest
        highest = max(highest, psn)
    assert late == counts["reorder"] + counts["delay"]


def test_one_packet_by_its_opcode(bpf: None) -> None:
    kinds = ["RC_SEND_FIRST", "RC_SEND_MIDDLE", "RC_SEND_MIDDLE", "RC_SEND_MIDDLE", "RC_SEND_LAST"]
    rule = Rule("drop", opcode="RC_SEND_MIDDLE", skip=2, times=1)
    frames = [frame(psn, kind, size=256) for psn, kind in enumerate(kinds * 2)]
    with wired_hosts(rule) as (near, far, wire), listener(far) as heard:
        with packet_socket(near) as sock:
            for one in frames:
                sock.send(one)
        assert psns(roce_frames(heard, 9)) == [0, 1, 2, 4, 5, 6, 7, 8, 9]
        assert wire.counts("far") == {"seen": 10, "drop": 1}
        wire.set_rules(Rule("drop"))
        with packet_socket(near) as sock:
            sock.send(frames[0])
        wait_for_seen(wire, "far", 11)
        assert wire.counts("far") == {"seen": 11, "drop": 2}


@pytest.mark.parametrize("ipv6", [False, True])
def test_a_segmented_train_comes_as_packets(bpf: None, ipv6: bool) -> None:
    """Jumbo frames, too; and the rest of the network works through a wire that drops all RoCE."""
    with wired_hosts(mtu=4500) as (near, far, wire), listener(far) as heard:
        flow = udp_flow(near, far, ipv6=ipv6, payload_bytes=4096)
        with udp_socket(near, ipv6, segments=True) as sock:
            flow.send(sock, 36, segments=12)
        got = roce_frames(heard, 36)
        assert len(got) == 36
        assert all(decode(one).icrc_ok and len(decode(one).payload) == 4096 for one in got)
        assert wire.counts("far") == {"seen": 36}
        wire.set_rules(Rule("drop"))
        with far.inside():
            server = socket.create_server(("::", 7000), family=socket.AF_INET6, dualstack_ipv6=True)
        with near.inside():
            address = far.ipv6 if ipv6 else far.ipv4
            client = socket.create_connection((address, 7000), timeout=20)
        with server, client, server.accept()[0] as served:
            sent = os.urandom(1 << 20)
            task = near.start(lambda: client.sendall(sent))
            received = b""
            served.settimeout(20)
            while len(received) < len(sent):
                received += served.recv(1 << 16)
            task.result(20)
        assert received == sent


def send_until_it_breaks(wire: Wire, source: Host) -> None:
    end_s = time.monotonic() + 20
    with packet_socket(source) as sock:
        while wire.is_working:
            sock.send(frame(1))
            assert time.monotonic() < end_s
            time.sleep(0.01)


def test_what_breaks_the_wire_is_told(bpf: None) -> None:
    with wired_hosts() as (near, far, wire):
        far.remove_link()
        send_until_it_breaks(wire, near)
        with pytest.raises(LabError, match="the wire broke: OSError"):
            wire.close()


@pytest.mark.parametrize("version", [4, 6])
def test_rping_behind_a_bad_wire(guests: Lab, version: int) -> None:
    """Two kernels cope with it: all pings right."""
    a, b = guests.guests
    server = a.ipv6 if version == 6 else a.ipv4
    # No ACK is late: a kernel that gets one among the responses of a READ ends in silence.
    rules = [
        Rule("drop", to="far", opcode="RC_RDMA_READ_RESPONSE_MIDDLE", skip=3, times=1),
        Rule("drop", to="near", opcode="RC_RDMA_WRITE_MIDDLE", times=1),
        Rule("duplicate", opcode="RC_SEND_ONLY", times=5),
        Rule("reorder", to="near", opcode="RC_RDMA_WRITE_FIRST", times=2),
        Rule("corrupt", to="near", opcode="RC_RDMA_WRITE_LAST", times=2),
        Rule("delay", to="near", opcode="RC_RDMA_READ_REQUEST", times=10),
    ]
    options = f"-a {server} -p 7300 -C 20 -S 8000 -V -v"
    with guest_wire(guests, a, *rules, seed=version) as wire:
        b.run(f"ping -c 1 -W 20 {server}", check=True)
        with a.command(f"rping -s {options}") as serving:
            a.wait_until("rdma resource show cm_id | grep -q 'LISTEN.*7300'")
            done = b.run(f"rping -c {options}", 120)
            served = serving.wait(60)
        counts = wire.counts("near") + wire.counts("far")
        assert wire.lost() == 0
    assert_ended_well(done)
    assert_ended_well(served)
    assert done.stdout.count("ping data: rdma-ping-") == 20
    exact = {kind: counts[kind] for kind in ("drop", "duplicate", "corrupt")}
    assert exact == {"drop": 2, "duplicate": 10, "corrupt": 2}
    # A slow guest may not have sent in time what was to overtake.
    assert counts["reorder"] + counts["delay"] == 12
    # The guest is where it was, and reached without the wire.
    assert b.run(f"ping -c 1 -W 20 {server}", 40).returncode == 0
    links = guests.host.run("ip", "-br", "link", capture_output=True).stdout
    assert "wire-" not in links
    assert "tx-checksumming: on" in a.run("ethtool -k eth0", check=True).stdout
