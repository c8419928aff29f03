# SPDX-License-Identifier: BSD-2-Clause
"""The guard against real packets on a real interface."""

from __future__ import annotations

import socket
import struct
import threading
from collections.abc import Iterator

import pytest
from guard_lab import Lab, frame, inside, require_bpf

from livedma.capture.guard import Guard
from livedma.capture.guard_rule import Rule, parse_source

pytestmark = pytest.mark.slow


@pytest.fixture
def lab() -> Iterator[Lab]:
    require_bpf()
    lab = Lab()
    try:
        yield lab
    finally:
        lab.close()


@pytest.fixture
def guard(lab: Lab) -> Iterator[Guard]:
    with inside(lab.inner), Guard("in0") as guard:
        yield guard
        guard.off()


def rule(action: str, source: str | None = None, **conditions: object) -> Rule:
    return Rule(action, source=parse_source(source) if source else None, **conditions)


@pytest.mark.parametrize(
    ("source", "address", "is_hit"),
    [
        ("10.99.0.1", "10.99.0.1", True),
        ("10.99.0.1", "10.99.0.3", False),
        ("10.99.0.0/23", "10.99.1.255", True),
        ("10.99.0.0/23", "10.99.2.0", False),
        ("0.0.0.0/0", "10.99.0.1", True),
        ("0.0.0.0/0", "fd99::1", False),
        ("fd99::1", "fd99::1", True),
        ("fd99::1", "fd99::2", False),
        ("fd99::/65", "fd99::7fff:ffff:ffff:ffff", True),
        ("fd99::/65", "fd99::8000:0:0:1", False),
        ("fd99:8000::/17", "fd99:ffff::1", True),
        ("fd99:8000::/17", "fd99:7fff::1", False),
        ("::/0", "fd99::1", True),
        ("::/0", "10.99.0.1", False),
        ("::", "fd99::1", False),
    ],
)
def test_source(lab: Lab, guard: Guard, source: str, address: str, is_hit: bool) -> None:
    sent = frame(src=address, dst="fd99::2" if ":" in address else "10.99.0.2")
    guard.add(rule("drop", source))
    assert lab.passes(sent) is not is_hit
    assert guard.status().rules[0][1].packets == is_hit


def test_listed_qps(lab: Lab, guard: Guard) -> None:
    listed = (*range(100, 115), 0xFFFFFF)
    guard.add(rule("drop", qps=listed))
    for qp in (0, 1, 99, 115, 0xFFFFFE):
        assert lab.passes(frame(qp=qp)), qp
    for qp in listed:
        assert not lab.passes(frame(qp=qp)), qp


def test_unknown_qps(lab: Lab, guard: Guard) -> None:
    guard.add_qps([7, 63, 64, 0xFFFFFF])
    guard.add(rule("drop", qps="unknown"))
    for qp in (0, 1, 7, 63, 64, 0xFFFFFF):
        assert lab.passes(frame(qp=qp)), qp
    for qp in (2, 6, 8, 62, 65, 128, 0xFFFFFE):
        assert not lab.passes(frame(qp=qp)), qp
    guard.remove_qps([7])
    assert not lab.passes(frame(qp=7))
    guard.set_qps([8, 64])
    assert guard.status().known_qps == (8, 64)
    assert [lab.passes(frame(qp=qp)) for qp in (8, 64, 63)] == [True, True, False]


def test_operations(lab: Lab, guard: Guard) -> None:
    guard.add(rule("drop", operations=("WRITE", "ACK", "UNKNOWN")))
    for opcode in ("RC_SEND_ONLY", "UD_SEND_ONLY", "RC_RDMA_READ_REQUEST", "RC_FETCH_ADD", "CNP"):
        assert lab.passes(frame(opcode)), opcode
    for opcode in ("RC_RDMA_WRITE_ONLY", "UC_RDMA_WRITE_MIDDLE", "RC_ACKNOWLEDGE"):
        assert not lab.passes(frame(opcode, payload=b"")), opcode
    unheard_of = bytearray(frame())
    unheard_of[42] = 0xFE
    assert not lab.passes(bytes(unheard_of))


def test_conditions_add_up(lab: Lab, guard: Guard) -> None:
    guard.add(rule("drop", "10.99.0.1", qps=(7,), operations=("SEND",)))
    assert not lab.passes(frame())
    assert lab.passes(frame(src="10.99.0.3"))
    assert lab.passes(frame(qp=8))
    assert lab.passes(frame("RC_ACKNOWLEDGE"))


def test_first_match_decides(lab: Lab, guard: Guard) -> None:
    guard.add(rule("drop", "10.99.0.0/24"))
    assert not lab.passes(frame())
    guard.add(rule("allow", qps=(7,)))
    assert not lab.passes(frame()), "a later rule decided"
    guard.remove(2)
    assert guard.add(rule("allow", qps=(7,)), at=1) == 1
    assert lab.passes(frame())
    assert not lab.passes(frame(qp=8))


def test_every_rule_is_reached(lab: Lab, guard: Guard) -> None:
    for qp in range(100, 164):
        guard.add(rule("drop", qps=(qp,)))
    with pytest.raises(Exception, match="64 rules"):
        guard.add(rule("drop"))
    assert lab.send(frame(qp=qp) for qp in range(99, 165)) == [frame(qp=99), frame(qp=164)]
    assert all(counters.packets == 1 for _, counters in guard.status().rules)


def test_counters_are_exact_and_stay_with_their_rule(lab: Lab, guard: Guard) -> None:
    guard.add(rule("drop", qps=(7,)))
    guard.add(rule("allow", qps=(8,)))
    one, two, three = frame(payload=bytes(400)), frame(qp=8), frame(qp=9)
    lab.send([one] * 300 + [two] * 200 + [three] * 100)
    status = guard.status()
    assert [c[:3] for _, c in status.rules] == [
        (300, 300 * len(one), 300),
        (200, 200 * len(two), 0),
    ]
    assert status.unmatched[:3] == (100, 100 * len(three), 0)
    assert status.malformed.packets == 0
    assert status.rules[0][1].seconds_ago is not None
    assert status.rules[0][1].seconds_ago < 60
    guard.add(rule("drop", qps=(10,)), at=1)
    assert [c.packets for _, c in guard.status().rules] == [0, 300, 200]
    guard.remove(2)
    guard.add(rule("drop", qps=(11,)))
    assert [c.packets for _, c in guard.status().rules] == [0, 200, 0], "a new rule starts at 0"


def test_limit_passes_the_burst_and_little_more(lab: Lab, guard: Guard) -> None:
    guard.add(rule("limit", rate=10, burst=100, qps=(7,)))
    passed = lab.send([frame()] * 5000)
    counters = guard.status().rules[0][1]
    assert 100 <= len(passed) < 1000  # 900 more would take the lab 90 s
    assert counters[:3] == (5000, 5000 * len(frame()), 5000 - len(passed))
    assert lab.passes(frame(qp=8)), "others are not limited"


def test_limit_refills(lab: Lab, guard: Guard) -> None:
    guard.add(rule("limit", rate=100_000, burst=1))
    assert len(lab.send([frame()] * 300)) > 5  # a chunk takes more than the 10 us of one packet
    guard.replace([rule("limit", rate=1, burst=2)])
    assert 2 <= len(lab.send([frame()] * 300)) < 100, "a new limit starts with a full bucket"


def test_malformed(lab: Lab, guard: Guard) -> None:
    whole = frame()
    cut = bytearray(whole[: 14 + 20 + 8 + 11])  # one byte of the BTH is missing
    cut[16:18] = struct.pack("!H", len(cut) - 14)
    padded = bytes(cut) + bytes(30)  # the frame is longer, the packet is not
    fragment = bytearray(whole[: 14 + 20 + 8])
    fragment[16:18] = struct.pack("!H", 28)
    fragment[20:22] = b"\x20\x00"
    broken = [bytes(cut), padded, bytes(fragment)]
    assert len(lab.send(broken)) == 3
    guard.add(rule("drop", operations=("SEND",)))
    guard.add(rule("drop", qps=(7, 0)))
    assert len(lab.send(broken)) == 3, "without a BTH there is no operation and no QP"
    guard.add(rule("drop", malformed=True))
    assert not lab.send(broken)
    assert lab.passes(frame("RC_ACKNOWLEDGE", qp=8))
    assert guard.status().malformed[:3] == (6, 2 * sum(map(len, broken)), 3)
    guard.replace([rule("drop", qps="unknown")])
    assert not lab.send(broken), "a split BTH must not lead past the known QPs"
    guard.replace([rule("drop", "10.99.0.1")])
    assert not lab.send(broken)


@pytest.mark.parametrize("vlan", [(), (5,), (5, 6)])
@pytest.mark.parametrize("version", ["roce1", "roce2"])
def test_versions_and_vlans(lab: Lab, guard: Guard, vlan: tuple[int, ...], version: str) -> None:
    guard.add(rule("drop", "fd99::/64", qps=(7,)))
    ours = {"src": "fd99::1", "dst": "fd99::2", "vlan": vlan, "version": version}
    assert not lab.passes(frame(**ours))
    assert lab.passes(frame(**ours, qp=8))


def test_mapped_gid_is_the_ipv4_source(lab: Lab, guard: Guard) -> None:
    guard.add(rule("drop", "::ffff:10.99.0.1"))
    assert str(guard.rules()[0].source) == "10.99.0.1/32"
    gid = {"dst": "::ffff:10.99.0.2", "version": "roce1"}
    assert not lab.passes(frame(src="::ffff:10.99.0.1", **gid))
    assert lab.passes(frame(src="::ffff:10.99.0.3", **gid))
    assert not lab.passes(frame())


def extended(count: int, protocol: int = 17) -> bytes:
    """A packet behind so many IPv6 extension headers."""
    whole = frame(src="fd99::1", dst="fd99::2")
    chain = b"".join(
        bytes([60 if i + 1 < count else protocol, 0, 1, 4, 0, 0, 0, 0]) for i in range(count)
    )
    length = struct.pack("!H", len(whole) - 54 + len(chain))
    return whole[:18] + length + bytes([60]) + whole[21:54] + chain + whole[54:]


def test_extension_headers_do_not_hide(lab: Lab, guard: Guard) -> None:
    guard.add(rule("drop", "fd99::1", operations=("SEND",)))
    for count in (1, 4, 6):
        assert not lab.passes(extended(count)), count
        assert lab.passes(extended(count, protocol=6)), count
    endless = [extended(7), extended(20)]
    assert lab.send(endless) == endless
    guard.add(rule("drop", malformed=True))
    assert not lab.send(endless)
    guard.replace([rule("drop", "fd99::/64", qps="unknown")])
    assert not lab.send(endless)


def test_ipv4_options_do_not_hide(lab: Lab, guard: Guard) -> None:
    whole = frame()
    length = struct.pack("!H", len(whole) - 14 + 40)
    sent = whole[:14] + b"\x4f" + whole[15:16] + length + whole[18:34] + b"\x01" * 40 + whole[34:]
    guard.add(rule("drop", qps=(7,)))
    assert not lab.passes(sent)


def test_what_is_not_roce_passes(lab: Lab, guard: Guard) -> None:
    guard.add(rule("drop"))
    guard.add(rule("drop", malformed=True), at=1)
    other_port = bytearray(frame())
    other_port[36:38] = struct.pack("!H", 4790)
    tcp = bytearray(frame())
    tcp[23] = 6
    later_fragment = bytearray(frame())
    later_fragment[20:22] = b"\x00\x04"
    source_port = bytearray(other_port)
    source_port[34:36] = struct.pack("!H", 4791)
    arp = bytes(6) + bytes(6) + b"\x08\x06" + bytes(28)
    others = [bytes(each) for each in (other_port, tcp, later_fragment, source_port, arp)]
    assert lab.send([*others, *(each[:20] for each in others)]) == [
        *others,
        *(each[:20] for each in others),
    ]
    assert not lab.passes(frame())
    with inside(lab.outer):
        client = socket.socket()
    with inside(lab.inner):
        server = socket.create_server(("10.99.0.2", 22))
    with client, server:
        client.settimeout(60)
        client.connect(("10.99.0.2", 22))  # ARP and TCP, both ways


def test_flood_is_dropped_before_the_stack(lab: Lab, guard: Guard) -> None:
    with inside(lab.inner):
        server = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    with server:
        server.bind(("10.99.0.2", 4791))
        server.settimeout(60)
        guard.add_qps([7])
        guard.add(rule("drop", qps="unknown"))
        # The first frames count packets of their own (ARP for the answer, say).
        lab.send([frame()] * 10)
        assert [server.recv(2048)[5:8] for _ in range(10)] == [b"\x00\x00\x07"] * 10
        before, flood = lab.snmp("Ip"), [frame(qp=qp) for qp in range(1000, 2000)]
        for _ in range(100):
            assert not lab.send(flood)
        udp = lab.snmp("Udp")
        assert lab.snmp("Ip")["InReceives"] == before["InReceives"]
        assert guard.status().rules[0][1].dropped == 100_000
        assert lab.passes(frame())
        assert server.recv(2048)[5:8] == b"\x00\x00\x07"
        assert lab.snmp("Udp")["InDatagrams"] == udp["InDatagrams"] + 1
        assert udp["InErrors"] == udp["NoPorts"] == 0
        assert _ping(lab)


def _ping(lab: Lab) -> bool:
    with inside(lab.outer):
        pinger = socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_ICMP)
    with pinger:
        pinger.settimeout(60)
        pinger.sendto(b"\x08\x00\xf7\xff" + bytes(4), ("10.99.0.2", 0))
        return pinger.recv(200)[20] == 0


def test_replacing_lets_nothing_slip_through(lab: Lab, guard: Guard) -> None:
    """Each ruleset drops the packet, by a rule at another place: no moment is without one."""
    harmless = [rule("allow", qps=(qp,)) for qp in range(100, 140)]
    rulesets = [
        [rule("drop", qps=(7,))],
        [*harmless, rule("drop", "10.99.0.1")],
        [rule("allow", "10.99.0.3"), rule("drop", operations=("SEND",)), *harmless],
    ]
    guard.replace(rulesets[0])
    is_over = threading.Event()
    sent = [0]

    def flood() -> None:
        while not is_over.is_set():
            sent[0] += 1
            lab.sender.send(frame())

    sender = threading.Thread(target=flood)
    sender.start()
    try:
        for i in range(300):
            guard.replace(rulesets[i % 3])
    finally:
        is_over.set()
        sender.join()
    assert sent[0] > 300
    assert frame() not in lab.seen()
    assert guard.status().unmatched.packets == 0
