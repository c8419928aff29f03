# SPDX-License-Identifier: BSD-2-Clause
"""Whatever the wire does: each message is delivered exactly once and intact, or reported failed."""

import mmap
import os
from dataclasses import dataclass

from hypothesis import given, settings
from hypothesis import strategies as st

from engines import ALL, MEMORY, Pair, Side, connect
from livedma._native.paging import PagedRegion

PAGE = 4096
SLOT = 8192  # room for one operation on either side
SCHEDULES = int(os.environ.get("LIVEDMA_SCHEDULES", "500"))
OPERATIONS = ("SEND", "SEND_WITH_IMM", "WRITE", "WRITE_WITH_IMM", "READ", "FETCH_ADD")
CONSUMES = ("SEND", "SEND_WITH_IMM", "WRITE_WITH_IMM")


@dataclass
class Operation:
    kind: str
    length: int
    fenced: bool


operations = st.lists(
    st.builds(
        Operation,
        st.sampled_from(OPERATIONS),
        st.sampled_from([0, 1, 3, 8, 255, 256, 257, 700, 1500, 6000]),
        st.booleans(),
    ),
    max_size=8,
)  # fmt: skip
# What becomes of one packet: (kind, delay or the byte that is changed).
fates = st.lists(
    st.one_of(
        st.tuples(st.just("deliver"), st.integers(1, 4000)),
        st.tuples(st.just("lose"), st.just(0)),
        st.tuples(st.just("twice"), st.integers(1, 400_000)),
        st.tuples(st.just("late"), st.integers(10_000, 3_000_000)),
        st.tuples(st.just("corrupt"), st.integers(28, 2000)),
        st.tuples(st.just("mark"), st.integers(1, 100_000)),
    ),
    max_size=60,
)
psns = st.one_of(st.integers(0, 0xFFFFFF), st.integers(0xFFFFF0, 0xFFFFFF))


def wire(fates, then_dead):
    """The given fates, one packet after the other, then a faithful wire or none at all."""
    coming = iter(fates)

    def fate(packet: bytes):
        kind, value = next(coming, ("lose", 0) if then_dead else ("deliver", 1000))
        if kind == "lose":
            return []
        if kind == "corrupt":
            changed = bytearray(packet)
            at = value % len(packet)
            if at == 32:  # congestion marks may change
                at = 33
            changed[at] ^= 0x10
            return [(1000, bytes(changed))]
        if kind == "mark":  # congestion, on the way
            return [(value, packet[:1] + b"\x03" + packet[2:])]
        if kind == "twice":
            return [(1000, packet), (1000 + value, packet)]
        return [(value, packet)]

    return fate


@dataclass
class Plan:
    """What one side asks of the other, and what must then be where."""

    source: Side
    target: Side
    operations: list[Operation]
    base: int  # of its slots, in both memories
    counter: int

    def post(self) -> None:
        for i, op in enumerate(self.operations):
            at = self.base + i * SLOT
            where = {"remote_va": self.target.va(at), "rkey": self.target.region.key, "imm": i}
            flags = ["signaled", "fence"] if op.fenced else ["signaled"]
            if op.kind == "READ":
                self.target.fill(at, op.length, seed=i + 100)
                self.source.qp.post_send(
                    i, op.kind, [self.source.at(at, op.length)], flags=flags, **where
                )
            elif op.kind == "FETCH_ADD":
                where["remote_va"] = self.target.va(self.counter)
                piece = [self.source.at(at, 8)]
                self.source.qp.post_send(i, op.kind, piece, swap_add=1, flags=flags, **where)
            else:
                self.source.fill(at, op.length, seed=i + 200)
                pieces = [self.source.at(at, op.length // 3)]
                pieces.append(self.source.at(at + op.length // 3, op.length - op.length // 3))
                if not op.kind.startswith("SEND"):
                    self.source.qp.post_send(i, op.kind, pieces, flags=flags, **where)
                else:
                    self.source.qp.post_send(i, op.kind, pieces, flags=flags, imm=i)

    def receives(self) -> list[tuple[int, list[tuple[int, int, int]]]]:
        """A Receive for each message that takes one: a SEND's is its slot."""
        return [
            (1000 + i, [self.target.at(self.base + i * SLOT, SLOT)])
            for i, op in enumerate(self.operations)
            if op.kind in CONSUMES
        ]

    def check_operation(self, i: int, before: int) -> None:
        """Operation i is said to have succeeded."""
        op, at = self.operations[i], self.base + i * SLOT
        if op.kind == "FETCH_ADD":
            assert self.source.data(at, 8) == before.to_bytes(8, "little")
        else:
            assert self.source.data(at, op.length) == self.target.data(at, op.length), op


def check_sends(plan: Plan, completions, failed: bool) -> None:
    sends = [c for c in completions if c.wr_id < 1000]
    assert [c.wr_id for c in sends] == list(range(len(plan.operations)))
    good = [c for c in sends if c.status == "SUCCESS"]
    assert [c.status for c in sends[: len(good)]] == ["SUCCESS"] * len(good)
    additions = 0
    for c in good:
        plan.check_operation(c.wr_id, additions)
        additions += plan.operations[c.wr_id].kind == "FETCH_ADD"
    asked = sum(op.kind == "FETCH_ADD" for op in plan.operations)
    total = int.from_bytes(plan.target.data(plan.counter, 8), "little")
    assert additions <= total <= asked
    if not failed:
        assert len(good) == len(sends) and total == asked
    elif len(good) < len(sends):
        assert {c.status for c in sends[len(good) + 1 :]} <= {"WR_FLUSH_ERR"}


def check_receives(plan: Plan, sends, completions) -> None:
    received = [c for c in completions if c.wr_id >= 1000]
    expected = [i for i, op in enumerate(plan.operations) if op.kind in CONSUMES]
    assert [c.wr_id - 1000 for c in received] == expected[: len(received)]  # each once, in order
    good = [c for c in received if c.status == "SUCCESS"]
    assert [c.status for c in received[: len(good)]] == ["SUCCESS"] * len(good)
    for c in good:
        op = plan.operations[c.wr_id - 1000]
        assert c.length == op.length
        assert c.imm == (None if op.kind == "SEND" else c.wr_id - 1000)
        at = plan.base + (c.wr_id - 1000) * SLOT
        assert plan.target.data(at, op.length) == plan.source.data(at, op.length)
    done = {c.wr_id for c in sends if c.wr_id < 1000 and c.status == "SUCCESS"}
    assert done & set(expected) <= {c.wr_id - 1000 for c in good}


def run(pair: Pair, plans: list[Plan], late_receives: bool) -> None:
    def post_receives() -> None:
        for plan in plans:
            for wr_id, sges in plan.receives():
                plan.target.qp.post_recv(wr_id, sges)

    if not late_receives:
        post_receives()
    for plan in plans:
        plan.post()
    if late_receives:
        for _ in range(10):
            pair.step()
        post_receives()
    pair.run()


@settings(max_examples=SCHEDULES)
@given(
    first=operations, second=operations, fates=fates, psns=st.tuples(psns, psns),
    mtu=st.sampled_from([256, 512, 1024]), then_dead=st.booleans(), late_receives=st.booleans(),
    rd_atomic=st.integers(1, 4), window=st.sampled_from([1, 2, 5, 12, 256]),
    read_packets=st.sampled_from([1, 2, 4, 32]),
)  # fmt: skip
def test_each_message_once_or_reported(
    first, second, fates, psns, mtu, then_dead, late_receives, rd_atomic, window, read_packets
):
    pair = connect(
        mtu=mtu, psns=psns, fate=wire(fates, then_dead), max_rd_atomic=rd_atomic,
        max_dest_rd_atomic=rd_atomic, retry_count=7, timeout=9, min_rnr_timer=1,
        init={"window_packets": window, "read_packets": read_packets},
    )  # fmt: skip
    half = len(pair.a.memory) // 2
    plans = [
        Plan(pair.a, pair.b, first, 0, half - 8),
        Plan(pair.b, pair.a, second, half, 2 * half - 8),
    ]
    run(pair, plans, late_receives)
    at_a, at_b = pair.completions()
    states = {pair.a.qp.state, pair.b.qp.state}
    failed = states != {"RTS"}
    # A wire that comes back ends in success unless it took all retries.
    assert then_dead or not failed or len(fates) > 7
    for plan, sent, received in ((plans[0], at_a, at_b), (plans[1], at_b, at_a)):
        check_sends(plan, sent, failed)
        check_receives(plan, sent, received)
    assert pair.a.cq.lost == pair.b.cq.lost == 0
    assert pair.a.engine.next_timer is None and pair.b.engine.next_timer is None


class PagedSide:
    """A side whose memory is a paged region, in place of the flat one."""

    def __init__(self, side: Side) -> None:
        side.memory = mmap.mmap(-1, MEMORY)  # type: ignore[assignment]
        side.region = PagedRegion(side.engine, side.memory, ALL, va=0x10000)  # type: ignore[assignment]
        self.region: PagedRegion = side.region  # type: ignore[assignment]

    def change(self, what: tuple[str, int, int]) -> None:
        kind, page, count = what
        if kind == "invalidate":
            self.region.invalidate_range(page * PAGE, count * PAGE)
        elif kind == "update":
            self.region.update_range(page * PAGE, count * PAGE, writable=bool(count % 2))
        elif kind == "resolve":
            self.region.resolve()


def run_paged(pair: Pair, sides: list[PagedSide], changes: list[tuple[str, int, int]]) -> None:
    """Pages come and go while the wire does what it likes; in the end, every fault is answered."""
    coming, quiet = iter(changes), 0
    for i in range(100_000):
        quiet = 0 if pair.step() else quiet + 1
        change = next(coming, None)
        if change is not None:
            sides[i % 2].change(change)
        elif any(side.region.resolve() for side in sides):
            quiet = 0
        if quiet >= 2 and change is None:
            return
    raise AssertionError("the engines never came to rest")


@settings(max_examples=max(SCHEDULES // 5, 50))
@given(
    first=operations, second=operations, fates=fates, psns=st.tuples(psns, psns),
    mtu=st.sampled_from([256, 1024]), rd_atomic=st.integers(1, 4),
    changes=st.lists(
        st.tuples(
            st.sampled_from(["invalidate", "update", "resolve", "nothing"]),
            st.integers(0, MEMORY // PAGE - 1), st.integers(1, MEMORY // PAGE),
        ),
        max_size=60,
    ),
)  # fmt: skip
def test_pages_may_come_and_go(first, second, fates, psns, mtu, rd_atomic, changes):
    pair = connect(
        mtu=mtu, psns=psns, fate=wire(fates, False), max_rd_atomic=rd_atomic,
        max_dest_rd_atomic=rd_atomic, timeout=9, min_rnr_timer=1, init={"read_packets": 4},
    )  # fmt: skip
    sides = [PagedSide(pair.a), PagedSide(pair.b)]
    half = MEMORY // 2
    plans = [
        Plan(pair.a, pair.b, first, 0, half - 8),
        Plan(pair.b, pair.a, second, half, 2 * half - 8),
    ]
    for plan in plans:
        for wr_id, sges in plan.receives():
            plan.target.qp.post_recv(wr_id, sges)
        plan.post()
    run_paged(pair, sides, changes)
    at_a, at_b = pair.completions()
    failed = {pair.a.qp.state, pair.b.qp.state} != {"RTS"}
    assert not failed or len(fates) > 7
    for plan, sent, received in ((plans[0], at_a, at_b), (plans[1], at_b, at_a)):
        check_sends(plan, sent, failed)
        check_receives(plan, sent, received)
    assert pair.a.engine.next_timer is None and pair.b.engine.next_timer is None


@settings(max_examples=max(SCHEDULES // 5, 50))
@given(sends=operations, fates=fates, psn=psns, window=st.sampled_from([1, 256]))
def test_unreliable_messages_come_whole_or_not_at_all(sends, fates, psn, window):
    """UC: what arrives is intact, and takes Receives in order; every send completes."""
    pair = connect("UC", psns=(psn, 0), fate=wire(fates, False), init={"window_packets": window})
    sends = [op for op in sends if op.kind in ("SEND", "SEND_WITH_IMM")]
    messages = []
    for i, op in enumerate(sends):
        pair.b.qp.post_recv(1000 + i, [pair.b.at(100_000 + i * SLOT, SLOT)])
        messages.append(pair.a.fill(i * SLOT, op.length, seed=i))
    for i, op in enumerate(sends):
        pair.a.qp.post_send(i, "SEND_WITH_IMM", [pair.a.at(i * SLOT, op.length)], imm=i)
    pair.run()
    assert pair.a.statuses() == [(i, "SUCCESS") for i in range(len(sends))]
    arrived = pair.b.cq.poll(100)
    assert [c.wr_id for c in arrived] == [1000 + i for i in range(len(arrived))]
    for c in arrived:
        assert c.status == "SUCCESS" and c.imm is not None
        at = 100_000 + (c.wr_id - 1000) * SLOT
        assert pair.b.data(at, c.length) == messages[c.imm]
