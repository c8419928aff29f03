# SPDX-License-Identifier: BSD-2-Clause
"""RC, rule by rule: each test provokes one."""

import mmap

import pytest

from engines import (
    ADDRESSES,
    NAK_SEQUENCE,
    RC_ACK,
    READ_REQUEST,
    connect,
    is_request,
    lose,
    opcode,
    psn,
    syndromes,
    to_b,
)
from livedma._native.wire import encode


@pytest.mark.parametrize("mtu", [256, 512, 1024, 2048, 4096])
@pytest.mark.parametrize("length", [0, 1, 255, 256, 257, 4096, 4097, 20_001])
def test_send(mtu, length):
    pair = connect(mtu=mtu)
    data = pair.a.fill(0, length)
    pair.b.qp.post_recv(7, [pair.b.at(100, 30_000)])
    pair.a.qp.post_send(3, "SEND", [pair.a.at(0, length)])
    pair.run()
    (sent,), (received,) = pair.completions()
    assert (sent.wr_id, sent.status, sent.operation) == (3, "SUCCESS", "SEND")
    assert (received.wr_id, received.status, received.length) == (7, "SUCCESS", length)
    assert pair.b.data(100, length) == data
    assert pair.b.data(100 + length, 64) == bytes(64)


def test_over_ipv6():
    pair = connect(addresses=("fd00::1", "fd00::2"))
    data = pair.a.fill(0, 1000)
    pair.b.qp.post_recv(1, [pair.b.at(0, 1000)])
    pair.a.qp.post_send(1, "SEND", [pair.a.at(0, 1000)])
    pair.run()
    assert pair.b.data(0, 1000) == data
    assert pair.a.statuses() == [(1, "SUCCESS")]


def test_immediate_and_inline_and_solicited():
    pair = connect()
    pair.b.qp.post_recv(1, [pair.b.at(0, 100)])
    pair.b.qp.post_recv(2, [pair.b.at(100, 100)])
    pair.b.cq.arm(solicited_only=True)
    pair.a.qp.post_send(1, "SEND", inline=b"first")
    pair.run()
    assert not pair.b.cq.take_event()
    pair.a.qp.post_send(2, "SEND_WITH_IMM", inline=b"second", imm=77, flags=["solicited"])
    pair.run()
    assert pair.b.cq.take_event()
    assert not pair.b.cq.take_event()
    sent, received = pair.completions()
    assert [c.wr_id for c in sent] == [1]  # the other was not signaled
    assert [(c.imm, c.solicited, c.length) for c in received] == [(None, False, 5), (77, True, 6)]
    assert pair.b.data(0, 5) == b"first" and pair.b.data(100, 6) == b"second"


def test_scatter_and_gather():
    pair = connect()
    data = pair.a.fill(0, 3000)
    pieces = [pair.a.at(0, 300), pair.a.at(300, 1), pair.a.at(301, 0), pair.a.at(301, 2699)]
    pair.b.qp.post_recv(1, [pair.b.at(0, 511), pair.b.at(511, 2), pair.b.at(10_000, 5000)])
    pair.a.qp.post_send(1, "SEND", pieces)
    pair.run()
    assert pair.b.data(0, 513) + pair.b.data(10_000, 2487) == data


@pytest.mark.parametrize("length", [0, 1, 256, 1000])
def test_write(length):
    pair = connect()
    data = pair.a.fill(0, length)
    pair.a.qp.post_send(
        1, "WRITE", [pair.a.at(0, length)], remote_va=pair.b.va(5), rkey=pair.b.region.key
    )
    pair.run()
    assert pair.completions()[1] == []
    assert pair.b.data(0, length + 10) == bytes(5) + data + bytes(5)


def test_write_with_immediate_takes_a_receive():
    pair = connect()
    data = pair.a.fill(0, 700)
    pair.b.qp.post_recv(9)
    where = {"remote_va": pair.b.va(0), "rkey": pair.b.region.key}
    pair.a.qp.post_send(1, "WRITE_WITH_IMM", [pair.a.at(0, 700)], imm=5, **where)
    pair.run()
    (received,) = pair.completions()[1]
    assert (received.operation, received.imm, received.length) == ("RECV_WRITE_WITH_IMM", 5, 700)
    assert pair.b.data(0, 700) == data


@pytest.mark.parametrize("length", [0, 1, 256, 257, 9999])
def test_read(length):
    pair = connect()
    data = pair.b.fill(50, length)
    where = {"remote_va": pair.b.va(50), "rkey": pair.b.region.key}
    pair.a.qp.post_send(1, "READ", [pair.a.at(0, length)], **where)
    pair.run()
    assert pair.a.statuses() == [(1, "SUCCESS")]
    assert pair.a.data(0, length + 1) == data + b"\0"


def test_a_read_resumes_in_the_middle():
    responses = lose(7, count=lambda p: 0x0D <= opcode(p) <= 0x10)
    pair = connect(fate=responses)
    data = pair.b.fill(0, 20 * 256)
    where = {"remote_va": pair.b.va(0), "rkey": pair.b.region.key}
    pair.a.qp.post_send(1, "READ", [pair.a.at(0, 20 * 256)], **where)
    pair.run()
    assert pair.a.data(0, 20 * 256) == data
    assert pair.a.statuses() == [(1, "SUCCESS")]
    assert [psn(p) for p in pair.sent if opcode(p) == READ_REQUEST] == [0, 7]


def read_requests(packets):
    """(PSN, bytes asked for) of each."""
    found = [p for p in packets if opcode(p) == READ_REQUEST]
    return [(psn(p), int.from_bytes(p[52:56], "big")) for p in found]


@pytest.mark.parametrize("length", [8 * 256, 8 * 256 + 1, 20 * 256 - 1, 20 * 256])
def test_a_long_read_is_several_requests(length):
    pair = connect(psns=(0xFFFFFA, 0), init={"read_packets": 8})
    data = pair.b.fill(0, length)
    where = {"remote_va": pair.b.va(0), "rkey": pair.b.region.key}
    pair.a.qp.post_send(1, "READ", [pair.a.at(0, length)], **where)
    pair.run()
    assert pair.a.data(0, length) == data
    assert pair.a.statuses() == [(1, "SUCCESS")]
    assert read_requests(pair.sent) == [
        ((0xFFFFFA + at // 256) & 0xFFFFFF, min(length - at, 8 * 256))
        for at in range(0, length, 8 * 256)
    ]


def test_parts_of_a_read_are_asked_for_again_as_they_were_cut():
    """Whichever response is lost: each repetition lies within one of the requests before."""
    for lost in range(20):
        responses = lose(lost, count=lambda p: 0x0D <= opcode(p) <= 0x10)
        pair = connect(fate=responses, init={"read_packets": 8}, max_rd_atomic=4)
        data = pair.b.fill(0, 20 * 256)
        where = {"remote_va": pair.b.va(0), "rkey": pair.b.region.key}
        pair.a.qp.post_send(1, "READ", [pair.a.at(0, 20 * 256)], **where)
        pair.run()
        assert pair.a.data(0, 20 * 256) == data
        assert pair.a.statuses() == [(1, "SUCCESS")]
        requests = read_requests(pair.sent)
        assert requests[:3] == [(0, 2048), (8, 2048), (16, 1024)]
        resumed = [(lost, min(8 - lost % 8, 20 - lost) * 256)]
        assert requests[3:] == resumed + requests[lost // 8 + 1 : 3]


def test_parts_of_reads_keep_to_what_was_agreed_and_to_the_window():
    """Never more READ requests than resources, nor more responses under way than the window."""
    pair = connect(
        init={"read_packets": 4, "window_packets": 10}, max_rd_atomic=2, max_dest_rd_atomic=2
    )
    where = {"remote_va": pair.b.va(0), "rkey": pair.b.region.key}
    for i in range(3):
        pair.a.qp.post_send(i, "READ", [pair.a.at(i * 8192, 30 * 256)], **where)
    pair.a.qp.post_send(3, "WRITE", [pair.a.at(0, 30 * 256)], **where)
    asked, answered = 0, 0
    while pair.step():
        requests = read_requests(pair.sent)
        asked = sum((length + 255) // 256 for _, length in requests)
        open_requests = sum(first + (length + 255) // 256 > answered for first, length in requests)
        assert asked - answered <= 10 and open_requests <= 2
        under_way = sum(target is pair.a for _, _, target, _ in pair.arriving)
        sent = [p for p in pair.sent if 0x0D <= opcode(p) <= 0x10]
        answered = len(sent) - under_way
    assert asked == 90
    assert [s for _, s in pair.a.statuses()] == ["SUCCESS"] * 4


def test_a_fence_is_behind_all_parts_of_a_read():
    pair = connect(init={"read_packets": 2}, max_rd_atomic=1)
    pair.b.qp.post_recv(1, [pair.b.at(9000, 10)])
    where = {"remote_va": pair.b.va(0), "rkey": pair.b.region.key}
    pair.a.qp.post_send(1, "READ", [pair.a.at(0, 2560)], **where)
    pair.a.qp.post_send(2, "SEND", inline=b"x", flags=["fence", "signaled"])
    pair.run()
    order = [opcode(p) for p in pair.sent]
    assert order.count(READ_REQUEST) == 5
    assert order.index(0x04) > max(i for i, code in enumerate(order) if code == 0x0F)
    assert pair.a.statuses() == [(1, "SUCCESS"), (2, "SUCCESS")]


@pytest.mark.parametrize(
    ("number", "code", "size"),
    [(0, 0x0E, 256), (0, 0x10, 256), (0, 0x0D, 252), (1, 0x0D, 256), (1, 0x0E, 256), (2, 0x0F, 9)],
)
def test_responses_out_of_place_are_not_taken(number, code, size):
    """In a READ of 2 + 1 packets: at this PSN neither this position nor this length is right."""
    pair = connect(init={"read_packets": 2})
    where = {"remote_va": pair.b.va(0), "rkey": pair.b.region.key}
    pair.a.qp.post_send(1, "READ", [pair.a.at(0, 2 * 256 + 9)], **where)
    pair.a.engine.transmit(0, 9)
    answer = {"src": ADDRESSES[1], "dst": ADDRESSES[0], "dest_qp": pair.a.qp.number}
    aeth = {"syndrome": 0x1F, "msn": 0}
    for before in range(number):
        right = encode([0x0D, 0x0F][before], psn=before, payload=bytes(256), aeth=aeth, **answer)
        pair.a.engine.receive(right, 0)
    wrong = encode(code, psn=number, payload=b"\xee" * size, aeth=aeth, **answer)
    pair.a.engine.receive(wrong, 0)
    assert pair.a.qp.counters["dropped_response"] == 1
    assert 0xEE not in pair.a.memory


def test_reads_keep_to_the_responders_resources():
    pair = connect(max_rd_atomic=2, max_dest_rd_atomic=2)
    data = pair.b.fill(0, 8000)
    for i in range(8):
        where = {"remote_va": pair.b.va(i * 1000), "rkey": pair.b.region.key}
        pair.a.qp.post_send(i, "READ", [pair.a.at(i * 1000, 1000)], **where)
    pair.run()
    assert pair.a.data(0, 8000) == data
    assert [s for _, s in pair.a.statuses()] == ["SUCCESS"] * 8


def test_more_reads_than_agreed_are_refused():
    pair = connect(max_rd_atomic=16, max_dest_rd_atomic=1, init={"burst_packets": 64})
    for i in range(8):
        where = {"remote_va": pair.b.va(0), "rkey": pair.b.region.key}
        pair.a.qp.post_send(i, "READ", [pair.a.at(i * 4000, 4000)], **where)
    pair.run()
    statuses = [s for _, s in pair.a.statuses()]
    assert "REM_INV_REQ_ERR" in statuses and pair.b.qp.state == "ERR"


def test_atomics_happen_once():
    """Requests and responses are lost and come twice; the sum shows each addition once."""

    def twice(packet):
        count[0] += 1
        return [] if count[0] % 5 == 0 else [(1000, packet), (5000, packet)]

    count = [0]
    pair = connect(fate=twice, max_rd_atomic=4)
    where = {"remote_va": pair.b.va(8), "rkey": pair.b.region.key}
    for i in range(20):
        pair.a.qp.post_send(i, "FETCH_ADD", [pair.a.at(i * 8, 8)], swap_add=3, **where)
    pair.run()
    assert [s for _, s in pair.a.statuses()] == ["SUCCESS"] * 20
    fetched = [int.from_bytes(pair.a.data(i * 8, 8), "little") for i in range(20)]
    assert fetched == list(range(0, 60, 3))
    assert int.from_bytes(pair.b.data(8, 8), "little") == 60


def test_compare_and_swap():
    pair = connect()
    pair.b.memory[0:8] = (41).to_bytes(8, "little")
    where = {"remote_va": pair.b.va(0), "rkey": pair.b.region.key}
    for compare, swap, after in ((40, 1, 41), (41, 2**64 - 1, 2**64 - 1)):
        before = pair.b.data(0, 8)
        arguments = {"compare": compare, "swap_add": swap, **where}
        pair.a.qp.post_send(1, "COMPARE_SWAP", [pair.a.at(0, 8)], **arguments)
        pair.run()
        assert pair.a.data(0, 8) == before
        assert pair.b.data(0, 8) == after.to_bytes(8, "little")


def test_invalidate():
    pair = connect()
    ours = pair.b.engine.register(bytearray(64), ["remote_read", "remote_invalidate"])
    pair.b.qp.post_recv(1, [pair.b.at(0, 10)])
    pair.a.qp.post_send(1, "SEND_WITH_INV", inline=b"x", imm=ours.key)
    pair.run()
    assert pair.completions()[1][0].invalidated == ours.key
    pair.a.qp.post_send(2, "READ", [pair.a.at(0, 8)], remote_va=ours.va, rkey=ours.key)
    pair.run()
    assert pair.a.statuses() == [(2, "REM_ACCESS_ERR")]


def test_invalidating_what_is_not_offered_is_refused():
    pair = connect()
    pair.b.qp.post_recv(1, [pair.b.at(0, 10)])
    pair.a.qp.post_send(1, "SEND_WITH_INV", inline=b"x", imm=pair.b.region.key)
    pair.run()
    assert pair.a.statuses() == [(1, "REM_ACCESS_ERR")]
    assert pair.b.statuses() == [(1, "WR_FLUSH_ERR")]


def test_a_fence_waits_for_reads():
    pair = connect()
    pair.b.qp.post_recv(1, [pair.b.at(9000, 10)])
    where = {"remote_va": pair.b.va(0), "rkey": pair.b.region.key}
    pair.a.qp.post_send(1, "READ", [pair.a.at(0, 2560)], **where)
    pair.a.qp.post_send(2, "SEND", inline=b"x", flags=["fence", "signaled"])
    pair.run()
    order = [opcode(p) for p in pair.sent]
    assert order.index(0x04) > order.index(0x0F)
    assert pair.a.statuses() == [(1, "SUCCESS"), (2, "SUCCESS")]


@pytest.mark.parametrize("lost", range(8))
def test_go_back_n(lost):
    pair = connect(psns=(0xFFFFFD, 0), fate=lose(lost, count=is_request))
    data = pair.a.fill(0, 8 * 256)
    pair.b.qp.post_recv(1, [pair.b.at(0, 8 * 256)])
    pair.a.qp.post_send(1, "SEND", [pair.a.at(0, 8 * 256)])
    pair.run()
    assert pair.b.data(0, 8 * 256) == data
    assert pair.a.statuses() == [(1, "SUCCESS")] and pair.b.statuses() == [(1, "SUCCESS")]
    # the last one's loss shows by its time running out, the others' by one NAK
    assert syndromes(pair).count(NAK_SEQUENCE) == (0 if lost == 7 else 1)
    assert pair.a.qp.counters["ack_timeout"] == (1 if lost == 7 else 0)


def test_a_lost_ack_is_repeated():
    pair = connect(fate=lose(0, count=lambda p: opcode(p) == RC_ACK))
    pair.b.qp.post_recv(1, [pair.b.at(0, 10)])
    pair.b.qp.post_recv(2, [pair.b.at(10, 10)])
    pair.a.qp.post_send(1, "SEND", inline=b"once")
    pair.run()
    assert pair.a.statuses() == [(1, "SUCCESS")] and pair.b.statuses() == [(1, "SUCCESS")]
    assert pair.b.qp.counters["duplicate_request"] == 1


def test_acks_are_coalesced():
    pair = connect()
    for i in range(4):
        pair.b.qp.post_recv(i, [pair.b.at(0, 10)])
        pair.b.engine.receive(to_b(pair, 0x04, psn=i, ack_req=True), 0)
    (ack,) = pair.b.engine.transmit(0, 10)
    assert (psn(ack), int.from_bytes(ack[41:44], "big")) == (3, 4)
    assert pair.b.qp.counters["acks_coalesced"] == 3


def test_draining():
    pair = connect()
    pair.b.qp.post_recv(1, [pair.b.at(0, 4000)])
    pair.b.qp.post_recv(2, [pair.b.at(0, 4000)])
    pair.a.qp.post_send(1, "SEND", [pair.a.at(0, 4000)])
    pair.step()
    pair.a.qp.post_send(2, "SEND", [pair.a.at(0, 4000)])
    pair.a.qp.modify("SQD")
    assert not pair.a.qp.drained
    pair.run()
    assert pair.a.qp.drained and pair.a.statuses() == [(1, "SUCCESS")]
    pair.a.qp.modify("RTS")
    pair.run()
    assert pair.a.statuses() == [(2, "SUCCESS")]


def test_the_longest_read_takes_half_of_all_psns():
    pair = connect(psns=(0xFFFFF0, 0), init={"read_packets": 1 << 23})
    ours, theirs = mmap.mmap(-1, 1 << 31), mmap.mmap(-1, 1 << 31)
    theirs[1000:1004] = b"data"
    to = pair.a.engine.register(ours, ["local_write"])
    source = pair.b.engine.register(theirs, ["remote_read"])
    where = {"remote_va": source.va, "rkey": source.key}
    pair.a.qp.post_send(1, "READ", [(to.key, to.va, 1 << 31)], **where)
    pair.a.qp.post_send(2, "SEND", inline=b"x")
    for _ in range(8):
        pair.step()
    assert ours[1000:1004] == b"data"
    assert read_requests(pair.sent) == [(0xFFFFF0, 1 << 31)]
    assert len([p for p in pair.sent if is_request(p)]) == 1  # the SEND has to wait
    request = to_b(pair, 0x04, psn=(0xFFFFF0 + (1 << 23)) & 0xFFFFFF)
    pair.b.qp.post_recv(1)
    pair.b.engine.receive(request, pair.now_ns)
    assert pair.b.statuses() == [(1, "SUCCESS")]  # that is the PSN behind it
    to.close()
    source.close()


def test_both_ways_at_once():
    pair = connect()
    data = [side.fill(0, 50_000, seed) for seed, side in enumerate((pair.a, pair.b))]
    for side in (pair.a, pair.b):
        side.qp.post_recv(1, [side.at(100_000, 50_000)])
        side.qp.post_send(2, "SEND", [side.at(0, 50_000)])
    pair.run()
    assert pair.a.data(100_000, 50_000) == data[1] and pair.b.data(100_000, 50_000) == data[0]
    assert pair.a.qp.counters["completer_retry_err"] == 0


def test_responses_come_in_the_order_of_their_psns():
    """IBA 9.7.5.1: what a response of a later PSN says already is not said behind it."""
    pair = connect(mtu=256)
    pair.a.qp.post_send(
        1, "WRITE", [pair.a.at(0, 600)], remote_va=pair.b.va(0), rkey=pair.b.region.key
    )
    pair.a.qp.post_send(
        2, "READ", [pair.a.at(1000, 600)], remote_va=pair.b.va(0), rkey=pair.b.region.key
    )
    pair.a.qp.post_send(
        3, "WRITE", [pair.a.at(0, 8)], remote_va=pair.b.va(0), rkey=pair.b.region.key
    )
    requests = pair.a.engine.transmit(0, 16)
    assert [psn(p) for p in requests] == [0, 1, 2, 3, 6]
    for request in requests:  # all of them before b answers any
        pair.b.engine.receive(request, 0)
    answers = pair.b.engine.transmit(0, 16)
    assert [psn(p) for p in answers] == [3, 4, 5, 6]
    for request in requests[:4]:  # and again, but for the last
        pair.b.engine.receive(request, 0)
    assert [psn(p) for p in pair.b.engine.transmit(0, 16)] == [3, 4, 5]
    for answer in answers:
        pair.a.engine.receive(answer, 0)
    assert pair.a.statuses() == [(1, "SUCCESS"), (2, "SUCCESS"), (3, "SUCCESS")]
