# SPDX-License-Identifier: BSD-2-Clause
"""What a queue pair lets itself be told in each state, and that it heeds it."""

import errno

import pytest

from engines import ADDRESSES, ALL, Side, connect, opcode
from livedma._native.rdma import ATTRIBUTES
from livedma._native.wire import encode

WAY = ["INIT", "RTR", "RTS", "SQD"]
TO_PEER = {"path", "mtu", "dest_qp", "rq_psn"}
RETRIES = {"timeout", "retry_count", "rnr_retry"}
# What ibv_modify_qp(3) lists for each transition, required or optional.
TAKEN = {
    "RC": {
        ("RESET", "INIT"): {"access", "pkey"},
        ("INIT", "INIT"): {"access", "pkey"},
        ("INIT", "RTR"): TO_PEER | {"max_dest_rd_atomic", "min_rnr_timer", "access", "pkey"},
        ("RTR", "RTS"): RETRIES | {"sq_psn", "max_rd_atomic", "access", "min_rnr_timer"},
        ("RTS", "RTS"): {"access", "min_rnr_timer"},
        ("RTS", "SQD"): set(),
        ("SQD", "SQD"): RETRIES | {
            "path", "max_rd_atomic", "max_dest_rd_atomic", "access", "pkey", "min_rnr_timer"
        },
        ("SQD", "RTS"): {"access", "min_rnr_timer"},
    },
    "UC": {
        ("RESET", "INIT"): {"access", "pkey"},
        ("INIT", "INIT"): {"access", "pkey"},
        ("INIT", "RTR"): TO_PEER | {"access", "pkey"},
        ("RTR", "RTS"): {"sq_psn", "access"},
        ("RTS", "RTS"): {"access"},
        ("RTS", "SQD"): set(),
        ("SQD", "SQD"): {"path", "access", "pkey"},
        ("SQD", "RTS"): {"access"},
    },
    "UD": {
        ("RESET", "INIT"): {"pkey", "qkey"},
        ("INIT", "INIT"): {"pkey", "qkey"},
        ("INIT", "RTR"): {"mtu", "pkey", "qkey"},  # a datagram's MTU is the port's: told here
        ("RTR", "RTS"): {"sq_psn", "qkey"},
        ("RTS", "RTS"): {"qkey"},
        ("RTS", "SQD"): set(),
        ("SQD", "SQD"): {"pkey", "qkey"},
        ("SQD", "RTS"): {"qkey"},
    },
}  # fmt: skip


@pytest.mark.parametrize(
    ("kind", "before", "after"), [(kind, *pair) for kind, pairs in TAKEN.items() for pair in pairs]
)
def test_attributes_of_each_transition(kind, before, after):
    for name in ATTRIBUTES:
        qp = Side(kind).qp
        for state in WAY[: WAY.index(before) + 1] if before != "RESET" else []:
            qp.modify(state)
        if name in TAKEN[kind][before, after]:
            qp.modify(after, optional=[name])
            assert qp.state == after
        else:
            with pytest.raises(OSError) as error:
                qp.modify(after, optional=[name])
            assert error.value.errno == errno.EINVAL and qp.state == before, name


@pytest.mark.parametrize(
    "wrong",
    [
        {"timeout": 32}, {"retry_count": 8}, {"rnr_retry": 8}, {"max_rd_atomic": 17},
        {"max_dest_rd_atomic": 17}, {"min_rnr_timer": 32}, {"access": ["remote_invalidate"]},
    ],
)  # fmt: skip
def test_values_are_checked_where_they_are_optional_too(wrong):
    qp = connect().a.qp
    qp.modify("SQD")
    with pytest.raises(OSError):
        qp.modify("SQD", optional=wrong, **wrong)


def test_access_can_be_taken_away():
    pair = connect()
    where = {"remote_va": pair.b.va(0), "rkey": pair.b.region.key}
    pair.a.qp.post_send(1, "WRITE", inline=b"x", **where)
    pair.run()
    pair.b.qp.modify("RTS", optional=["access"], access=["remote_read"])
    pair.a.qp.post_send(2, "READ", [pair.a.at(0, 8)], **where)
    pair.a.qp.post_send(3, "WRITE", inline=b"x", **where)
    pair.run()
    assert [s for _, s in pair.a.statuses()] == ["SUCCESS", "SUCCESS", "REM_INV_REQ_ERR"]


def test_what_is_not_named_stays():
    pair = connect(min_rnr_timer=5)
    pair.b.qp.modify("RTS", optional=["access"], access=ALL, min_rnr_timer=9)
    for state in ("RTS", "SQD", "SQD", "RTS"):
        pair.b.qp.modify(state, min_rnr_timer=9)
    request = {"src": ADDRESSES[0], "dst": ADDRESSES[1], "dest_qp": pair.b.qp.number}
    pair.b.engine.receive(encode(0x04, **request), 0)
    assert [p[40] for p in pair.b.engine.transmit(0, 9)] == [0x20 | 5]
    pair.b.qp.modify("RTS", optional=["min_rnr_timer"], min_rnr_timer=9)
    pair.b.engine.receive(encode(0x04, **request), 0)
    assert [p[40] for p in pair.b.engine.transmit(0, 9)] == [0x20 | 9]


def test_a_drained_queue_pair_takes_other_retries_and_another_path():
    pair = connect(fate=lambda packet: [], timeout=14)
    pair.a.qp.modify("SQD")
    changed = {"timeout": 10, "retry_count": 1}
    pair.a.qp.modify("SQD", optional=[*changed, "path"], dst="10.0.0.9", **changed)
    pair.a.qp.modify("RTS")
    pair.a.qp.post_send(1, "SEND", inline=b"x")
    pair.run()
    assert pair.a.statuses() == [(1, "RETRY_EXC_ERR")]
    assert pair.now_ns == (1 + 2) * (4096 << 10)
    assert {p[16:20] for p in pair.sent} == {bytes([10, 0, 0, 9])}


def test_reads_that_wait_are_not_cut_off():
    pair = connect(max_rd_atomic=2)
    where = {"remote_va": pair.b.va(0), "rkey": pair.b.region.key}
    pair.a.qp.modify("SQD")
    pair.a.qp.post_send(1, "READ", [pair.a.at(0, 8)], **where)
    with pytest.raises(OSError):
        pair.a.qp.modify("SQD", optional=["max_rd_atomic"], max_rd_atomic=0)
    pair.a.qp.modify("SQD", optional=["max_rd_atomic"], max_rd_atomic=1)
    pair.a.qp.modify("RTS")
    pair.a.qp.post_send(2, "READ", [pair.a.at(0, 8)], **where)
    in_a_row = [opcode(p) for p in pair.a.engine.transmit(0, 9)]
    assert in_a_row == [0x0C]


def test_resources_do_not_change_while_responses_wait():
    pair = connect()
    pair.b.qp.modify("SQD")
    reth = {"va": pair.b.va(0), "rkey": pair.b.region.key, "length": 8}
    request = {"src": ADDRESSES[0], "dst": ADDRESSES[1], "dest_qp": pair.b.qp.number}
    pair.b.engine.receive(encode(0x0C, reth=reth, **request), 0)
    with pytest.raises(OSError) as error:
        pair.b.qp.modify("SQD", optional=["max_dest_rd_atomic"], max_dest_rd_atomic=1)
    assert error.value.errno == errno.EBUSY
    assert len(pair.b.engine.transmit(0, 9)) == 1
    pair.b.qp.modify("SQD", optional=["max_dest_rd_atomic"], max_dest_rd_atomic=1)
    for number in (1, 2):  # two at a time are too many now
        pair.b.engine.receive(encode(0x0C, psn=number, reth=reth, **request), 0)
    assert pair.b.qp.state == "ERR"
