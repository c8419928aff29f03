# SPDX-License-Identifier: BSD-2-Clause
"""A pool used in any order, with a source that refuses and recovers, against a model of it."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)
from lender import Lender
from windowed import PAGE, World, mapped_by_us

from livedma._native.pool import Waiter
from livedma.memory import Buffer, Lease, Pool, PoolClosed

EXAMPLES = max(int(os.environ.get("LIVEDMA_SCHEDULES", "500")) // 5, 20)
BUFFER = 1000
SHARD = 4096  # four of 1024

any_of = st.integers(0, 1 << 16)


@dataclass
class Taken:
    buffer: Buffer
    control: bool
    mark: bytes


@dataclass
class Waiting:
    waiter: Waiter
    control: bool


class Carved:
    """As a lender: a real window whose parts are pages, extended and shrunk as room goes."""

    def __init__(self, room: int) -> None:
        self.world = World(8 * PAGE, part=PAGE)
        self.lent: list[Lease] = []
        self.room = room

    @property
    def loans(self) -> list[Lease]:
        return [lease for lease in self.lent if not lease.is_released]

    @property
    def room(self) -> int:
        return self.world.window.statistics().mapped // PAGE

    @room.setter
    def room(self, room: int) -> None:
        room = max(room, len(self.loans))  # what is lent cannot go
        while self.room < room:
            self.world.window.extend(PAGE)
        while self.room > room:
            self.world.window.shrink(PAGE, timeout=0)

    def take(self, size: int) -> Lease:
        lease = self.world.window.take(size)
        self.lent.append(lease)
        return lease


class PoolMachine(RuleBasedStateMachine):
    make_source: Callable[[int], Lender | Carved] = Lender

    @initialize(
        room=st.integers(1, 3),
        reserve=st.integers(0, 3),
        minimum=st.integers(0, 4),
        maximum=st.one_of(st.none(), st.integers(4, 9)),
    )
    def create(self, room: int, reserve: int, minimum: int, maximum: int | None) -> None:
        self.lender = self.make_source(room)
        self.pool = Pool(self.lender, BUFFER, SHARD, reserve, minimum, maximum)
        self.reserve, self.minimum, self.maximum = reserve, minimum, maximum
        self.taken: list[Taken] = []
        self.waiting: list[Waiting] = []  # in the order of their coming
        self.returned: list[Buffer] = []
        self.refused = self.takes = self.waits = 0

    # The model

    def count(self, control: bool) -> int:
        return sum(one.control == control for one in self.taken)

    def has_free(self, control: bool) -> bool:
        data, ours = self.count(False), self.count(True)
        buffers = self.pool.stats.buffers
        return data + (ours if control else max(ours, self.reserve)) < buffers

    def may_grow(self) -> bool:
        below = self.maximum is None or self.pool.stats.buffers < self.maximum
        return below and len(self.lender.loans) < self.lender.room

    def got(self, buffer: Buffer, control: bool) -> None:
        self.takes += 1
        mark = self.takes.to_bytes(4, "big") * (BUFFER // 4)
        self.fill(buffer, mark)
        self.taken.append(Taken(buffer, control, mark))

    def fill(self, buffer: Buffer, mark: bytes) -> None:
        buffer.memory[:] = mark

    def serve(self) -> None:
        """A waiter that is served by now has to be the first of its class."""
        for control in (True, False):
            queue = [one for one in self.waiting if one.control == control]
            served = [one.waiter.wait(0) for one in queue]
            assert served == sorted(served, reverse=True), "somebody was overtaken"
            for one in queue[: sum(served)]:
                buffer = one.waiter.claim()
                assert buffer is not None
                self.waiting.remove(one)
                self.got(buffer, control)

    # What users do

    @precondition(lambda self: not self.pool.closed)
    @rule(control=st.booleans())
    def take(self, control: bool) -> None:
        # Waiters come first of what is added, so all of it may be theirs.
        possible = self.has_free(control) or self.may_grow()
        certain = self.has_free(control) or (self.may_grow() and not self.waiting)
        certain = certain and (control or not self.reserve or self.has_free(control))
        buffer = self.pool.try_take(control)
        assert possible or buffer is None
        assert not certain or buffer is not None
        if buffer is None:
            assert not self.may_grow(), "it could have grown"
        else:
            self.got(buffer, control)
        self.serve()

    @precondition(lambda self: not self.pool.closed)
    @rule(control=st.booleans())
    def take_all(self, control: bool) -> None:
        while self.has_free(control) or self.may_grow():
            self.take(control)

    @precondition(lambda self: self.taken)
    @rule(which=any_of)
    def give_back(self, which: int) -> None:
        one = self.taken.pop(which % len(self.taken))
        assert self.pool.closed or one.buffer.memory == one.mark, "somebody else wrote there"
        self.refused += self.pool.closed
        one.buffer.release()
        self.returned.append(one.buffer)
        if not self.pool.closed:
            self.serve()

    @precondition(lambda self: self.returned)
    @rule(which=any_of)
    def give_back_twice(self, which: int) -> None:
        self.refused += 1
        try:
            self.returned[which % len(self.returned)].release()
        except ValueError:
            assert not self.pool.closed
        else:
            assert self.pool.closed

    @precondition(lambda self: not self.pool.closed)
    @rule(control=st.booleans())
    def wait(self, control: bool) -> None:
        is_free = self.has_free(control)
        waiter = Waiter(self.pool, control)
        assert waiter.is_over == is_free
        self.waits += not is_free
        self.waiting.append(Waiting(waiter, control))
        self.serve()

    @precondition(lambda self: self.waiting)
    @rule(which=any_of)
    def give_up(self, which: int) -> None:
        one = self.waiting.pop(which % len(self.waiting))
        assert one.waiter.claim() is None
        self.serve()

    # What the owner does

    @precondition(lambda self: not self.pool.closed)
    @rule()
    def trim(self) -> None:
        self.pool.trim()
        stats = self.pool.stats
        spoken_for = self.count(False) + max(self.count(True), self.reserve)
        if stats.idle_shards:  # it stayed for a reason
            smallest = min(loan.length // 1024 for loan in self.lender.loans)
            assert stats.buffers - smallest < max(self.minimum, spoken_for)

    @precondition(lambda self: not self.pool.closed)
    @rule()
    def tend(self) -> None:
        self.pool.tend()
        self.serve()
        assert not self.waiting or not self.may_grow()

    @rule(room=st.integers(0, 4))
    def change_room(self, room: int) -> None:
        self.lender.room = room

    @rule(really=st.integers(0, 9))
    def close(self, really: int) -> None:
        if really:  # or few examples would get far
            return
        self.pool.close()
        for one in self.waiting:
            assert one.waiter.wait(0)
            try:
                one.waiter.claim()
                raise AssertionError("it got a buffer of a closed pool")
            except PoolClosed:
                pass
        self.waiting = []
        assert not self.lender.loans

    # What holds always

    @invariant()
    def buffers_lie_apart_in_what_is_lent(self) -> None:
        if self.pool.closed:
            return
        places = sorted((one.buffer.address, one.buffer.va) for one in self.taken)
        end = 0
        for address, va in places:
            assert address >= end and address % 64 == 0
            end = address + BUFFER
            assert any(
                loan.address <= address and end <= loan.address + loan.length
                and va - loan.va == address - loan.address
                for loan in self.lender.loans
            ), "its lease was released"  # fmt: skip

    @invariant()
    def counts_add_up(self) -> None:
        stats = self.pool.stats
        assert stats.refused == self.refused
        assert stats.data.takes + stats.control.takes == self.takes
        assert stats.shards == stats.shards_added - stats.shards_removed == len(self.lender.loans)
        assert stats.mapped_bytes == sum(loan.length for loan in self.lender.loans)
        assert stats.free + stats.taken == stats.buffers
        assert stats.waiting == len(self.waiting)
        ended = stats.data.waits.count + stats.control.waits.count
        assert ended + stats.waiting == self.waits
        if self.pool.closed:
            assert stats.buffers == 0
            return
        assert (stats.data.taken, stats.control.taken) == (self.count(False), self.count(True))
        assert stats.buffers >= max(self.minimum, self.reserve)
        assert self.maximum is None or stats.buffers <= self.maximum
        assert stats.data.taken <= stats.buffers - max(stats.control.taken, self.reserve)

    def teardown(self) -> None:
        if hasattr(self, "pool"):
            self.pool.close()
            assert not self.lender.loans


class WindowPoolMachine(PoolMachine):
    """The same over a window; what is in the buffers a peer has written there."""

    make_source = Carved
    lender: Carved

    def fill(self, buffer: Buffer, mark: bytes) -> None:
        offset = buffer.va - self.lender.world.window.va
        assert self.lender.world.write(offset, mark) == "SUCCESS"

    def teardown(self) -> None:
        super().teardown()
        if hasattr(self, "pool"):
            self.lender.room = 0
            assert not mapped_by_us()
            self.lender.world.window.close()  # or it stays in the ledger until it is collected


@pytest.mark.slow
@pytest.mark.parametrize("machine", [PoolMachine, WindowPoolMachine])
def test_a_pool_in_any_order(machine: type[PoolMachine]) -> None:
    run_state_machine_as_test(
        machine, settings=settings(max_examples=EXAMPLES, stateful_step_count=60)
    )
