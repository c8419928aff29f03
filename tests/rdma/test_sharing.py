# SPDX-License-Identifier: BSD-2-Clause
"""Several processes at one address: each gets its packets, whatever becomes of the others."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from datagrams import QKEY, Receiver, datagram, datagram_to, send_train, sender
from loopback import ELSEWHERE, HERE, THERE
from member import Member
from pairs import End

from livedma.errors import LivedmaError, PortInUseError
from livedma.lab.hosts import two_hosts
from livedma.rdma import Device, PortKind, WorkRequest
from livedma.rdma.sharing import OTHERS
from livedma.wire import cm
from livedma.wire.private import service_id
from needs import needs
from unprivileged import as_nobody

pytestmark = pytest.mark.slow  # many processes

HOME = Path("/sys/fs/bpf/livedma/share")
ADDRESS = HERE
UNPRIVILEGED = ("setpriv", "--bounding-set=-bpf,-sys_admin,-net_admin")
KINDS = pytest.mark.parametrize("port", ["udp", "packet"])


@pytest.fixture(autouse=True)
def root(bpf: None) -> None:
    needs(os.path.ismount("/sys/fs/bpf"), "there is no BPF file system at /sys/fs/bpf")


@pytest.fixture
def stack() -> Iterator[ExitStack]:
    with ExitStack() as stack:
        yield stack


def directories(address: str = ADDRESS) -> list[Path]:
    """Those of this network namespace: other tests have hosts with the same address."""
    namespace = os.stat("/proc/thread-self/ns/net").st_ino
    packed = "".join(f"{int(part):02x}" for part in address.split("."))
    return list(HOME.glob(f"{namespace}-{packed}-*"))


def connect(a: Member, b: Member) -> tuple[int, int]:
    """A connection, by the numbers of its queue pairs."""
    ends = a.call("end"), b.call("end")
    a.call("connect", ends[0], b.address, ends[1])
    b.call("connect", ends[1], a.address, ends[0])
    return ends


def exchange(a: Member, b: Member, ends: tuple[int, int], text: str) -> None:
    """There and back."""
    for (one, own), (other, number) in (
        ((a, ends[0]), (b, ends[1])),
        ((b, ends[1]), (a, ends[0])),
    ):
        assert one.call("send", own, text) == "SUCCESS"
        assert other.call("receive", number) == text


@pytest.mark.parametrize(
    ("port", "places"), [("udp", "aab"), ("packet", "aab"), ("packet", "aaa"), ("udp", "666")]
)
def test_one_dies_and_the_others_go_on(stack: ExitStack, port: str, places: str) -> None:
    """At two addresses, at one, and at one of IPv6, which is that of a host."""
    host, _ = stack.enter_context(two_hosts())
    addresses = {"a": HERE, "b": THERE, "6": host.ipv6}

    def start(place: str) -> Member:
        wrapper = host.command() if place == "6" else ()
        return stack.enter_context(Member(addresses[place], *wrapper, port=port))

    a, b, other = map(start, places)
    assert a.port_kind == b.port_kind == port
    assert (a.slot, b.slot) == (0, 1)
    ends = connect(a, other), connect(b, other)
    for (number, _), member in zip(ends, (a, b), strict=True):
        assert number >> 16 == member.slot
        exchange(member, other, ends[member.slot], f"to {member.slot} and back")
    a.kill()
    exchange(b, other, ends[1], "still here")
    heir = start(places[0])
    assert heir.slot == 0  # whose socket the kernel removed
    new = connect(heir, other)
    assert new[0] != ends[0][0]  # or late packets for the dead would find somebody
    exchange(heir, other, new, "anew")
    exchange(b, other, ends[1], "unharmed")
    for member in (heir, b, other):
        assert member.call("counters")["dropped_icrc"] == 0


@pytest.mark.parametrize(("port", "version"), [("udp", 4), ("packet", 4), ("udp", 6)])
def test_a_train_with_packets_for_both(stack: ExitStack, port: PortKind, version: int) -> None:
    """The kernel merges packets of one sender, for any receiver."""
    left, right = stack.enter_context(two_hosts())
    src, dst = (host.ipv4 if version == 4 else host.ipv6 for host in (left, right))
    with right.inside():
        a, b = (Receiver(stack.enter_context(Device(dst, port=port, share=True))) for _ in range(2))
    packets = [
        datagram(receiver, b"%04d" % i, i, src=src) for i, receiver in enumerate([a, b, a, b, b])
    ]
    with left.inside():
        send_train(packets, left.iface, right.mac + left.mac)
    assert a.receive(2) == [b"0000", b"0002"]
    assert sorted(b.receive(3)) == [b"0001", b"0003", b"0004"]
    assert a.device.port_counters["strays"] == 3
    assert a.dropped == b.dropped == 0


def test_our_own_trains_have_one_receiver(stack: ExitStack) -> None:
    a, b = (Receiver(stack.enter_context(Device(ADDRESS, share=True))) for _ in range(2))
    end = End(stack.enter_context(Device(THERE)), "UD")
    end.connect_to(ADDRESS, 0)
    to = {"dst": ADDRESS, "remote_qkey": QKEY}
    end.qp.post_sends(
        WorkRequest(i, "SEND", inline=b"%04d" % i, remote_qp=receiver.qp.number, **to)
        for i, receiver in enumerate([a, a, b, b, a, b])
    )
    assert a.receive(3) == [b"0000", b"0001", b"0004"]
    assert b.receive(3) == [b"0002", b"0003", b"0005"]
    assert [each.device.port_counters["strays"] for each in (a, b)] == [0, 0]
    assert end.device.port_counters["sent_trains"] == 4


class Gsi:
    """QP 1 of a device: hears MADs."""

    def __init__(self, device: Device) -> None:
        self.device = device
        self.memory = bytearray(8192)
        pd = device.protection_domain()
        self.cq = device.completion_queue()
        self.region = pd.register(self.memory)
        self.qp = pd.queue_pair("GSI", self.cq)
        self.qp.modify("INIT")
        self.qp.modify("RTR", mtu=1024)
        for i in range(16):
            self.qp.post_recv(i, [self.region[i * 512 : i * 512 + 512]])

    def heard(self, timeout: float = 60) -> str | None:
        """The CM message that came, or None."""
        done = self.cq.wait(timeout, count=1)
        if not done:
            return None
        assert done[0].status == "SUCCESS"
        start = done[0].wr_id * 512 + 40
        message = cm.decode(bytes(self.memory[start : start + 256]))
        return str(message["cm"]["attribute"])


def send_mad(dst: str, attribute: str, **fields: object) -> None:
    mad = cm.encode({"attribute": attribute, **fields})
    packet = datagram_to(dst, 1, 0x80010000, mad)
    with sender() as sock:
        sock.sendto(packet[28:], (dst, 4791))


def service(port: int, space: str = "TCP") -> str:
    return f"{service_id(port, space):#x}"


@KINDS
@pytest.mark.parametrize(
    ("attribute", "field"),
    [
        ("MRA", "remote_comm_id"),
        ("REJ", "remote_comm_id"),
        ("REP", "remote_comm_id"),
        ("RTU", "remote_comm_id"),
        ("DREQ", "remote_comm_id"),
        ("DREP", "remote_comm_id"),
        ("LAP", "remote_comm_id"),
        ("APR", "remote_comm_id"),
        ("SIDR_REP", "request_id"),
    ],
)
def test_answers_of_the_cm_find_who_asked(
    stack: ExitStack, port: PortKind, attribute: str, field: str
) -> None:
    gsis = [Gsi(stack.enter_context(Device(ADDRESS, port=port))) for _ in range(2)]
    for slot in (1, 0):
        send_mad(ADDRESS, attribute, **{field: slot << 24 | 0x123456, "local_comm_id": 1 << 24})
        assert gsis[slot].heard() == attribute
    assert [gsi.heard(0) for gsi in gsis] == [None, None]


@KINDS
@pytest.mark.parametrize(("attribute", "space"), [("REQ", "TCP"), ("SIDR_REQ", "UDP")])
def test_requests_find_who_listens(
    stack: ExitStack, port: PortKind, attribute: str, space: str
) -> None:
    first, second = (Gsi(stack.enter_context(Device(ADDRESS, port=port))) for _ in range(2))
    claim = (7471, space)
    second.device.claim_port(*claim)
    second.device.claim_port(*claim)  # it may say it again
    with pytest.raises(PortInUseError, match=rf"at {ADDRESS} listens on RDMA port .*7471"):
        first.device.claim_port(*claim)
    first.device.release_port(*claim)  # it is not its to release
    send_mad(ADDRESS, attribute, service_id=service(*claim))
    assert second.heard() == attribute
    elsewhere = (
        service(7472, space),
        service(7471, "IB"),
        f"{1 << 63 | service_id(*claim):#x}",  # of no port
    )
    for name in elsewhere:
        send_mad(ADDRESS, attribute, service_id=name)
        assert first.heard() == attribute
    second.device.release_port(*claim)
    send_mad(ADDRESS, attribute, service_id=service(*claim))
    assert first.heard() == attribute
    assert second.heard(0) is None


@KINDS
def test_processes_listen_and_connect_at_one_address(stack: ExitStack, port: str) -> None:
    """All of it by the connection manager; the third has the address, too."""
    one, two, other = (stack.enter_context(Member(ADDRESS, port=port)) for _ in range(3))
    for member, number in ((one, 7471), (two, 7472)):
        member.call("listen", number)
    with pytest.raises(AssertionError, match="PortInUseError"):
        two.call("listen", 7471)
    for member, number in ((one, 7471), (two, 7472), (one, 7471)):
        member.start("accept", "from the listener")
        assert other.call("dial", ADDRESS, number) == "from the listener"
        assert member.finish()
    with pytest.raises(AssertionError, match="RejectedError"):
        other.call("dial", ADDRESS, 7473)


@KINDS
def test_requests_to_the_dead_find_the_living(stack: ExitStack, port: PortKind) -> None:
    with Member(ADDRESS, port=port) as zero, Member(ADDRESS, port=port) as one:
        gsi = Gsi(stack.enter_context(Device(ADDRESS, port=port)))
        assert (zero.slot, one.slot, gsi.device.slot) == (0, 1, 2)
        one.call("claim", 7471)
        with pytest.raises(PortInUseError, match="another process"):
            gsi.device.claim_port(7471)
        zero.kill()
        one.kill()
    for number in (7471, 7472):
        found = None
        for _ in range(3):  # a packet port learns of a death by the first that is lost
            send_mad(ADDRESS, "REQ", service_id=service(number))
            found = found or gsi.heard(0.5)
        assert found == "REQ"
    gsi.device.claim_port(7471)


def test_who_takes_a_slot_inherits_no_claim(stack: ExitStack) -> None:
    gsi = Gsi(stack.enter_context(Device(ADDRESS)))
    with Member(ADDRESS) as one:
        one.call("claim", 7471)
        one.kill()
    heir = Gsi(stack.enter_context(Device(ADDRESS)))
    assert heir.device.slot == one.slot
    send_mad(ADDRESS, "REQ", service_id=service(7471))
    assert gsi.heard() == "REQ"


def test_the_last_one_out_removes_what_is_pinned() -> None:
    with Device(ADDRESS, share=True) as device:
        with Device(ADDRESS, share=True):
            assert len(directories()) == 1
        device.claim_port(1)
        assert len(directories()) == 1
    assert directories() == []
    with Member(ADDRESS) as member:
        assert len(directories()) == 1
        assert member.is_shared
    assert directories() == []  # it ended without closing its device


@pytest.mark.alone  # the next is any process with a device that starts on this machine
def test_what_the_killed_left_goes_with_the_next() -> None:
    with Member(ADDRESS) as member:
        member.kill()
    assert len(directories()) == 1
    with Device(ELSEWHERE, share=True):
        assert directories() == []


def test_a_child_that_ends_takes_nothing_along(stack: ExitStack) -> None:
    gsi = Gsi(stack.enter_context(Device(ADDRESS, share=True)))
    child = os.fork()
    if not child:
        gsi.device._leave()
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0
    send_mad(ADDRESS, "REQ")
    assert gsi.heard() == "REQ"


def test_who_does_not_share_keeps_others_out() -> None:
    with Device(ADDRESS, share=False) as device:
        assert (device.slot, device.is_shared) == (0, False)
        device.claim_port(7471)  # nobody is there to dispute it
        device.release_port(7471)
        with pytest.raises(LivedmaError, match="does not share it"):
            Device(ADDRESS, share=True)
        assert directories() == []
    with Device(ADDRESS), pytest.raises(LivedmaError, match="No sharing: it was not asked for"):
        Device(ADDRESS, share=False)


def test_a_stranger_with_the_right_to_the_port_keeps_us_out() -> None:
    """A process that shares by other means, or out of sight, would not get its packets any more."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        sock.bind((ADDRESS, 4791))
        with pytest.raises(LivedmaError, match="does not share it, or is another"):
            Device(ADDRESS)


def test_without_privilege_an_address_has_one_process() -> None:
    with Member(ADDRESS, *UNPRIVILEGED) as member:
        assert not member.is_shared
        assert member.share_reason == (
            "sharing an address between processes needs CAP_BPF and CAP_NET_ADMIN"
        )
        with pytest.raises(AssertionError, match=r"any of 127\.0\.0\.0/8 is this host"):
            Member(ADDRESS, *UNPRIVILEGED)
    with pytest.raises(AssertionError, match="PrivilegeError: sharing an address"):
        Member(ADDRESS, *UNPRIVILEGED, share=True)


def test_what_another_user_shares_is_no_obstacle_elsewhere() -> None:
    somebody = as_nobody("bpf", "net_admin", "net_raw")
    with Device(ELSEWHERE, share=True), Member(ADDRESS, *somebody) as member:
        assert not member.is_shared
        assert member.share_reason == OTHERS


def test_without_libbpf_there_is_no_sharing() -> None:
    program = (
        "import sys\n"
        "sys.modules['livedma._native.share'] = None\n"
        "from livedma.rdma import Device\n"
        f"with Device({ADDRESS!r}) as device: print(device.is_shared, device.share_reason)\n"
    )
    command = [sys.executable, "-c", program]
    ran = subprocess.run(command, text=True, capture_output=True, timeout=60, check=True)
    assert ran.stdout.startswith("False libbpf is missing")


def test_another_version_is_left_alone() -> None:
    with Device(ADDRESS, share=True):
        (directory,) = directories()
        (directory / "sockets-1").rename(directory / "sockets-0")
        try:
            with pytest.raises(LivedmaError, match="another version"):
                Device(ADDRESS, share=True)
            with Device(ELSEWHERE, share=True):
                assert directories() == [directory]
        finally:
            (directory / "sockets-0").rename(directory / "sockets-1")


def test_an_interrupted_start_is_no_obstacle() -> None:
    with Device(ADDRESS, share=True):
        (directory,) = directories()
    directory.mkdir(parents=True)
    with Device(ADDRESS, share=True):
        assert directories() == [directory]


@pytest.mark.slow
def test_there_is_room_for_256(stack: ExitStack) -> None:
    for slot in range(256):
        device = stack.enter_context(Device(ADDRESS, share=True, port="udp", max_qp=16))
        assert device.slot == slot
    with pytest.raises(LivedmaError, match="as many processes as can share it"):
        Device(ADDRESS, share=True)
