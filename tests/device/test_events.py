# SPDX-License-Identifier: BSD-2-Clause
"""Events that no completion tells of."""

import pytest

from engines import ADDRESSES, Side, connect
from livedma._native.rdma import CompletionQueue, Engine, SharedReceives
from livedma._native.wire import encode


def to(side: Side, code: int, **fields: object) -> bytes:
    where = {"src": ADDRESSES[0], "dst": ADDRESSES[1], "dest_qp": side.qp.number}
    return encode(code, **where, **fields)  # type: ignore[arg-type]


def receiving(side: Side, state: str = "RTR") -> None:
    side.qp.modify("INIT", access=["remote_read"])
    side.qp.modify("RTR", mtu=256, src=ADDRESSES[1], dst=ADDRESSES[0], dest_qp=5)
    if state == "RTS":
        side.qp.modify("RTS")


def test_communication_is_established_once():
    side = Side("RC")
    receiving(side)
    side.engine.receive(to(side, 0x04, pkey=0x7FFE), 0)  # a stranger's
    assert side.engine.poll_events() == []
    for number in (0, 1):
        side.engine.receive(to(side, 0x04, psn=number), 0)
    assert side.engine.poll_events() == [("COMM_EST", side.qp.number)]
    side.qp.modify("RESET")
    receiving(side)
    side.engine.receive(to(side, 0x04), 0)
    assert side.engine.poll_events() == [("COMM_EST", side.qp.number)]


@pytest.mark.parametrize("kind", ["RC", "UD"])
def test_nothing_is_established_that_was_or_never_will_be(kind):
    side = Side(kind)
    receiving(side, "RTS" if kind == "RC" else "RTR")
    code = 0x04 if kind == "RC" else 0x64
    side.engine.receive(to(side, code, deth={"qkey": 0, "src_qp": 5}), 0)
    assert side.engine.counters["dropped_not_peer"] == 0
    assert side.engine.poll_events() == []


@pytest.mark.parametrize(
    ("code", "fields", "event"),
    [
        (0x01, {"payload": bytes(256)}, "QP_REQ_ERR"),
        (0x0C, {"reth": {"va": 0, "rkey": 0, "length": 8}}, "QP_ACCESS_ERR"),
    ],
)
def test_a_peer_that_ends_the_connection(code, fields, event):
    side = Side("RC")
    receiving(side, "RTS")
    side.engine.receive(to(side, code, **fields), 0)
    assert side.qp.state == "ERR"
    assert side.engine.poll_events() == [(event, side.qp.number)]


def test_a_region_that_goes_while_it_is_read():
    pair = connect()
    other = pair.b.engine.register(bytearray(8192), ["remote_read"])
    pair.a.qp.post_send(1, "READ", [pair.a.at(0, 8192)], remote_va=other.va, rkey=other.key)
    for _ in range(3):
        pair.step()
    other.close()
    pair.run()
    assert pair.b.engine.poll_events() == [("QP_ACCESS_ERR", pair.b.qp.number)]


def test_errors_that_completions_tell_of_are_no_events():
    pair = connect(fate=lambda packet: [], retry_count=0)
    pair.a.qp.post_send(1, "SEND", inline=b"x")
    pair.run()
    assert pair.a.statuses() == [(1, "RETRY_EXC_ERR")]
    assert pair.a.engine.poll_events() == []


@pytest.mark.parametrize("kind", ["RC", "UC"])
def test_drained(kind):
    pair = connect(kind)
    drained = [("SQ_DRAINED", pair.a.qp.number)]
    pair.b.qp.post_recv(1, [pair.b.at(0, 4000)])
    pair.a.qp.post_send(1, "SEND", [pair.a.at(0, 4000)])
    pair.step()
    pair.a.qp.post_send(2, "SEND", [pair.a.at(0, 4000)])
    pair.a.qp.modify("SQD")
    assert not pair.a.qp.drained and pair.a.engine.poll_events() == []
    pair.run()
    assert pair.a.qp.drained and pair.a.engine.poll_events() == drained
    pair.a.qp.modify("SQD", optional=["access"])
    pair.run()
    assert pair.a.engine.poll_events() == []  # it is drained still, not again
    pair.a.qp.modify("RTS")
    pair.b.qp.post_recv(2, [pair.b.at(0, 4000)])
    pair.run()
    pair.a.qp.modify("SQD")
    assert pair.a.engine.poll_events() == drained  # at once


def test_the_last_shared_receive():
    side = Side("RC")
    shared = SharedReceives(side.engine.domain)
    qp = side.engine.create_qp("RC", side.cq, side.cq, srq=shared)
    for queue_pair in (qp, side.qp):
        queue_pair.modify("INIT")
        queue_pair.modify("ERR")
        queue_pair.modify("ERR")
    assert side.engine.poll_events() == [("QP_LAST_WQE_REACHED", qp.number)]


def test_the_limit_of_shared_receives():
    side = Side("RC")
    shared = SharedReceives(side.engine.domain)
    side.qp = side.engine.create_qp("RC", side.cq, side.cq, srq=shared)
    receiving(side, "RTS")
    for i in range(6):
        shared.post_recv(i)
    shared.set_limit(4)
    seen = []
    for number in range(4):
        side.engine.receive(to(side, 0x04, psn=number), 0)
        seen.append([name for name, _ in side.engine.poll_events()])
    assert seen == [[], [], ["SRQ_LIMIT_REACHED"], []]
    shared.set_limit(9)
    side.engine.receive(to(side, 0x04, psn=4), 0)
    assert side.engine.poll_events() == [("SRQ_LIMIT_REACHED", side.qp.number)]


def test_an_overrun_at_the_receiver_ends_the_connection():
    """The message that nobody will hear of is refused, not acknowledged."""
    pair = connect(init={"completions": 2})
    for i in range(4):
        pair.b.qp.post_recv(i)
        pair.a.qp.post_send(i, "SEND", flags=[])
    pair.run()
    assert pair.a.statuses() == [(2, "REM_OP_ERR"), (3, "WR_FLUSH_ERR")]
    assert pair.b.statuses() == [(0, "SUCCESS"), (1, "SUCCESS")] and pair.b.cq.lost == 2
    assert pair.b.qp.state == "ERR"
    qp = pair.b.qp.number
    assert pair.b.engine.poll_events() == [("CQ_ERR", qp), ("QP_FATAL", qp)]


@pytest.mark.parametrize("kind", ["RC", "UC"])
def test_an_overrun_at_the_sender_ends_all_that_complete_there(kind):
    """Also a second queue pair, when it completes, although there is room again."""
    engine, small = Engine(), CompletionQueue(1)
    qps = [engine.create_qp(kind, small, small) for _ in range(2)]
    for qp in qps:
        for state in ("INIT", "RTR", "RTS"):
            qp.modify(state, dst=ADDRESSES[1])
    ack = {"src": ADDRESSES[1], "dst": ADDRESSES[0], "aeth": {"syndrome": 0x1F, "msn": 0}}
    for i in range(2):
        qps[0].post_send(i, "SEND", inline=b"x")
    engine.transmit(0, 9)
    if kind == "RC":
        engine.receive(encode(0x11, dest_qp=qps[0].number, psn=1, **ack), 0)
        engine.transmit(0, 9)
    assert [qp.state for qp in qps] == ["ERR", "RTS"]
    first = qps[0].number
    assert engine.poll_events() == [("CQ_ERR", first), ("QP_FATAL", first)]
    assert len(small.poll()) == 1
    qps[1].post_send(3, "SEND", inline=b"x")
    engine.transmit(0, 9)
    if kind == "RC":
        engine.receive(encode(0x11, dest_qp=qps[1].number, psn=0, **ack), 0)
        engine.transmit(0, 9)
    assert qps[1].state == "ERR"
    assert engine.poll_events() == [("QP_FATAL", qps[1].number)]


def test_events_of_a_queue_pair_go_with_it():
    side = Side("RC")
    other = side.engine.create_qp("RC", side.cq, side.cq)
    for qp in (side.qp, other):
        qp.modify("INIT")
        qp.modify("RTR")
        qp.modify("RTS")
        qp.modify("SQD")
    number = other.number
    side.qp.close()
    assert side.engine.poll_events() == [("SQ_DRAINED", number)]


def test_events_that_nobody_takes_are_counted():
    engine, cq = Engine(max_qp=1), CompletionQueue()
    qp = engine.create_qp("RC", cq, cq)
    for state in ("INIT", "RTR", "RTS"):
        qp.modify(state)
    for _ in range(200):
        qp.modify("SQD")
        qp.modify("RTS")
    assert len(engine.poll_events()) == 128 and engine.counters["dropped_event"] == 72
