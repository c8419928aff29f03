# SPDX-License-Identifier: BSD-2-Clause
"""Congestion marks and notifications: which sender is told, how often, and what it does."""

import pytest

from engines import ADDRESSES, Pair, connect, opcode, psn
from livedma._native.wire import decode, encode

CNP, ECT, CE = 0x81, 2, 3
INTERVAL_NS = 50_000


def to_a(pair: Pair, code: int, **fields: object) -> bytes:
    where = {"src": ADDRESSES[1], "dst": ADDRESSES[0], "dest_qp": pair.a.qp.number}
    return encode(code, **where, **fields)  # type: ignore[arg-type]


def notifications(packets: list[bytes]) -> list[bytes]:
    return [p for p in packets if opcode(p) == CNP]


def writing(packets: int, window: int = 256) -> Pair:
    pair = connect(init={"window_packets": window})
    where = {"remote_va": pair.b.va(0), "rkey": pair.b.region.key}
    pair.a.qp.post_send(1, "WRITE", [pair.a.at(0, packets * 256)], **where)
    return pair


@pytest.mark.parametrize("kind", ["RC", "UC"])
def test_a_mark_is_answered_by_a_notification(kind):
    pair = connect(kind, tos=0xB8 | ECT)
    code = 0x04 if kind == "RC" else 0x24
    for tos in (0, ECT, 1):
        pair.a.engine.receive(to_a(pair, code, tos=tos), 0)
    assert notifications(pair.a.engine.transmit(0, 9)) == []
    pair.a.engine.receive(to_a(pair, code, tos=CE), 0)
    (sent,) = notifications(pair.a.engine.transmit(0, 9))
    packet = decode(sent, link=228).to_dict()
    assert packet["opcode_name"] == "CNP" and packet["dest_qp"] == pair.b.qp.number
    assert packet["becn"] and not packet["fecn"] and packet["psn"] == 0
    assert sent[1] == 0xB8  # of the same class, but not to be marked itself
    assert pair.a.qp.counters["np_cnp_sent"] == 1
    assert pair.a.qp.counters["np_ecn_marked_roce_packets"] == 1


def test_notifications_keep_their_distance():
    pair = connect()
    sent = []
    for now_ns in range(0, 4 * INTERVAL_NS, 5_000):
        pair.a.engine.receive(to_a(pair, 0x04, tos=CE), now_ns)
        sent += [now_ns for _ in notifications(pair.a.engine.transmit(now_ns, 9))]
    assert sent == [0, INTERVAL_NS, 2 * INTERVAL_NS, 3 * INTERVAL_NS]
    assert pair.a.qp.counters["np_ecn_marked_roce_packets"] == 40


def test_datagrams_are_not_answered():
    pair = connect("UD")
    deth = {"qkey": 0x11111111, "src_qp": 5}
    pair.a.engine.receive(to_a(pair, 0x64, tos=CE, deth=deth), 0)
    assert pair.a.engine.transmit(0, 9) == []
    assert pair.a.qp.counters["dropped_request"] == 1  # heard, but no Receive was there
    pair.a.engine.receive(to_a(pair, CNP), 0)
    assert pair.a.qp.counters["dropped_not_peer"] == 1


def test_a_stranger_notifies_nobody():
    pair = writing(1000)
    pair.a.engine.transmit(0, 10)
    where = {"src": "10.0.0.66", "dst": ADDRESSES[0], "dest_qp": pair.a.qp.number}
    pair.a.engine.receive(encode(CNP, **where), 0)
    pair.a.engine.receive(to_a(pair, CNP, pkey=0x7FFE), 0)
    assert pair.a.qp.window == 64 and pair.a.qp.counters["rp_cnp_handled"] == 0


def test_a_notification_halves_the_window_once_for_what_is_in_flight():
    pair = writing(1000)
    assert len(pair.a.engine.transmit(0, 1000)) == 64
    for _ in range(3):
        pair.a.engine.receive(to_a(pair, CNP), 0)
    assert pair.a.qp.window == 32
    assert pair.a.qp.counters["rp_cnp_handled"] == 3
    assert pair.a.qp.counters["window_reduced"] == 1
    assert pair.a.engine.transmit(0, 1000) == []  # nothing is sent again, and nothing more
    aeth = {"syndrome": 0x1F, "msn": 0}
    pair.a.engine.receive(to_a(pair, 0x11, psn=63, aeth=aeth), 0)
    pair.a.engine.receive(to_a(pair, CNP), 0)
    assert [psn(p) for p in pair.a.engine.transmit(0, 1000)] == list(range(64, 64 + 16))


def test_a_window_that_shrinks_below_what_asked_for_nothing_does_not_stall():
    pair = writing(1000, 36)
    sent = pair.a.engine.transmit(0, 4)  # of 9: the fifth would ask for an ACK
    assert not any(p[36] & 0x80 for p in sent)
    pair.a.engine.receive(to_a(pair, CNP), 0)
    assert pair.a.qp.window == 4
    (more,) = pair.a.engine.transmit(0, 1000)
    assert psn(more) == 4 and more[36] & 0x80


def test_marked_responses_make_the_requester_ask_for_less():
    pair = connect(fate=lambda p: [(1000, p[:1] + bytes([CE]) + p[2:])])
    data = pair.b.fill(0, 100 * 256)
    where = {"remote_va": pair.b.va(0), "rkey": pair.b.region.key}
    pair.a.qp.post_send(1, "READ", [pair.a.at(0, 100 * 256)], **where)
    pair.run()
    assert pair.a.statuses() == [(1, "SUCCESS")] and pair.a.data(0, 100 * 256) == data
    assert pair.a.qp.window < 64 and pair.a.qp.counters["completer_retry_err"] == 0
    assert pair.b.qp.counters["rp_cnp_handled"] == pair.a.qp.counters["np_cnp_sent"] > 0


def test_marks_cost_no_message():
    """Every packet marked, also the notifications, which are not answered: that would never end."""
    pair = connect(fate=lambda p: [(2 * INTERVAL_NS, p[:1] + bytes([CE]) + p[2:])])
    data = pair.a.fill(0, 50_000)
    pair.b.qp.post_recv(1, [pair.b.at(0, 50_000)])
    pair.a.qp.post_send(1, "SEND", [pair.a.at(0, 50_000)])
    pair.run()
    assert pair.b.data(0, 50_000) == data and pair.a.statuses() == [(1, "SUCCESS")]
    assert pair.a.qp.counters["window_reduced"] > 0
    assert pair.a.qp.counters["rp_cnp_handled"] == pair.b.qp.counters["np_cnp_sent"] > 0


def test_a_queue_pair_in_error_says_nothing():
    pair = connect()
    pair.a.engine.receive(to_a(pair, 0x04, tos=CE), 0)
    pair.a.qp.modify("ERR")
    assert notifications(pair.a.engine.transmit(0, 9)) == []
