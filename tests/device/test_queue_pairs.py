# SPDX-License-Identifier: BSD-2-Clause
"""Queue pairs as such: states, limits, datagrams, sharing, fairness, what is counted."""

import errno
import itertools
import resource

import pytest

from engines import ADDRESSES, ALL, Pair, Side, connect, opcode
from livedma._native.rdma import (
    STATES,
    CompletionQueue,
    Engine,
    ProtectionDomain,
    SharedReceives,
)
from livedma._native.wire import encode

LEGAL = {
    ("RESET", "INIT"), ("INIT", "INIT"), ("INIT", "RTR"), ("RTR", "RTS"), ("RTS", "RTS"),
    ("RTS", "SQD"), ("SQD", "SQD"), ("SQD", "RTS"), ("SQE", "RTS"),
}  # fmt: skip
WAY = {
    "RESET": [], "INIT": ["INIT"], "RTR": ["INIT", "RTR"], "RTS": ["INIT", "RTR", "RTS"],
    "SQD": ["INIT", "RTR", "RTS", "SQD"], "ERR": ["INIT", "ERR"],
}  # fmt: skip
QKEY = 0x11111111


def is_legal(before: str, after: str) -> bool:
    if after == "RESET":
        return True
    return (before, after) in LEGAL or (after == "ERR" and before != "RESET")


@pytest.mark.parametrize(("before", "after"), list(itertools.product(WAY, STATES)))
def test_transitions(before, after):
    qp = Side("RC").qp
    for state in WAY[before]:
        qp.modify(state)
    assert qp.state == before
    if is_legal(before, after):
        qp.modify(after)
        assert qp.state == after
    else:
        with pytest.raises(OSError) as error:
            qp.modify(after)
        assert error.value.errno == errno.EINVAL and qp.state == before


@pytest.mark.parametrize(
    ("state", "attributes"),
    [
        ("RTR", {"mtu": 1000}), ("RTR", {"mtu": 8192}), ("RTR", {"mtu": 128}),
        ("RTR", {"rq_psn": 1 << 24}), ("RTR", {"dest_qp": 1 << 24}), ("RTR", {"min_rnr_timer": 32}),
        ("RTR", {"max_dest_rd_atomic": 17}), ("RTS", {"sq_psn": 1 << 24}), ("RTS", {"timeout": 32}),
        ("RTS", {"retry_count": 8}), ("RTS", {"rnr_retry": 8}), ("RTS", {"max_rd_atomic": 17}),
    ],
)  # fmt: skip
def test_attributes_out_of_range(state, attributes):
    qp = Side("RC").qp
    for before in WAY[state][:-1]:
        qp.modify(before)
    with pytest.raises(OSError):
        qp.modify(state, **attributes)


def test_what_cannot_be_posted():
    side = Side("RC")
    with pytest.raises(OSError):
        side.qp.post_recv(1)  # in RESET
    side.qp.modify("INIT")
    with pytest.raises(OSError):
        side.qp.post_send(1, "SEND")  # before RTS
    pair = connect(init={"max_send": 2, "max_recv": 2, "max_send_sge": 1, "max_inline": 8})
    qp, one = pair.a.qp, pair.a.at(0, 8)
    for operation, arguments in (
        ("SEND", {"sges": [one, one]}),
        ("SEND", {"inline": bytes(9)}),
        ("READ", {"inline": bytes(8)}),
        ("FETCH_ADD", {"sges": [pair.a.at(0, 4)]}),
        ("FETCH_ADD", {"sges": [one], "remote_va": 4}),
        ("WRITE", {"sges": [pair.a.at(0, 0x80000001)]}),
    ):
        with pytest.raises(OSError) as error:
            qp.post_send(1, operation, **arguments)
        assert error.value.errno == errno.EINVAL
    for _ in range(2):
        qp.post_send(1, "SEND")
        qp.post_recv(1)
    for post in (lambda: qp.post_send(1, "SEND"), lambda: qp.post_recv(1)):
        with pytest.raises(OSError) as error:
            post()
        assert error.value.errno == errno.ENOMEM


@pytest.mark.parametrize("kind", ["UC", "UD"])
def test_operations_that_a_transport_lacks(kind):
    pair = connect(kind)
    for operation in ("READ", "FETCH_ADD", "COMPARE_SWAP", "SEND_WITH_INV"):
        with pytest.raises(OSError):
            pair.a.qp.post_send(1, operation, [pair.a.at(0, 8)], src="10.0.0.1", dst="10.0.0.2")


def test_reset_forgets():
    pair = connect()
    pair.a.qp.post_recv(1)
    pair.a.qp.post_send(1, "SEND", inline=b"x")
    pair.step()
    pair.a.qp.modify("RESET")
    assert pair.a.engine.next_timer is None
    pair.run()
    assert pair.a.statuses() == []


def test_a_protection_domain_outlives_what_is_in_it():
    engine, cq, domain = Engine(), CompletionQueue(), ProtectionDomain()
    other = ProtectionDomain()
    inside = [
        engine.create_qp("RC", cq, cq, pd=domain),
        engine.register(bytearray(8), pd=domain),
        engine.create_qp("RC", cq, cq, srq=SharedReceives(domain), pd=other),
    ]
    while inside:
        with pytest.raises(OSError) as error:
            domain.close()
        assert error.value.errno == errno.EBUSY
        inside.pop().close()
    domain.close()
    domain.close()
    for use in (
        lambda: engine.create_qp("RC", cq, cq, pd=domain),
        lambda: engine.register(bytearray(8), pd=domain),
        lambda: SharedReceives(domain),
    ):
        with pytest.raises(ValueError):
            use()


def test_what_failed_to_be_made_does_not_use_a_domain():
    engine, cq, domain = Engine(max_qp=1), CompletionQueue(), ProtectionDomain()
    held = engine.create_qp("RC", cq, cq)
    for fail in (
        lambda: engine.create_qp("RC", cq, cq, pd=domain),
        lambda: engine.register(bytearray(8), ["remote_write"], pd=domain),
        lambda: SharedReceives(domain, 128, 17),
    ):
        with pytest.raises(OSError):
            fail()
    held.close()
    with pytest.raises(OSError):
        engine.create_qp("RC", cq, cq, pd=domain, max_recv=1 << 20)
    domain.close()


def test_keys_are_random_and_checked():
    engine = Engine(max_region=4)
    regions = [engine.register(bytearray(8)) for _ in range(4)]
    assert len({r.key for r in regions}) == 4
    with pytest.raises(OSError):
        engine.register(bytearray(8))
    key = regions[0].key
    regions.pop(0).close()
    assert engine.register(bytearray(8), key=key).key == key
    with pytest.raises(OSError):
        Engine().register(bytearray(8), ["remote_write"])  # not without local_write
    with pytest.raises(OSError):
        Engine().register(bytearray(8), va=2**64 - 4)


def test_uc_write_and_send():
    pair = connect("UC")
    data = pair.a.fill(0, 5000)
    pair.b.qp.post_recv(1, [pair.b.at(50_000, 5000)])
    where = {"remote_va": pair.b.va(0), "rkey": pair.b.region.key}
    pair.a.qp.post_send(1, "WRITE", [pair.a.at(0, 5000)], **where)
    pair.a.qp.post_send(2, "SEND", [pair.a.at(0, 5000)])
    pair.run()
    assert pair.a.statuses() == [(1, "SUCCESS"), (2, "SUCCESS")]
    assert pair.b.data(0, 5000) == data and pair.b.data(50_000, 5000) == data
    assert all(opcode(p) >> 5 == 1 for p in pair.sent)


def test_uc_goes_on_after_what_rc_would_refuse():
    pair = connect("UC")
    pair.a.qp.post_send(1, "WRITE", [pair.a.at(0, 600)], remote_va=1, rkey=2)
    pair.a.qp.post_send(2, "SEND", inline=b"nobody waits")
    pair.run()
    pair.b.qp.post_recv(3, [pair.b.at(0, 10)])
    pair.a.qp.post_send(3, "SEND", inline=b"hello")
    pair.run()
    assert pair.b.statuses() == [(3, "SUCCESS")] and pair.b.data(0, 5) == b"hello"
    assert pair.b.qp.counters["dropped_request"] == 4  # three packets, and the SEND
    assert pair.b.qp.state == "RTS"


def test_a_failed_send_stops_the_send_queue_only():
    pair = connect("UC")
    pair.a.qp.post_recv(1, [pair.a.at(0, 10)])
    pair.a.qp.post_send(1, "SEND", [(1, 2, 3)])
    pair.a.qp.post_send(2, "SEND", inline=b"x")
    pair.run()
    assert pair.a.statuses() == [(1, "LOC_PROT_ERR"), (2, "WR_FLUSH_ERR")]
    assert pair.a.qp.state == "SQE"
    pair.b.qp.post_send(1, "SEND", inline=b"heard")
    pair.run()
    assert pair.a.statuses() == [(1, "SUCCESS")] and pair.a.data(0, 5) == b"heard"
    pair.a.qp.modify("RTS")
    pair.b.qp.post_recv(1, [pair.b.at(0, 10)])
    pair.a.qp.post_send(3, "SEND", inline=b"again")
    pair.run()
    assert pair.a.statuses() == [(3, "SUCCESS")] and pair.b.data(0, 5) == b"again"


def datagram(pair: Pair, **fields: object) -> dict[str, object]:
    where = {
        "src": ADDRESSES[0], "dst": ADDRESSES[1], "remote_qp": pair.b.qp.number,
        "remote_qkey": QKEY,
    }  # fmt: skip
    return {**where, **fields}


@pytest.mark.parametrize(
    ("kind", "addresses"), [("UD", ADDRESSES), ("GSI", ADDRESSES), ("UD", ("fd00::1", "fd00::2"))]
)
def test_datagrams(kind, addresses):
    pair = connect(kind, mtu=1024)
    data = pair.a.fill(0, 1024)
    pair.b.qp.post_recv(1, [pair.b.at(0, 2000)])
    to = datagram(pair, src=addresses[0], dst=addresses[1])
    if kind == "GSI":
        assert pair.b.qp.number == 1
        to["remote_qkey"] = 0x80010000
    pair.a.qp.post_send(1, "SEND_WITH_IMM", [pair.a.at(0, 1024)], imm=3, **to)
    pair.run()
    (sent,), (received,) = pair.completions()
    assert sent.status == "SUCCESS"
    assert (received.length, received.imm, received.src_qp) == (1064, 3, pair.a.qp.number)
    assert pair.b.data(40, 1024) == data
    header = 40 if ":" in addresses[0] else 20
    assert pair.b.data(40 - header, header) == pair.sent[0][:header]


def test_datagrams_that_are_dropped():
    pair = connect("UD")
    pair.a.qp.post_send(1, "SEND", inline=b"no Receive", **datagram(pair))
    pair.run()
    pair.b.qp.post_recv(1, [pair.b.at(0, 45)])
    pair.a.qp.post_send(2, "SEND", inline=b"wrong key", **datagram(pair, remote_qkey=5))
    pair.a.qp.post_send(3, "SEND", inline=b"too long", **datagram(pair))
    pair.a.qp.post_send(4, "SEND", inline=b"fits", **datagram(pair))
    pair.run()
    assert pair.b.statuses() == [(1, "SUCCESS")] and pair.b.data(40, 4) == b"fits"
    assert [s for _, s in pair.a.statuses()] == ["SUCCESS"] * 4
    assert pair.b.qp.counters["dropped_not_peer"] == 1
    assert pair.b.qp.counters["dropped_request"] == 2
    with pytest.raises(OSError):
        pair.a.qp.post_send(5, "SEND", [pair.a.at(0, 257)], **datagram(pair))


def test_one_gsi_only():
    engine, cq = Engine(), CompletionQueue()
    qp = engine.create_qp("GSI", cq, cq)
    with pytest.raises(OSError):
        engine.create_qp("GSI", cq, cq)
    qp.close()
    assert engine.create_qp("GSI", cq, cq).number == 1


def test_shared_receives():
    pair = connect()
    b = pair.b
    shared = SharedReceives(b.engine.domain)
    number = b.qp.number
    b.qp.close()
    b.qp = b.engine.create_qp("RC", b.cq, b.cq, srq=shared)
    b.qp.modify("INIT")
    b.qp.modify("RTR", mtu=256, src=ADDRESSES[1], dst=ADDRESSES[0], dest_qp=pair.a.qp.number)
    assert b.qp.number != number  # late packets find nobody
    with pytest.raises(OSError):
        b.qp.post_recv(1)
    shared.post_recv(5, [b.at(0, 100)])
    shared.post_recv(6, [b.at(100, 100)])
    where = {"src": ADDRESSES[0], "dst": ADDRESSES[1], "dest_qp": b.qp.number}
    b.engine.receive(encode(0x04, payload=b"shared", **where), 0)
    b.qp.modify("ERR")
    assert b.statuses() == [(5, "SUCCESS")]  # the other one is still there for others
    assert b.data(0, 6) == b"shared"


def test_turns():
    """Queue pairs with much to send get equal shares, in bursts."""
    a, b = Engine(window_packets=10_000, burst_packets=4), Engine(burst_packets=4)
    cq = CompletionQueue(4096)
    region = a.register(bytearray(1 << 20))
    qps = []
    for _ in range(8):
        qp, peer = a.create_qp("RC", cq, cq), b.create_qp("RC", cq, cq)
        qp.modify("INIT")
        qp.modify("RTR", mtu=256, dest_qp=peer.number)
        qp.modify("RTS")
        qp.post_send(1, "WRITE", [(region.key, region.va, 1 << 20)])
        qps.append((qp, peer))
    a.transmit(0, 8 * 100)
    assert {qp.counters["sent_pkts"] for qp, _ in qps} == {100}


def test_counters_of_queue_pair_and_device_agree():
    pair = connect(region_access=ALL)
    pair.b.qp.post_recv(1, [pair.b.at(0, 1000)])
    pair.a.qp.post_send(1, "SEND", [pair.a.at(0, 1000)])
    pair.run()
    qp, device = pair.a.qp.counters, pair.a.engine.counters
    assert qp == device
    assert (qp["sent_pkts"], qp["rcvd_pkts"], qp["sent_bytes"], qp["rdma_sends"]) == (4, 1, 1000, 1)
    assert pair.b.qp.counters["rdma_recvs"] == 1


def test_closing_is_final_and_idempotent():
    pair = connect()
    pair.a.qp.close()
    pair.a.qp.close()
    pair.a.region.close()
    pair.a.region.close()
    with pytest.raises(ValueError):
        pair.a.qp.post_recv(1)


def test_an_idle_connection_is_small():
    """With 64 sends and 64 Receives of 4 pieces each: under 16 KiB."""

    def resident() -> int:
        with open("/proc/self/statm") as file:
            return int(file.read().split()[1]) * resource.getpagesize()

    engine, cq = Engine(max_qp=4096), CompletionQueue()
    warm = [engine.create_qp("RC", cq, cq) for _ in range(100)]
    before = resident()
    qps = [engine.create_qp("RC", cq, cq) for _ in range(1000)]
    for qp in qps:
        qp.modify("INIT")
        qp.modify("RTR")
        qp.modify("RTS")
    assert (resident() - before) / len(qps) < 16 * 1024
    assert len(warm) == 100


def test_lost_completions_are_counted():
    engine, cq = Engine(), CompletionQueue(2)
    qp = engine.create_qp("RC", cq, cq)
    qp.modify("INIT")
    for i in range(5):
        qp.post_recv(i)
    qp.modify("ERR")
    assert [c.wr_id for c in cq.poll()] == [0, 1]
    assert cq.lost == 3


def test_numbers_stay_in_their_range_and_start_where_told() -> None:
    numbers = {"first_qp": 0x30000, "last_qp": 0x30004, "next_qp": 0x30003}
    engine, cq = Engine(max_qp=8, **numbers), CompletionQueue()
    qps = [engine.create_qp("RC", cq, cq) for _ in range(5)]
    assert [qp.number & 7 for qp in qps] == [3, 4, 0, 1, 2]
    assert {qp.number >> 3 for qp in qps} == {0x30000 >> 3}
    with pytest.raises(OSError, match="busy"):
        engine.create_qp("RC", cq, cq)
    assert engine.create_qp("GSI", cq, cq).number == 1  # which is everybody's


@pytest.mark.parametrize(
    ("wanted", "expected"),
    [
        ({"first_qp": 1}, 16),  # IBA 9.2: the first have meanings of their own
        ({"next_qp": 0xFFFFFF}, 16),  # multicast
        ({"first_qp": 0x10000, "last_qp": 0x1FFFF, "next_qp": 5}, 0x10000),
    ],
)
def test_numbers_that_nobody_may_have(wanted: dict[str, int], expected: int) -> None:
    engine, cq = Engine(**wanted), CompletionQueue()
    assert engine.create_qp("RC", cq, cq).number == expected
