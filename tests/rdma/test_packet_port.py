# SPDX-License-Identifier: BSD-2-Clause
"""The packet port: it sees the IPv4 ID, so that an ICRC has to fit in full."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from collections.abc import Iterator

import pytest
from datagrams import Receiver, datagram, send_train, sender
from loopback import HERE, device_at
from pairs import End, connected

from livedma.errors import LivedmaError
from livedma.lab.hosts import two_hosts
from livedma.rdma import Device
from needs import needs


@pytest.fixture(autouse=True)
def root() -> None:
    needs(os.geteuid() == 0, "packet sockets need root")


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    with Device(HERE, port="packet") as device:
        yield Receiver(device)


def wait_until_counted(device: Device, name: str, count: int) -> None:
    """What is dropped leaves no event: asks until it was counted."""
    queue = device.completion_queue()
    for _ in range(1000):
        counters = {**device.counters, **device.port_counters}
        if counters[name] >= count:
            return
        queue.wait(0.01)
    raise AssertionError(f"{name} is not {count}: {counters}")


def test_what_is_allowed_is_chosen() -> None:
    with Device(HERE) as device:
        assert device.port_kind == "packet"
        assert "in full" in device.port_reason
    with Device(HERE, port="udp") as device:
        assert device.port_kind == "udp"
        assert "asked for" in device.port_reason
    with device_at("::1") as device:
        assert device.port_kind == "udp"
        assert "in full" in device.port_reason


def test_without_the_right_to_it_auto_does_without() -> None:
    program = (
        "from livedma.rdma import Device\n"
        "from livedma.errors import PrivilegeError\n"
        f"with Device({HERE!r}) as d: print(d.port_kind, d.port_reason)\n"
        f"try: Device({HERE!r}, port='packet')\n"
        "except PrivilegeError as e: print(e)\n"
    )
    command = ["setpriv", "--bounding-set=-net_raw", sys.executable, "-c", program]
    ran = subprocess.run(command, text=True, capture_output=True, timeout=60, check=False)
    assert ran.returncode == 0, ran.stderr
    first, second = ran.stdout.splitlines()
    assert first.startswith("udp 16 of the ICRC's 32 bits")
    assert "CAP_NET_RAW" in first
    assert second == (
        f"no packet port at {HERE}: it needs CAP_NET_RAW: run it as root; or use the UDP port"
    )


def test_what_makes_no_sense_is_refused() -> None:
    with pytest.raises(ValueError, match="'tcp'"):
        Device(HERE, port="tcp")  # type: ignore[arg-type]
    with pytest.raises(LivedmaError, match="IPv4"):
        Device("::1", port="packet")
    with (
        Device(HERE, port="udp", share=False),
        pytest.raises(LivedmaError, match="in use"),
    ):
        Device(HERE, port="packet")


@pytest.mark.parametrize(("port", "expected"), [("udp", [b"odd!", b"even"]), ("packet", [b"even"])])
def test_an_icrc_for_another_id(port: str, expected: list[bytes]) -> None:
    """The socket sends the ID 0, the first ICRC is for 7: only the packet port can know."""
    with Device(HERE, port=port) as device, sender() as sock:  # type: ignore[arg-type]
        receiver = Receiver(device)
        for text, ident in ((b"odd!", 7), (b"even", 0)):
            sock.sendto(datagram(receiver, text, ident)[28:], (HERE, 4791))
        assert receiver.receive(len(expected)) == expected
        assert receiver.dropped == 2 - len(expected)


@pytest.mark.parametrize("step", [1, 0])
@pytest.mark.parametrize("first", [0, 0xFFFE])
def test_ids_of_a_train_count_or_are_the_same(receiver: Receiver, first: int, step: int) -> None:
    texts = [b"one.", b"two.", b"3...", b"four"]
    send_train(datagram(receiver, t, (first + i * step) & 0xFFFF) for i, t in enumerate(texts))
    assert receiver.receive(4) == texts
    assert receiver.dropped == 0
    assert receiver.device.port_counters["received_trains"] == 1


def test_other_ids_in_a_train_fit_nothing(receiver: Receiver) -> None:
    idents = [5, 7, 7, 8, 5]
    send_train(datagram(receiver, b"%04d" % i, ident) for i, ident in enumerate(idents))
    # 7 is right for the third and 8 for the fourth if they count, 5 for the last if they do not.
    assert receiver.receive(4) == [b"0000", b"0002", b"0003", b"0004"]
    assert receiver.dropped == 1


def test_a_damaged_packet_of_a_train_is_the_only_one_lost(receiver: Receiver) -> None:
    packets = [datagram(receiver, b"%04d" % i, 9 + i) for i in range(4)]
    packets[1] = packets[1][:-5] + b"!" + packets[1][-4:]
    send_train(packets)
    assert receiver.receive(3) == [b"0000", b"0002", b"0003"]
    assert receiver.dropped == 1


def test_options_of_ip_are_covered(receiver: Receiver) -> None:
    options = b"\x01\x01\x01\x00"
    with sender(options) as sock:
        sock.sendto(datagram(receiver, b"none", 0)[28:], (HERE, 4791))
        sock.sendto(datagram(receiver, b"with", 0, options)[32:], (HERE, 4791))
        assert receiver.receive(1) == [b"with"]
    assert receiver.dropped == 1


def test_the_system_complains_to_no_sender(receiver: Receiver) -> None:
    """Its own UDP socket holds the port: no ICMP comes back."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        sock.connect((HERE, 4791))
        sock.send(b"no RoCE")
        wait_until_counted(receiver.device, "dropped_icrc", 1)
        assert sock.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR) == 0


@pytest.mark.parametrize("mtu", [256, 4096])
def test_a_connection_loses_nothing_and_hears_each_packet_once(mtu: int) -> None:
    with connected(mtu=mtu, device={"port": "packet"}) as (a, b):
        data = a.fill(0, 300_000)
        remote = {"remote_va": b.region.va, "rkey": b.region.rkey}
        a.qp.post_send(1, "WRITE", [a.region[0:300_000]], **remote)
        a.qp.post_send(
            2, "READ", [a.region[500_000:800_000]], flags=("signaled", "fence"), **remote
        )
        assert [c.status for c in a.complete(2)] == ["SUCCESS", "SUCCESS"]
        assert a.memory[500_000:800_000] == data
        there, here = b.device.counters, a.device.counters
        assert there["rcvd_pkts"] == here["sent_pkts"]
        assert there["dropped_icrc"] == here["dropped_icrc"] == 0
        assert there["duplicate_request"] == b.device.port_counters["overruns"] == 0
        # a train counts as one
        assert b.device.port_counters["received_trains"] < there["rcvd_pkts"]


def test_hosts_on_a_wire_and_one_with_itself() -> None:
    with two_hosts(mtu=9000) as (left, right):
        with left.inside():
            one = Device(left.ipv4, port="packet")
        with right.inside():
            other = Device(right.ipv4, port="packet")
        with one, other:
            for a, b in ((End(one), End(other)), (End(one), End(one))):
                a.connect(b, mtu=4096)
                b.connect(a, mtu=4096)
                data = a.fill(0, 100_000)
                remote = {"remote_va": b.region.va, "rkey": b.region.rkey}
                a.qp.post_send(1, "WRITE", [a.region[0:100_000]], **remote)
                assert a.complete()[0].status == "SUCCESS"
                assert b.memory[:100_000] == data


def test_a_wire_brings_nothing_from_or_for_loopback() -> None:
    """A neighbour may write any address into a packet: as the system would, the port drops it."""
    with two_hosts() as (left, right):
        with right.inside():
            inner, outer = Device("127.0.0.1", port="packet"), Device(right.ipv4, port="packet")
        with inner, outer:
            for device, src in ((inner, left.ipv4), (outer, "127.0.0.3"), (outer, left.ipv4)):
                receiver = Receiver(device)
                packet = datagram(receiver, b"from", 3, src=src)
                frame = right.mac + left.mac + b"\x08\x00" + packet
                with left.inside(), socket.socket(socket.AF_PACKET, socket.SOCK_RAW) as sock:
                    sock.bind((left.iface, 0x0800))
                    sock.send(frame)
            assert receiver.receive(1) == [b"from"]
            assert inner.counters["rcvd_pkts"] == 0
            assert outer.counters["rcvd_pkts"] == 1
