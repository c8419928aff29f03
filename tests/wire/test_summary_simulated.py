# SPDX-License-Identifier: BSD-2-Clause
"""The summary against a simulated connection, of which the truth is known."""

from __future__ import annotations

import random
import struct

import pytest
import roce_frames as roce
from hypothesis import given, settings
from hypothesis import strategies as st
from lossy_wire import MTU, Connection, Place
from roce_frames import Capture, Packet

from livedma._native.flow import FlowTable
from livedma._native.wire import Batch
from livedma.wire.summary import summarize

messages = st.lists(
    st.tuples(st.sampled_from(["SEND", "WRITE", "READ", "FETCH_ADD"]), st.integers(1, 5)),
    min_size=1,
    max_size=12,
)
drops = st.sets(st.integers(1, 80), max_size=6)
psns = st.one_of(st.integers(0, 0xFFFFFF), st.integers(0xFFFFF0, 0xFFFFFF))


def expected_messages(connection: Connection) -> dict[str, int]:
    counts: dict[str, int] = {}
    for operation, _ in connection.messages:
        counts[operation] = counts.get(operation, 0) + 1
    return counts


def check(found: dict, truth: Connection) -> None:
    assert found["lost"] == truth.lost
    assert found["retransmitted"] == truth.retransmitted
    assert found["messages"] == expected_messages(truth)
    assert found["naks"] == ({"PSN sequence error": truth.naks} if truth.naks else {})
    assert found["rnr_naks"] == truth.rnr_naks
    assert found["duplicates"] <= truth.received_again + truth.lost
    payload = sum(n * MTU for operation, n in truth.messages if operation != "FETCH_ADD")
    assert sum(found["payload_bytes"].values()) == payload
    assert found["not_captured"] == 0


@settings(max_examples=500, deadline=None)
@given(messages, drops, st.sampled_from(Place), psns)
def test_losses_are_those_of_the_wire(messages, drops, place, first_psn):
    capture = Capture()
    truth = Connection(messages, drops, place, capture, first_psn)
    (found,) = capture.connections()
    check(found, truth)
    if not truth.lost and not truth.retransmitted:
        assert found["verdict"] == "nothing lost"


@settings(max_examples=400, deadline=None)
@given(messages, drops, psns, st.integers(1, 3))
def test_receiver_not_ready_is_no_loss(messages, drops, first_psn, not_ready):
    capture = Capture()
    truth = Connection(messages, drops, Place.MIDDLE, capture, first_psn, not_ready=not_ready)
    (found,) = capture.connections()
    check(found, truth)


@settings(max_examples=100, deadline=None)
@given(
    messages,
    messages,
    drops,
    drops,
    st.integers(0, 1 << 22),
    st.sampled_from([Place.MIDDLE, Place.REQUESTER]),
)
def test_two_connections_between_the_same_hosts(one, two, drops_one, drops_two, psn, place):
    capture = Capture()
    first = Connection(one, drops_one, place, capture, psn, qps=(0x11, 0x22))
    # Half a microsecond apart, so that their packets alternate.
    second = Connection(
        two, drops_two, place, capture, psn + (1 << 23), qps=(0x33, 0x44), start_ns=1_000_000_500
    )
    found = {c["b_qp"]: c for c in capture.connections()}
    assert {c["a_qp"]: c["b_qp"] for c in found.values()} == {0x11: 0x22, 0x33: 0x44}
    check(found[0x22], first)
    check(found[0x44], second)


def stream(*packets: Packet, step_ns: int = 100_000) -> list[dict]:
    capture = Capture()
    for i, packet in enumerate(packets):
        capture.add(1_000_000_000 + i * step_ns, packet)
    return capture.connections()


def write(psn: int, **more: int) -> Packet:
    return Packet(1, 2, 0x22, psn, roce.WRITE_ONLY, 64, dma_length=64, ack_req=True, **more)


def ack(psn: int, syndrome: int = roce.ACK_OK, **more: int) -> Packet:
    return Packet(2, 1, 0x11, psn, roce.ACK, syndrome=syndrome, **more)


def test_one_direction_is_reported_as_such():
    (found,) = stream(write(5), write(6), write(7))
    assert (found["a"], found["b"]) == ("10.0.0.1", "10.0.0.2 QP 0x22")
    assert found["verdict"] == "nothing lost; one direction only in the capture"
    assert found["ack_rtt_us"] == {"p50": None, "p99": None}


def test_answers_alone_are_the_middle_of_a_connection():
    (found,) = stream(ack(5), ack(6))
    assert found["packets"] == 2
    assert found["verdict"].startswith("middle of a connection; ")


def test_what_is_acknowledged_but_not_captured_was_missed_by_the_capture():
    (found,) = stream(write(1), ack(1), write(3), ack(3))
    assert found["lost"] == 0
    assert found["not_captured"] == 1
    assert found["verdict"] == "the capture missed 1 packet that arrived"


def test_psn_gap_at_the_capture_and_its_nak_are_one_loss():
    nak = ack(1, roce.NAK_SEQUENCE)
    (found,) = stream(write(0), ack(0), write(2), nak, write(1), write(2), ack(1), ack(2))
    assert found["lost_by_operation"] == {"WRITE": 1}
    assert found["verdict"] == "1 WRITE packet lost, recovered by NAK"


def test_a_repetition_that_crosses_its_answer_is_no_loss():
    fine = [packet for psn in range(8) for packet in (write(psn), ack(psn))]
    (found,) = stream(*fine, write(8), ack(8), write(8), ack(8), write(9), ack(9))
    assert (found["lost"], found["retransmitted"], found["duplicates"]) == (0, 1, 1)
    assert "while the answer was on its way" in found["verdict"]


def test_fatal_nak_ends_the_connection():
    (found,) = stream(write(0), ack(0, roce.NAK_ACCESS))
    assert found["naks"] == {"remote access error": 1}
    assert found["verdict"] == "remote access error: the connection was broken off"


def test_rtt_is_that_of_the_first_answer_within_two_percent():
    capture = Capture()
    for i in range(100):
        capture.add(i * 1_000_000, write(i))
        capture.add(i * 1_000_000 + (50_000 if i < 98 else 700_000), ack(i))
    (found,) = capture.connections()
    assert found["ack_rtt_us"]["p50"] == pytest.approx(50, rel=0.016)
    assert found["ack_rtt_us"]["p99"] == pytest.approx(700, rel=0.016)


def test_unreliable_connection_loses_for_good():
    def uc(psn: int, opcode: int) -> Packet:
        return Packet(1, 2, 0x22, psn, opcode, 1024)

    first, middle, last = roce.UC_SEND_FIRST, roce.UC_SEND_MIDDLE, roce.UC_SEND_LAST
    (found,) = stream(uc(0xFFFFFF, first), uc(0, middle), uc(3, last), uc(4, first), uc(5, last))
    assert found["lost"] == 2
    assert found["verdict"] == "2 packets lost for good: UC repeats nothing"
    (late,) = stream(uc(0, first), uc(2, last), uc(1, middle))
    assert late["lost"] == 0


def test_copies_of_the_other_direction_are_not_analysed():
    packets = [p for i in range(4) for p in (write(i, direction=2), write(i, direction=1))]
    (found,) = stream(*packets)
    assert (found["packets"], found["copies"], found["retransmitted"]) == (4, 4, 0)


def test_wrong_icrc_is_counted_and_else_ignored():
    table, batch = FlowTable(), Batch(8, 4096)
    for psn in (0, 1, 2):
        frame, length = write(psn).frame()
        if psn == 1:
            frame = frame.ljust(length, b"\xaa")
        assert batch.add(roce.ETHERNET, psn * 1000, 0, frame, length)
    table.add(batch)
    summary = summarize(table)
    (found,) = summary["connections"]
    assert summary["icrc_errors"] == found["icrc_errors"] == 1
    assert found["messages"] == {"WRITE": 2}


def test_time_that_goes_backwards_and_reused_qps_do_no_harm():
    table, batch = FlowTable(), Batch(64, 1 << 14)
    for i, packet in enumerate(
        [write(1), ack(1), write(2), ack(2), write(9_000_000), ack(9_000_000)]
    ):
        frame, length = packet.frame()
        assert batch.add(roce.ETHERNET, 10_000_000 - i * 1000, 0, frame, length)
    table.add(batch)
    (found,) = summarize(table)["connections"]
    assert (found["lost"], found["retransmitted"]) == (0, 0)
    assert found["ack_rtt_us"]["p50"] is None


@settings(max_examples=50, deadline=None)
@given(st.integers(0, 1 << 32))
def test_hostile_packets_change_nothing_but_counters(seed):
    rng = random.Random(seed)
    table, batch = FlowTable(), Batch(2048, 1 << 20)
    qps = [rng.randrange(1 << 24) for _ in range(3)] + [1]
    for _ in range(1500):
        packet = Packet(
            *(rng.choice((1, 2)), rng.choice((1, 2)), rng.choice(qps)),
            psn=rng.choice((0, 0xFFFFFF, rng.randrange(1 << 24), rng.randrange(40))),
            opcode=rng.choice((rng.randrange(256), rng.randrange(32))),
            payload=rng.choice((0, 256, 1024, 4096)),
            dma_length=rng.choice((0, 1, 4096, 0xFFFFFFFF)),
            syndrome=rng.randrange(256),
            ack_req=rng.random() < 0.5,
        )
        frame, length = packet.frame()
        frame = frame[: rng.choice((len(frame), rng.randrange(len(frame) + 1)))]
        assert batch.add(roce.ETHERNET, rng.randrange(1 << 63), 0, frame, length)
    table.add(batch)
    summary = summarize(table, batch.other)
    assert summary["packets"] + summary["not_roce"] == 1500
    for connection in summary["connections"]:
        assert all(0 <= n <= 1 << 40 for n in connection["lost_by_operation"].values()), connection


def test_memory_is_bounded():
    table, batch = FlowTable(), Batch(4096, 1 << 20)
    frame, length = write(0).frame()
    at = 14 + 28 + 5  # the QP's three bytes
    for qp in range(40_000):
        odd = frame[:at] + struct.pack("!I", qp)[1:] + frame[at + 3 :]
        if not batch.add(roce.ETHERNET, qp, 0, odd, length):
            table.add(batch)
            batch.reset()
            assert batch.add(roce.ETHERNET, qp, 0, odd, length)
    table.add(batch)
    assert len(table.flows()) == 32768
    assert table.totals()["not_tracked"] == 40_000 - 32768
