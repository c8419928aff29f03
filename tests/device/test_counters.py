# SPDX-License-Identifier: BSD-2-Clause
"""Counters with names of rxe's: what happens, and what rxe counts when it does."""

import pytest

from engines import ADDRESSES, Pair, connect, lose, opcode
from livedma._native.wire import encode

# All of rxe's hw_counters, but for those of what is not here.
RXE = [
    "sent_pkts", "rcvd_pkts", "duplicate_request", "out_of_seq_request", "rcvd_rnr_err",
    "send_rnr_err", "rcvd_seq_err", "retry_exceeded_err", "retry_rnr_exceeded_err",
    "completer_retry_err", "rdma_sends", "rdma_recvs",
]  # fmt: skip


def counted(side) -> dict[str, int]:
    """rxe's counters that are not 0; those of the queue pair are the device's."""
    assert side.qp.counters == side.engine.counters
    return {name: side.qp.counters[name] for name in RXE if side.qp.counters[name]}


def is_request(packet: bytes) -> bool:
    return opcode(packet) not in range(0x0D, 0x13)


def sending(**options) -> Pair:
    """a sends five packets to b."""
    pair = connect(**options)
    pair.b.qp.post_recv(1, [pair.b.at(0, 5 * 256)])
    pair.a.qp.post_send(1, "SEND", [pair.a.at(0, 5 * 256)])
    pair.run()
    return pair


def test_nothing_special():
    pair = sending()
    assert counted(pair.a) == {"sent_pkts": 5, "rcvd_pkts": 1, "rdma_sends": 1}
    assert counted(pair.b) == {"sent_pkts": 1, "rcvd_pkts": 5, "rdma_recvs": 1}


@pytest.mark.parametrize("lost", [0, 2])
def test_a_gap(lost):
    """One out_of_seq_request a NAK; rcvd_seq_err only if the NAK acknowledges something."""
    pair = sending(fate=lose(lost, count=is_request))
    again = 5 - lost
    at_a = {"sent_pkts": 5 + again, "rcvd_pkts": 2, "completer_retry_err": 1, "rdma_sends": 1}
    assert counted(pair.a) == {**at_a, **({"rcvd_seq_err": 1} if lost else {})}
    assert counted(pair.b) == {
        "sent_pkts": 2, "rcvd_pkts": 4 + again, "out_of_seq_request": 1, "rdma_recvs": 1,
    }  # fmt: skip
    assert pair.a.qp.counters["packet_seq_err"] == 1
    assert pair.b.qp.counters["out_of_sequence"] == 4 - lost


def test_a_lost_ack():
    pair = sending(fate=lose(0, count=lambda p: not is_request(p)))
    assert pair.a.qp.counters["completer_retry_err"] == pair.a.qp.counters["ack_timeout"] == 1
    assert pair.b.qp.counters["duplicate_request"] == 4  # of a window that silence made small
    assert pair.b.qp.counters["rdma_recvs"] == 1


def test_not_ready_is_no_retry_of_the_completer():
    pair = connect(min_rnr_timer=1, rnr_retry=1)
    pair.a.qp.post_send(1, "SEND", inline=b"x")
    pair.run()
    assert counted(pair.a) == {
        "sent_pkts": 2, "rcvd_pkts": 2, "rcvd_rnr_err": 2, "retry_rnr_exceeded_err": 1,
        "rdma_sends": 1,
    }  # fmt: skip
    assert counted(pair.b) == {"sent_pkts": 2, "rcvd_pkts": 2, "send_rnr_err": 2}


def test_silence():
    pair = connect(fate=lambda packet: [], retry_count=2)
    pair.a.qp.post_send(1, "SEND", inline=b"x")
    pair.a.qp.post_send(2, "SEND", inline=b"x")
    pair.run()
    assert counted(pair.a) == {
        "sent_pkts": 6, "completer_retry_err": 2, "retry_exceeded_err": 1, "rdma_sends": 1,
    }  # fmt: skip
    assert pair.a.qp.counters["req_cqe_error"] == 1  # the other one was flushed


def test_rdma_sends_are_sends_only():
    pair = connect()
    where = {"remote_va": pair.b.va(0), "rkey": pair.b.region.key}
    pair.b.qp.post_recv(1)
    pair.b.qp.post_recv(2, [pair.b.at(0, 8)])
    pair.a.qp.post_send(1, "WRITE_WITH_IMM", inline=b"x", flags=[], **where)
    pair.a.qp.post_send(2, "READ", [pair.a.at(0, 8)], **where)
    pair.a.qp.post_send(3, "SEND_WITH_IMM", inline=b"x", flags=[])
    pair.run()
    assert pair.a.qp.counters["rdma_sends"] == 1
    assert pair.b.qp.counters["rdma_recvs"] == 2


@pytest.mark.parametrize(
    ("fields", "where"),
    [
        ({"dest_qp": 0x999}, "dropped_no_qp"),
        ({"pkey": 0x7FFE}, "dropped_not_peer"),
        ({"broken": True}, "dropped_icrc"),
    ],
)
def test_what_is_dropped_was_not_received(fields, where):
    pair = connect()
    arguments = {"src": ADDRESSES[0], "dst": ADDRESSES[1], "dest_qp": pair.b.qp.number, **fields}
    broken = arguments.pop("broken", False)
    packet = bytearray(encode(0x04, **arguments))
    packet[-1] ^= broken
    pair.b.engine.receive(bytes(packet), 0)
    assert pair.b.engine.counters[where] == 1
    assert pair.b.engine.counters["rcvd_pkts"] == 0
