# SPDX-License-Identifier: BSD-2-Clause
"""RC, when it goes wrong: each way to fail, and with which status."""

import pytest

from engines import (
    ADDRESSES,
    ATOMIC_ACK,
    NAK_ACCESS,
    NAK_INVALID,
    NAK_SEQUENCE,
    RC_ACK,
    connect,
    opcode,
    psn,
    syndromes,
    to_b,
)
from livedma._native.rdma import ProtectionDomain
from livedma._native.wire import encode


def test_retry_exceeded_flushes_the_rest():
    pair = connect(fate=lambda packet: [], retry_count=3, timeout=10)
    for i in range(3):
        pair.a.qp.post_send(i, "SEND", inline=b"lost", flags=[])
    pair.a.qp.post_recv(9, [])
    pair.run()
    assert pair.a.statuses() == [
        (0, "RETRY_EXC_ERR"), (1, "WR_FLUSH_ERR"), (2, "WR_FLUSH_ERR"), (9, "WR_FLUSH_ERR"),
    ]  # fmt: skip
    assert pair.a.qp.state == "ERR"
    assert len(pair.sent) == 3 * 4
    assert pair.now_ns == (1 + 2 + 4 + 4) * (4096 << 10)  # up to the fourfold
    pair.a.qp.post_send(4, "SEND", inline=b"late")
    pair.a.qp.post_recv(5, [])
    assert pair.a.statuses() == [(4, "WR_FLUSH_ERR"), (5, "WR_FLUSH_ERR")]


def test_rnr_waits_and_recovers():
    pair = connect(min_rnr_timer=14)  # 1.28 ms... until a Receive is there
    pair.a.qp.post_send(1, "SEND", inline=b"patience")
    for _ in range(20):
        pair.step()
    assert pair.a.qp.counters["rcvd_rnr_err"] > 1
    pair.b.qp.post_recv(1, [pair.b.at(0, 10)])
    pair.run()
    assert pair.a.statuses() == [(1, "SUCCESS")] and pair.b.data(0, 8) == b"patience"


@pytest.mark.parametrize("retries", [0, 1, 6])
def test_rnr_exceeded(retries):
    pair = connect(rnr_retry=retries)
    pair.a.qp.post_send(1, "SEND", inline=b"patience")
    pair.run()
    assert pair.a.statuses() == [(1, "RNR_RETRY_EXC_ERR")]
    assert pair.b.qp.counters["send_rnr_err"] == retries + 1
    assert pair.b.qp.state == "RTS"


@pytest.mark.parametrize("operation", ["WRITE", "READ", "FETCH_ADD", "COMPARE_SWAP"])
@pytest.mark.parametrize("wrong", ["key", "before", "behind", "rights", "domain"])
def test_remote_access_error(operation, wrong):
    pair = connect(region_access=ALL_LOCAL if wrong == "rights" else ALL_REMOTE)
    key, va = pair.b.region.key, pair.b.va(0)
    if wrong == "key":
        key ^= 0x100
    elif wrong == "before":
        va -= 8
    elif wrong == "behind":
        va += len(pair.b.memory)
    elif wrong == "domain":
        other = pair.b.engine.register(bytearray(64), ALL_REMOTE, pd=ProtectionDomain())
        key, va = other.key, other.va
    before = bytes(pair.b.memory)
    pair.a.qp.post_send(1, operation, [pair.a.at(0, 8)], remote_va=va, rkey=key)
    pair.a.qp.post_send(2, "SEND", inline=b"")
    pair.b.qp.post_recv(3)
    pair.run()
    assert pair.a.statuses() == [(1, "REM_ACCESS_ERR"), (2, "WR_FLUSH_ERR")]
    assert pair.b.statuses() == [(3, "WR_FLUSH_ERR")]
    assert syndromes(pair) == [NAK_ACCESS]
    assert bytes(pair.b.memory) == before


ALL_LOCAL = ("local_write",)
ALL_REMOTE = ("local_write", "remote_write", "remote_read", "remote_atomic")


def test_an_error_leaves_what_came_before():
    """Responses to a READ go out before the NAK of what follows it."""
    pair = connect()
    data = pair.b.fill(0, 2000)
    where = {"remote_va": pair.b.va(0), "rkey": pair.b.region.key}
    pair.a.qp.post_send(1, "READ", [pair.a.at(0, 2000)], **where)
    pair.a.qp.post_send(2, "WRITE", [pair.a.at(0, 8)], remote_va=0, rkey=1)
    pair.run()
    assert pair.a.statuses() == [(1, "SUCCESS"), (2, "REM_ACCESS_ERR")]
    assert pair.a.data(0, 2000) == data


@pytest.mark.parametrize("operation", ["WRITE", "READ", "FETCH_ADD"])
def test_an_operation_that_is_not_enabled_is_invalid(operation):
    pair = connect(access=())
    where = {"remote_va": pair.b.va(0), "rkey": pair.b.region.key}
    pair.a.qp.post_send(1, operation, [pair.a.at(0, 8)], **where)
    pair.run()
    assert pair.a.statuses() == [(1, "REM_INV_REQ_ERR")]


def test_a_message_too_long_for_its_receive():
    pair = connect()
    pair.b.qp.post_recv(1, [pair.b.at(0, 300)])
    pair.a.qp.post_send(1, "SEND", [pair.a.at(0, 301)])
    pair.run()
    assert pair.b.statuses() == [(1, "LOC_LEN_ERR")]
    assert pair.a.statuses() == [(1, "REM_INV_REQ_ERR")]
    assert pair.b.data(300, 10) == bytes(10)


def test_a_receive_into_memory_that_is_not_ours():
    pair = connect()
    pair.b.qp.post_recv(1, [(pair.b.region.key ^ 1, pair.b.va(0), 300)])
    pair.a.qp.post_send(1, "SEND", [pair.a.at(0, 10)])
    pair.run()
    assert pair.b.statuses() == [(1, "LOC_PROT_ERR")]
    assert pair.a.statuses() == [(1, "REM_OP_ERR")]


def test_local_protection_error_waits_for_its_turn():
    pair = connect()
    pair.b.qp.post_recv(1, [pair.b.at(0, 5000)])
    pair.a.qp.post_send(1, "SEND", [pair.a.at(0, 5000)])
    pair.a.qp.post_send(2, "SEND", [(1, 2, 3)], flags=[])
    pair.a.qp.post_send(3, "SEND", inline=b"never")
    pair.run()
    assert pair.a.statuses() == [(1, "SUCCESS"), (2, "LOC_PROT_ERR"), (3, "WR_FLUSH_ERR")]
    assert pair.b.statuses() == [(1, "SUCCESS")]


def test_a_read_into_memory_that_may_not_be_written():
    pair = connect()
    mine = pair.a.engine.register(bytearray(64), [])
    where = {"remote_va": pair.b.va(0), "rkey": pair.b.region.key}
    pair.a.qp.post_send(1, "READ", [(mine.key, mine.va, 64)], **where)
    pair.run()
    assert pair.a.statuses() == [(1, "LOC_PROT_ERR")]


def test_a_region_that_goes_while_it_is_read():
    pair = connect()
    other = pair.b.engine.register(bytearray(8192), ["remote_read"])
    pair.a.qp.post_send(1, "READ", [pair.a.at(0, 8192)], remote_va=other.va, rkey=other.key)
    for _ in range(3):
        pair.step()
    other.close()
    pair.run()
    assert pair.a.statuses() == [(1, "REM_ACCESS_ERR")]


INVALID = {
    "middle without first": [(0x01, {"payload": bytes(256)})],
    "last without first": [(0x02, {"payload": b"x"})],
    "first in a message": [(0x00, {"payload": bytes(256)}), (0x00, {"payload": bytes(256)})],
    "another operation": [(0x00, {"payload": bytes(256)}), (0x08, {"payload": b"x"})],
    "short first": [(0x00, {"payload": bytes(252)})],
    "long only": [(0x04, {"payload": bytes(260)})],
    "empty last": [(0x00, {"payload": bytes(256)}), (0x02, {})],
    "not supported": [(0x1D, {"payload": bytes(8), "reth": {"va": 0, "rkey": 0, "length": 8}})],
    "too long a read": [(0x0C, {"reth": {"va": 0, "rkey": 0, "length": 0x80000001}})],
    "atomic that is not aligned": [
        (0x14, {"atomic": {"va": 4, "rkey": 0, "swap_add": 1, "compare": 0}})
    ],
    "write longer than it said": [
        (0x0A, {"payload": bytes(8), "reth": {"va": 0x10000, "rkey": 0, "length": 4}})
    ],
}


@pytest.mark.parametrize("name", INVALID)
def test_an_invalid_request_ends_the_connection(name):
    pair = connect()
    pair.b.qp.post_recv(1, [pair.b.at(0, 1000)])
    for number, (code, fields) in enumerate(INVALID[name]):
        assert pair.b.qp.state == "RTS"
        pair.b.engine.receive(to_b(pair, code, psn=number, **fields), 0)
    assert pair.b.qp.state == "ERR"
    assert pair.b.statuses() == [(1, "WR_FLUSH_ERR")]
    (nak,) = pair.b.engine.transmit(0, 10)
    assert (opcode(nak), nak[40], psn(nak)) == (RC_ACK, NAK_INVALID, len(INVALID[name]) - 1)


def test_nak_once_then_silence():
    pair = connect()
    for number in (5, 6, 7):
        pair.b.engine.receive(to_b(pair, 0x04, psn=number), 0)
    (nak,) = pair.b.engine.transmit(0, 10)
    assert (nak[40], psn(nak)) == (NAK_SEQUENCE, 0)
    assert pair.b.qp.counters["out_of_sequence"] == 3


@pytest.mark.parametrize(
    "fields",
    [{"pkey": 0x7FFE}, {"src": "10.0.0.3"}, {"dst": "10.0.0.3"}, {"code": 0x24}, {"code": 0x64}],
)
def test_strangers_are_not_heard(fields):
    pair = connect()
    pair.b.qp.post_recv(1, [pair.b.at(0, 10)])
    arguments = {"src": ADDRESSES[0], "dst": ADDRESSES[1], "dest_qp": pair.b.qp.number}
    code = fields.get("code", 0x04)
    rest = {k: v for k, v in fields.items() if k != "code"}
    pair.b.engine.receive(encode(code, **{**arguments, **rest}), 0)
    assert pair.b.engine.transmit(0) == [] and pair.b.statuses() == []
    assert pair.b.engine.counters["dropped_not_peer"] == 1


def test_a_bad_icrc_is_not_heard():
    pair = connect()
    packet = bytearray(to_b(pair, 0x04))
    packet[-1] ^= 1
    pair.b.engine.receive(bytes(packet), 0)
    assert pair.b.engine.counters["dropped_icrc"] == 1
    assert pair.b.engine.transmit(0) == []


def test_ghosts_acknowledge_nothing():
    pair = connect()
    for number in (0, 1, 0xFFFFFF):
        ack = {"syndrome": 0x1F, "msn": 0}
        packet = encode(
            RC_ACK, src=ADDRESSES[1], dst=ADDRESSES[0], dest_qp=pair.a.qp.number, psn=number,
            aeth=ack,
        )  # fmt: skip
        pair.a.engine.receive(packet, 0)
    assert pair.a.qp.counters["dropped_response"] == 3
    assert pair.a.statuses() == []


def test_an_atomic_that_memory_cannot_do_is_refused_and_not_answered():
    """The address is aligned, the memory behind it is not: found out when it is to be done."""
    pair = connect()
    memory = memoryview(bytearray(64))[1:33]
    region = pair.b.engine.register(memory, ("local_write", "remote_atomic"), va=0x40000)
    pair.a.qp.post_send(
        1, "FETCH_ADD", [pair.a.at(0, 8)], remote_va=region.va, rkey=region.key, swap_add=1
    )
    pair.run()
    assert pair.a.statuses() == [(1, "REM_ACCESS_ERR")]
    assert syndromes(pair)[-1] == NAK_ACCESS and ATOMIC_ACK not in map(opcode, pair.sent)
    assert bytes(memory) == bytes(32)
