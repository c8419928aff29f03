# SPDX-License-Identifier: BSD-2-Clause
"""The congestion window: how much is in flight, and when ACKs are asked for."""

import pytest

from engines import ADDRESSES, Pair, connect, lose, opcode, psn
from livedma._native.wire import encode

ACK, NAK_SEQUENCE, RNR_NAK = 0x1F, 0x60, 0x21


def writing(packets: int, window: int = 256, **attributes: object) -> Pair:
    """a writes that many packets to b, and nothing is delivered."""
    pair = connect(init={"window_packets": window}, **attributes)  # type: ignore[arg-type]
    where = {"remote_va": pair.b.va(0), "rkey": pair.b.region.key}
    pair.a.qp.post_send(1, "WRITE", [pair.a.at(0, packets * 256)], **where)
    return pair


def answer(pair: Pair, number: int, syndrome: int = ACK) -> None:
    to_a = {"src": ADDRESSES[1], "dst": ADDRESSES[0], "dest_qp": pair.a.qp.number}
    aeth = {"syndrome": syndrome, "msn": 0}
    pair.a.engine.receive(encode(0x11, psn=number, aeth=aeth, **to_a), 0)


def burst(pair: Pair, now_ns: int = 0) -> list[bytes]:
    """All that may go now."""
    return pair.a.engine.transmit(now_ns, 10_000)


def asks(packet: bytes) -> bool:
    return bool(packet[36] & 0x80)


@pytest.mark.parametrize(("limit", "start"), [(256, 64), (40, 10), (20, 8), (8, 8), (5, 5), (1, 1)])
def test_starts_with_a_quarter(limit, start):
    pair = writing(300, limit)
    assert len(burst(pair)) == pair.a.qp.window == start


def test_doubles_with_each_window_up_to_its_limit():
    pair = writing(1000, 100)
    sizes = []
    for _ in range(4):
        sent = burst(pair)
        sizes.append(pair.a.qp.window)
        answer(pair, psn(sent[-1]))
    assert sizes == [25, 50, 100, 100]


def test_a_window_that_is_not_used_does_not_grow():
    pair = connect()
    for i in range(200):
        pair.b.qp.post_recv(i)
        pair.a.qp.post_send(i, "SEND", flags=[])
        pair.run()
    assert pair.a.qp.window == 64


def test_a_sequence_error_halves_once_then_a_window_adds_one():
    pair = writing(1000)
    burst(pair)
    answer(pair, 10, NAK_SEQUENCE)  # 0 to 9 arrived: 10 more
    assert pair.a.qp.window == (64 + 10) // 2
    assert [psn(p) for p in burst(pair)] == list(range(10, 10 + 37))
    answer(pair, 20, NAK_SEQUENCE)  # was in flight then
    assert pair.a.qp.window == 37
    assert pair.a.qp.counters["window_reduced"] == 1
    burst(pair)
    answer(pair, 20 + 36)
    assert pair.a.qp.window == 38
    burst(pair)
    answer(pair, 80, NAK_SEQUENCE)
    assert pair.a.qp.window == 19
    assert pair.a.qp.counters["window_reduced"] == 2


def test_a_gap_in_responses_halves():
    pair = connect(fate=lose(5, count=lambda p: 0x0D <= opcode(p) <= 0x10))
    where = {"remote_va": pair.b.va(0), "rkey": pair.b.region.key}
    pair.a.qp.post_send(1, "READ", [pair.a.at(0, 20 * 256)], **where)
    pair.run()
    assert pair.a.statuses() == [(1, "SUCCESS")]
    assert pair.a.qp.window == 32 and pair.a.qp.counters["window_reduced"] == 1


def test_silence_leaves_the_minimum_and_the_way_back_is_fast():
    pair = writing(1000)
    burst(pair)
    now_ns = pair.a.engine.next_timer
    assert now_ns is not None
    sizes = []
    for _ in range(6):
        sent = burst(pair, now_ns)
        sizes.append(len(sent))
        answer(pair, psn(sent[-1]))
    assert sizes == [4, 8, 16, 32, 33, 34]  # doubling up to half of what was too much
    assert pair.a.qp.counters["window_reduced"] == 1


def test_a_receiver_that_is_not_ready_is_no_congestion():
    pair = connect(rnr_retry=7, min_rnr_timer=1)
    pair.a.qp.post_send(1, "SEND", [pair.a.at(0, 20 * 256)])
    burst(pair)
    answer(pair, 0, RNR_NAK)
    assert pair.a.qp.counters["rcvd_rnr_err"] == 1
    assert pair.a.qp.window == 64 and pair.a.qp.counters["window_reduced"] == 0


@pytest.mark.parametrize(
    ("limit", "interval"), [(256, 16), (40, 5), (5, 3), (3, 2), (2, 1), (1, 1)]
)
def test_acks_are_asked_for_in_time(limit, interval):
    """Before half of the window is out, every 16 packets, and at the end."""
    pair = writing(60, limit)
    sent = burst(pair)
    asked = [psn(p) for p in sent if asks(p)]
    assert asked == [*range(interval - 1, len(sent), interval), *([59] if len(sent) == 60 else [])]
    assert asked


@pytest.mark.parametrize("packets", [5, 16, 33])
def test_the_last_packet_asks(packets):
    assert asks(burst(writing(packets))[-1])


def test_one_that_was_reset_starts_anew():
    pair = writing(1000)
    burst(pair)
    answer(pair, 10, NAK_SEQUENCE)
    pair.a.qp.modify("RESET")
    pair.a.qp.modify("INIT")
    pair.a.qp.modify("RTR", mtu=256)
    pair.a.qp.modify("RTS", sq_psn=77)
    assert pair.a.qp.window == 64
    pair.a.qp.post_send(2, "SEND", [pair.a.at(0, 100 * 256)])
    assert [psn(p) for p in burst(pair) if asks(p)] == [92, 108, 124, 140]
