# SPDX-License-Identifier: BSD-2-Clause
"""Paged regions: what an absent page does to each operation, of peers and of the device itself."""

from __future__ import annotations

import ctypes
import mmap
import random

import pytest

from engines import (
    ALL,
    NAK_ACCESS,
    NAK_OPERATION,
    RC_ACK,
    READ_REQUEST,
    Pair,
    Side,
    connect,
    lose,
    opcode,
    psn,
    reconnect,
    syndromes,
    to_b,
)
from livedma._native.paging import PagedRegion

PAGE = 4096
PAGES = 80
MTU = 1024
RNR = range(0x20, 0x40)


class Paged:
    """A paged region on one side of a connection, all of it absent."""

    def __init__(self, side: Side, pad: int = 0) -> None:
        self.map = mmap.mmap(-1, PAGES * PAGE)
        self.view = memoryview(self.map)[pad:]
        self.region = PagedRegion(side.engine, self.view, ALL)

    def at(self, offset: int, length: int) -> tuple[int, int, int]:
        return (self.region.key, self.region.va + offset, length)

    def there(self, offset: int) -> dict[str, int]:
        return {"remote_va": self.region.va + offset, "rkey": self.region.key}

    def fill(self, offset: int, length: int) -> bytes:
        data = random.Random(offset + length).randbytes(length)
        self.view[offset : offset + length] = data
        return data

    def data(self, offset: int, length: int) -> bytes:
        return bytes(self.view[offset : offset + length])

    def word(self, offset: int) -> int:
        return ctypes.c_uint64.from_buffer(self.map, offset).value


def pair_of(kind: str = "RC", **attributes: int) -> Pair:
    return connect(kind, mtu=MTU, min_rnr_timer=1, **attributes)


def until_fault(pair: Pair, paged: Paged) -> tuple[int, int, bool]:
    """Lets things happen until a page is asked for, and fills what was."""
    for _ in range(1000):
        fault = paged.region.resolve()
        if fault:
            return fault
        pair.step()
    raise AssertionError("nobody asked for a page")


def served(pair: Pair, *filled: Paged) -> None:
    """Until both sides are quiet, every fault being answered at once."""
    quiet = 0
    for _ in range(10_000):
        quiet = 0 if pair.step() else quiet + 1
        while any(p.region.resolve() for p in filled):
            quiet = 0
        if quiet == 2:
            return
    raise AssertionError("the engines never came to rest")


def rnr_naks(pair: Pair) -> list[int]:
    return [psn(p) for p in pair.sent if opcode(p) == RC_ACK and p[40] in RNR]


def test_write_comes_back_when_the_page_is_there() -> None:
    pair = pair_of()
    paged = Paged(pair.b)
    data = pair.a.fill(0, 3000)
    pair.a.qp.post_send(1, "WRITE", [pair.a.at(0, 3000)], **paged.there(100))
    assert until_fault(pair, paged) == (0, 1, True)
    pair.run()
    assert pair.a.statuses() == [(1, "SUCCESS")]
    assert paged.data(100, 3000) == data
    assert rnr_naks(pair) == [0]
    assert pair.b.qp.counters["page_naks"] == pair.b.qp.counters["send_rnr_err"] == 1
    assert pair.a.qp.counters["rcvd_rnr_err"] == 1


def test_write_goes_on_in_its_middle() -> None:
    pair = pair_of()
    paged = Paged(pair.b)
    data = pair.a.fill(0, 5 * PAGE)
    paged.region.update_range(0, 2 * PAGE)
    pair.a.qp.post_send(1, "WRITE", [pair.a.at(0, 5 * PAGE)], **paged.there(0))
    assert until_fault(pair, paged) == (2, 3, True)  # the rest of the message is read ahead
    pair.run()
    assert pair.a.statuses() == [(1, "SUCCESS")]
    assert paged.data(0, 5 * PAGE) == data
    assert rnr_naks(pair) == [2 * PAGE // MTU]
    firsts = [p for p in pair.sent if opcode(p) == 0x06]
    assert len(firsts) == 1  # it resumed, and did not begin again


def test_a_packet_on_two_pages_needs_both() -> None:
    pair = pair_of()
    paged = Paged(pair.b)
    paged.region.update_range(0, PAGE)
    data = pair.a.fill(0, 600)
    pair.a.qp.post_send(1, "WRITE", [pair.a.at(0, 600)], **paged.there(PAGE - 300))
    assert until_fault(pair, paged) == (1, 1, True)
    pair.run()
    assert paged.data(PAGE - 300, 600) == data
    assert pair.a.statuses() == [(1, "SUCCESS")]


def test_read_ahead_is_bounded() -> None:
    pair = pair_of()
    paged = Paged(pair.b)
    pair.a.qp.post_send(1, "READ", [pair.a.at(0, 200_000)], **paged.there(PAGE))
    first, count, _ = until_fault(pair, paged)
    assert first == 1 and count <= 64
    served(pair, paged)
    assert pair.a.statuses() == [(1, "SUCCESS")]
    counters = paged.region.counters
    assert counters["read_ahead"] == counters["resolved"] - counters["faults"] > 0


def test_send_into_an_absent_receive() -> None:
    pair = pair_of()
    paged = Paged(pair.b)
    data = pair.a.fill(0, 2 * PAGE)
    pair.b.qp.post_recv(7, [paged.at(PAGE, 3 * PAGE)])
    pair.a.qp.post_send(1, "SEND", [pair.a.at(0, 2 * PAGE)])
    assert until_fault(pair, paged) == (1, 3, True)
    served(pair, paged)
    (sent,), (received,) = pair.completions()
    assert (sent.status, received.status, received.length) == ("SUCCESS", "SUCCESS", 2 * PAGE)
    assert paged.data(PAGE, 2 * PAGE) == data


def test_a_short_send_asks_for_its_own_pages_only() -> None:
    pair = pair_of()
    paged = Paged(pair.b)
    pair.b.qp.post_recv(7, [paged.at(0, 10 * PAGE)])
    pair.a.qp.post_send(1, "SEND", [pair.a.at(0, 10)])
    assert until_fault(pair, paged) == (0, 1, True)


def test_write_with_immediate_keeps_its_receive() -> None:
    pair = pair_of()
    paged = Paged(pair.b)
    pair.b.qp.post_recv(7)
    pair.a.qp.post_send(1, "WRITE_WITH_IMM", [pair.a.at(0, 100)], imm=5, **paged.there(0))
    served(pair, paged)
    (sent,), (received,) = pair.completions()
    assert (sent.status, received.imm, received.wr_id) == ("SUCCESS", 5, 7)


def test_read_request_for_an_absent_page() -> None:
    pair = pair_of()
    paged = Paged(pair.b)
    data = paged.fill(50, 2000)
    pair.a.qp.post_send(1, "READ", [pair.a.at(0, 2000)], **paged.there(50))
    assert until_fault(pair, paged) == (0, 1, False)
    pair.run()
    assert pair.a.statuses() == [(1, "SUCCESS")]
    assert pair.a.data(0, 2000) == data
    assert rnr_naks(pair) == [0]


def test_later_responses_wait_without_a_nak() -> None:
    pair = pair_of()
    paged = Paged(pair.b)
    data = paged.fill(0, 3 * PAGE)
    paged.region.update_range(0, PAGE, writable=False)
    pair.a.qp.post_send(1, "READ", [pair.a.at(0, 3 * PAGE)], **paged.there(0))
    assert until_fault(pair, paged) == (1, 2, False)
    pair.run()
    assert pair.a.statuses() == [(1, "SUCCESS")]
    assert pair.a.data(0, 3 * PAGE) == data
    assert not rnr_naks(pair)
    assert pair.b.qp.counters["page_waits"] >= 1
    assert len([p for p in pair.sent if opcode(p) == READ_REQUEST]) == 1


def test_an_ack_does_not_overtake_a_response_that_waits() -> None:
    pair = pair_of()
    paged = Paged(pair.b)
    paged.fill(0, 2 * PAGE)
    paged.region.update_range(0, PAGE, writable=False)
    pair.a.qp.post_send(1, "READ", [pair.a.at(0, 2 * PAGE)], **paged.there(0))
    pair.a.qp.post_send(
        2, "WRITE", [pair.a.at(0, 8)], remote_va=pair.b.va(0), rkey=pair.b.region.key
    )
    for _ in range(50):
        pair.step()
    assert not syndromes(pair)
    served(pair, paged)
    assert pair.a.statuses() == [(1, "SUCCESS"), (2, "SUCCESS")]
    assert pair.a.qp.counters["completer_retry_err"] == 0


def test_a_repeated_read_waits_too() -> None:
    pair = connect(mtu=MTU, min_rnr_timer=1, fate=lose(5, count=lambda p: opcode(p) in (13, 14)))
    paged = Paged(pair.b)
    data = paged.fill(0, 4 * PAGE)
    paged.region.update_range(0, 4 * PAGE, writable=False)
    pair.a.qp.post_send(1, "READ", [pair.a.at(0, 4 * PAGE)], **paged.there(0))
    for _ in range(3):
        pair.step()
    paged.region.invalidate_range(PAGE, 3 * PAGE)
    served(pair, paged)
    assert pair.a.statuses() == [(1, "SUCCESS")]
    assert pair.a.data(0, 4 * PAGE) == data
    assert pair.b.qp.counters["duplicate_request"] >= 1


def test_an_atomic_happens_once_however_often_its_page_is_absent() -> None:
    pair = pair_of()
    paged = Paged(pair.b)
    for i in range(3):
        paged.region.invalidate_range(0, PAGE)
        pair.a.qp.post_send(i, "FETCH_ADD", [pair.a.at(8 * i, 8)], swap_add=5, **paged.there(64))
        assert until_fault(pair, paged) == (0, 1, True)
        pair.run()
    assert paged.word(64) == 15
    assert pair.a.data(0, 24) == b"".join(n.to_bytes(8, "little") for n in (0, 5, 10))
    assert len(rnr_naks(pair)) == 3
    pair.a.qp.post_send(
        9, "COMPARE_SWAP", [pair.a.at(0, 8)], compare=15, swap_add=1, **paged.there(64)
    )
    pair.run()
    assert paged.word(64) == 1


def test_waiting_naks_take_no_place_of_an_atomic() -> None:
    """As many at a time as agreed, each of which comes back."""
    pair = pair_of(max_rd_atomic=2, max_dest_rd_atomic=2)
    paged = Paged(pair.b)
    for i in range(6):
        pair.a.qp.post_send(i, "FETCH_ADD", [pair.a.at(0, 8)], swap_add=1, **paged.there(PAGE * i))
    served(pair, paged)
    assert pair.a.statuses() == [(i, "SUCCESS") for i in range(6)]
    assert [paged.word(PAGE * i) for i in range(6)] == [1] * 6


def test_a_page_read_is_not_one_written() -> None:
    """A page that was filled for reading is asked for again to write to it."""
    pair = pair_of()
    paged = Paged(pair.b)
    pair.a.qp.post_send(1, "READ", [pair.a.at(0, 8)], **paged.there(0))
    assert until_fault(pair, paged) == (0, 1, False)
    pair.run()
    pair.a.qp.post_send(2, "WRITE", [pair.a.at(0, 8)], **paged.there(0))
    assert until_fault(pair, paged) == (0, 1, True)
    pair.run()
    assert pair.a.statuses() == [(1, "SUCCESS"), (2, "SUCCESS")]


@pytest.mark.parametrize("operation", ["WRITE", "READ", "FETCH_ADD"])
def test_a_page_that_cannot_be_filled_is_refused_once(operation: str) -> None:
    pair = pair_of()
    paged = Paged(pair.b)
    pair.a.qp.post_send(1, operation, [pair.a.at(0, 8)], **paged.there(0))
    while paged.region.resolve(0) is None:
        pair.step()
    pair.run()
    assert pair.a.statuses() == [(1, "REM_ACCESS_ERR")]
    assert syndromes(pair)[-1] == NAK_ACCESS
    assert paged.region.counters["failed"] == 1


def test_who_comes_after_a_refusal_tries_again() -> None:
    pair = pair_of()
    paged = Paged(pair.b)
    pair.a.qp.post_send(1, "SEND", [pair.a.at(0, 8)])
    pair.b.qp.post_recv(7, [paged.at(0, PAGE)])
    while paged.region.resolve(0) is None:
        pair.step()
    pair.run()
    (sent,), (received,) = pair.completions()
    assert (sent.status, received.status) == ("REM_OP_ERR", "LOC_PROT_ERR")
    assert syndromes(pair)[-1] == NAK_OPERATION
    assert paged.region.resolve() is None
    reconnect(pair)
    pair.a.qp.post_send(2, "WRITE", [pair.a.at(0, 8)], **paged.there(0))
    served(pair, paged)
    assert pair.a.statuses() == [(2, "SUCCESS")]


def test_a_failure_to_read_ahead_is_none() -> None:
    pair = pair_of()
    paged = Paged(pair.b)
    data = pair.a.fill(0, 2 * PAGE)
    pair.a.qp.post_send(1, "WRITE", [pair.a.at(0, 2 * PAGE)], **paged.there(0))
    while paged.region.resolve(1) is None:  # only the page that is needed
        pair.step()
    assert until_fault(pair, paged) == (1, 1, True)
    pair.run()
    assert pair.a.statuses() == [(1, "SUCCESS")]
    assert paged.data(0, 2 * PAGE) == data


def test_what_is_unmapped_is_refused_until_it_is_offered_again() -> None:
    pair = pair_of()
    paged = Paged(pair.b)
    paged.region.update_range(0, 4 * PAGE)
    paged.region.unmap_range(PAGE, PAGE)
    paged.region.invalidate_range(0, 4 * PAGE)  # does not bring it back to life
    pair.a.qp.post_send(1, "WRITE", [pair.a.at(0, 8)], **paged.there(PAGE))
    pair.run()
    assert pair.a.statuses() == [(1, "REM_ACCESS_ERR")]
    assert paged.region.resolve() is None
    paged.region.offer_range(PAGE, PAGE)
    reconnect(pair)
    pair.a.qp.post_send(2, "WRITE", [pair.a.at(0, 8)], **paged.there(PAGE))
    served(pair, paged)
    assert pair.a.statuses() == [(2, "SUCCESS")]


def test_what_was_invalidated_while_it_was_filled_stays_absent() -> None:
    pair = pair_of()
    paged = Paged(pair.b)
    pair.a.qp.post_send(1, "WRITE", [pair.a.at(0, 8)], **paged.there(0))
    while not paged.region.counters["faults"]:
        pair.step()
    paged.region.invalidate_range(0, PAGE)
    assert paged.region.resolve() == (0, 1, True)
    assert paged.region.present == 0
    served(pair, paged)
    assert paged.region.counters["faults"] == 2
    assert pair.a.statuses() == [(1, "SUCCESS")]


def test_one_page_is_asked_for_once() -> None:
    pair = pair_of()
    paged = Paged(pair.b)
    for i in range(4):
        pair.a.qp.post_send(i, "WRITE", [pair.a.at(0, 8)], **paged.there(8 * i))
    for _ in range(200):
        pair.step()
    assert paged.region.counters["faults"] == 1
    assert len(rnr_naks(pair)) > 1
    served(pair, paged)
    assert pair.a.statuses() == [(i, "SUCCESS") for i in range(4)]


@pytest.mark.parametrize("operation", ["SEND", "WRITE"])
def test_own_requests_wait_for_what_they_send(operation: str) -> None:
    pair = pair_of()
    paged = Paged(pair.a)
    data = paged.fill(10, 3 * PAGE)
    where = {"remote_va": pair.b.va(0), "rkey": pair.b.region.key}
    pair.b.qp.post_recv(7, [pair.b.at(0, 4 * PAGE)])
    pair.a.qp.post_send(1, operation, [paged.at(10, 3 * PAGE)], **where)
    for _ in range(20):
        pair.step()
    assert not [p for p in pair.sent if opcode(p) != RC_ACK]
    assert pair.a.qp.counters["page_waits"] > 1  # it looks again and again
    assert until_fault(pair, paged) == (0, 4, False)
    pair.run()
    assert pair.a.statuses() == [(1, "SUCCESS")]
    assert pair.b.data(0, 3 * PAGE) == data
    assert not rnr_naks(pair)


@pytest.mark.parametrize("operation", ["READ", "FETCH_ADD"])
def test_own_requests_wait_for_where_the_answer_goes(operation: str) -> None:
    pair = pair_of()
    paged = Paged(pair.a)
    length = 8 if operation == "FETCH_ADD" else 2 * PAGE
    data = pair.b.fill(0, length)
    pair.a.qp.post_send(
        1, operation, [paged.at(0, length)], remote_va=pair.b.va(0), rkey=pair.b.region.key
    )
    assert until_fault(pair, paged) == (0, -(-length // PAGE), True)
    assert not pair.sent
    pair.run()
    assert pair.a.statuses() == [(1, "SUCCESS")]
    assert paged.data(0, length) == data


@pytest.mark.parametrize("operation", ["READ", "FETCH_ADD"])
def test_an_answer_whose_page_has_gone_is_asked_for_again(operation: str) -> None:
    """Without using up retries: nothing was lost."""
    pair = pair_of(retry_count=0)
    paged = Paged(pair.a)
    length = 8 if operation == "FETCH_ADD" else 3 * PAGE
    data = pair.b.fill(0, length)
    paged.region.update_range(0, 4 * PAGE)
    pair.a.qp.post_send(
        1, operation, [paged.at(0, length)], remote_va=pair.b.va(0), rkey=pair.b.region.key,
        swap_add=1,
    )  # fmt: skip
    pair.step()
    assert pair.sent
    paged.region.invalidate_range(0, 4 * PAGE)
    served(pair, paged)
    assert pair.a.statuses() == [(1, "SUCCESS")]
    assert paged.data(0, length) == data
    assert pair.b.qp.counters["duplicate_request"] >= 1


@pytest.mark.parametrize("operation", ["SEND", "READ"])
def test_own_requests_fail_where_no_page_can_be(operation: str) -> None:
    pair = pair_of()
    paged = Paged(pair.a)
    where = {"remote_va": pair.b.va(0), "rkey": pair.b.region.key}
    pair.a.qp.post_send(0, "WRITE", [pair.a.at(0, 8)], **where)
    pair.a.qp.post_send(1, operation, [paged.at(0, 8)], **where)
    while paged.region.resolve(0) is None:
        pair.step()
    pair.run()
    assert pair.a.statuses() == [(0, "SUCCESS"), (1, "LOC_PROT_ERR")]
    assert pair.a.engine.next_timer is None


@pytest.mark.parametrize("state", ["ERR", "RESET"])
def test_nobody_waits_for_a_page_in_the_end(state: str) -> None:
    pair = pair_of()
    here, there = Paged(pair.a), Paged(pair.b)
    there.region.update_range(0, PAGE)
    pair.a.qp.post_send(1, "READ", [pair.a.at(0, 2 * PAGE)], **there.there(0))
    pair.a.qp.post_send(2, "WRITE", [here.at(0, 8)], **there.there(0))
    for _ in range(20):
        pair.step()
    for side in (pair.a, pair.b):
        assert side.qp.counters["page_waits"]
        side.qp.modify(state)
        assert side.engine.next_timer is None


def test_unreliable_messages_are_dropped() -> None:
    pair = connect("UC", mtu=MTU)
    paged = Paged(pair.b)
    pair.b.qp.post_recv(7, [paged.at(0, PAGE)])
    data = pair.a.fill(0, 3000)
    for i in range(2):
        pair.a.qp.post_send(i, "SEND", [pair.a.at(0, 3000)])
        pair.run()
        assert paged.region.resolve() == ((0, 1, True) if not i else None)
    assert pair.b.statuses() == [(7, "SUCCESS")]  # the second one, into the same Receive
    assert paged.data(0, 3000) == data
    assert pair.b.qp.counters["page_drops"] == 1
    pair.a.qp.post_send(2, "WRITE", [pair.a.at(0, 8)], **paged.there(5 * PAGE))
    pair.run()
    assert pair.b.qp.counters["page_drops"] == 2
    assert pair.b.qp.state == "RTS" and not rnr_naks(pair)


def test_datagrams_are_dropped() -> None:
    pair = connect("UD", mtu=MTU)
    paged = Paged(pair.b)
    pair.b.qp.post_recv(7, [paged.at(0, PAGE)])
    data = pair.a.fill(0, 100)
    for i in range(2):
        pair.a.qp.post_send(
            i, "SEND", [pair.a.at(0, 100)], src="10.0.0.1", dst="10.0.0.2",
            remote_qp=pair.b.qp.number, remote_qkey=0x11111111,
        )  # fmt: skip
        pair.run()
        paged.region.resolve()
    assert pair.b.statuses() == [(7, "SUCCESS")]
    assert paged.data(40, 100) == data
    assert pair.b.qp.counters["page_drops"] == 1


def test_more_faults_than_there_is_room_for() -> None:
    pair = pair_of()
    big = mmap.mmap(-1, 600 * PAGE)
    region = PagedRegion(pair.b.engine, big, ALL)
    for i in range(300):  # forged: nobody sends that much before the first NAK
        where = {"va": region.va + 2 * PAGE * i, "rkey": region.key, "length": 8}
        pair.b.engine.receive(to_b(pair, 0x0A, psn=0, reth=where, payload=bytes(8)), 0)
    counters = region.counters
    assert counters["faults"] == 256 and counters["faults_lost"] == 44
    while region.resolve():
        pass
    pair.a.qp.post_send(
        1, "WRITE", [pair.a.at(0, 8)], remote_va=region.va + 2 * PAGE * 299, rkey=region.key
    )
    while not region.resolve():
        pair.step()
    pair.run()
    assert pair.a.statuses() == [(1, "SUCCESS")]


def test_a_region_goes_while_its_pages_are_asked_for() -> None:
    pair = pair_of()
    paged = Paged(pair.b)
    pair.a.qp.post_send(1, "WRITE", [pair.a.at(0, 8)], **paged.there(0))
    while not paged.region.counters["faults"]:
        pair.step()
    paged.region.close()
    pair.run()
    assert pair.a.statuses() == [(1, "REM_ACCESS_ERR")]
    with pytest.raises(ValueError, match="closed"):
        paged.region.resolve()


def test_regions_begin_and_end_within_pages() -> None:
    pair = pair_of()
    paged = Paged(pair.b, pad=1000)
    data = pair.a.fill(0, PAGE)
    pair.a.qp.post_send(1, "WRITE", [pair.a.at(0, PAGE)], **paged.there(0))
    assert until_fault(pair, paged) == (0, 2, True)
    pair.run()
    assert paged.data(0, PAGE) == data
    last = paged.region.length - 8
    pair.a.qp.post_send(2, "WRITE", [pair.a.at(0, 8)], **paged.there(last))
    assert until_fault(pair, paged) == (PAGES - 1, 1, True)
    pair.a.qp.post_send(3, "WRITE", [pair.a.at(0, 8)], **paged.there(last + 1))
    pair.run()
    assert pair.a.statuses() == [(1, "SUCCESS"), (2, "SUCCESS"), (3, "REM_ACCESS_ERR")]
