# SPDX-License-Identifier: BSD-2-Clause
"""The slot table, rule by rule (RFC 8881 2.10.6), against a simple model, and by threads."""

from __future__ import annotations

import threading
from dataclasses import dataclass, field

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from livedma._native.nfs import SLOTS_MAX, SMALL_REPLY, SlotTable
from livedma.nfs.numbers import Status

CACHE_BYTES = 4096
WRAP = 1 << 32


def make(slots: int = 4) -> SlotTable:
    return SlotTable(bytes(range(16)), 7, slots, CACHE_BYTES)


def run(
    table: SlotTable, slot: int, sequence: int, *, highest: int = 0, reply: bytes | None = b"reply"
) -> None:
    """A request that is executed."""
    assert table.begin(slot, sequence, highest, False) == 0
    table.end(slot, reply)


def test_identity() -> None:
    table = SlotTable(b"0123456789abcdef", 2**63, 3, 100)
    assert (table.session_id, table.client) == (b"0123456789abcdef", 2**63)
    assert (table.size, table.target, table.highest, table.target_highest) == (3, 3, 2, 2)
    assert (table.cache_bytes, table.used_ns) == (100, 0)
    run(table, 0, 1)
    assert table.used_ns > 0


@pytest.mark.parametrize("slots", [0, SLOTS_MAX + 1])
def test_sizes_are_bounded(slots: int) -> None:
    with pytest.raises(ValueError, match="slots"):
        make(slots)
    table = make()
    with pytest.raises(ValueError, match="slots"):
        table.target = slots
    assert table.target == 4


def test_session_id_has_sixteen_bytes() -> None:
    with pytest.raises(ValueError, match="16 bytes"):
        SlotTable(b"short", 1, 1, 1)


def test_next_sequence_executes() -> None:
    table = make()
    for sequence in range(1, 10):
        run(table, 2, sequence)
    assert table.counters["executed"] == 9


@pytest.mark.parametrize("sequence", [0, 2, WRAP - 1])
def test_first_sequence_is_one(sequence: int) -> None:
    table = make()
    assert table.begin(0, sequence, 0, False) == Status.SEQ_MISORDERED
    assert table.counters["misordered"] == 1


@pytest.mark.parametrize("sequence", [0, 1, 2, 5, WRAP - 1])
def test_any_other_sequence_is_misordered(sequence: int) -> None:
    table = make()
    for before in range(1, 4):
        run(table, 0, before)
    assert table.begin(0, sequence, 0, False) == Status.SEQ_MISORDERED
    run(table, 0, 4)  # and changes nothing


def test_replay() -> None:
    table = make()
    run(table, 1, 1, reply=b"first")
    run(table, 1, 2, reply=b"second")
    assert [table.begin(1, 2, 0, False) for _ in range(3)] == [b"second"] * 3
    assert table.begin(1, 1, 0, False) == Status.SEQ_MISORDERED
    assert table.counters["replayed"] == 3
    run(table, 1, 3)


def test_slots_are_independent() -> None:
    table = make()
    run(table, 0, 1, reply=b"zero")
    run(table, 3, 1, reply=b"three")
    assert table.begin(0, 1, 0, False) == b"zero"
    assert table.begin(3, 1, 0, False) == b"three"


def test_retry_of_what_executes_is_delayed() -> None:
    table = make()
    assert table.begin(0, 1, 0, True) == 0
    assert table.begin(0, 1, 0, True) == Status.DELAY
    assert table.begin(0, 2, 0, True) == Status.SEQ_MISORDERED
    assert table.begin(0, 0, 0, True) == Status.SEQ_MISORDERED
    table.end(0, b"done")
    assert table.begin(0, 1, 0, True) == b"done"
    assert table.counters["delayed"] == 1


def test_uncached_reply() -> None:
    table = make()
    run(table, 0, 1, reply=None)
    assert table.begin(0, 1, 0, False) == Status.RETRY_UNCACHED_REP
    assert table.counters["uncached"] == 1
    run(table, 0, 2)


@pytest.mark.parametrize(
    ("length", "cache_this", "is_kept"),
    [
        (0, False, True),
        (SMALL_REPLY, False, True),
        (SMALL_REPLY + 1, False, False),
        (SMALL_REPLY + 1, True, True),
        (CACHE_BYTES, True, True),
        (CACHE_BYTES + 1, True, False),
    ],
)
def test_which_replies_are_kept(length: int, cache_this: bool, is_kept: bool) -> None:
    table = make()
    reply = b"x" * length
    assert table.begin(0, 1, 0, cache_this) == 0
    assert table.end(0, reply) is is_kept
    assert table.begin(0, 1, 0, cache_this) == (reply if is_kept else Status.RETRY_UNCACHED_REP)


def test_small_replies_keep_to_the_agreed_size() -> None:
    table = SlotTable(bytes(16), 1, 1, 8)
    run(table, 0, 1, reply=b"123456789")
    assert table.begin(0, 1, 0, False) == Status.RETRY_UNCACHED_REP


def test_slot_beyond_the_table() -> None:
    table = make(4)
    assert table.begin(4, 1, 0, False) == Status.BADSLOT
    assert table.begin(WRAP - 1, 1, 0, False) == Status.BADSLOT
    assert table.begin(0, 1, 4, False) == Status.BAD_HIGH_SLOT
    assert table.counters["bad_slots"] == 3
    run(table, 3, 1, highest=3)


def test_false_retry() -> None:
    table = make()
    assert table.begin(0, 1, 0, True, 11) == 0
    table.end(0, b"reply")
    assert table.begin(0, 1, 0, True, 12) == Status.SEQ_FALSE_RETRY
    assert table.begin(0, 1, 0, True, 11) == b"reply"
    assert table.begin(0, 1, 0, True) == b"reply"  # nothing to compare
    assert table.counters["false_retries"] == 1


def test_cancelled_request_was_never_there() -> None:
    table = make()
    run(table, 0, 1, reply=b"first")
    assert table.begin(0, 2, 0, False) == 0
    table.cancel(0)
    assert table.begin(0, 1, 0, False) == b"first"
    run(table, 0, 2)


def test_only_what_executes_ends() -> None:
    table = make()
    for slot in (0, 5000):
        with pytest.raises(ValueError, match="not executing"):
            table.end(slot, b"")
        with pytest.raises(ValueError, match="not executing"):
            table.cancel(slot)


def test_raised_target_is_in_force_at_once() -> None:
    table = make(2)
    run(table, 1, 1)
    table.target = 5
    assert (table.size, table.highest, table.target_highest) == (5, 4, 4)
    assert table.begin(4, 2, 4, False) == Status.SEQ_MISORDERED
    run(table, 4, 1, highest=4)
    run(table, 1, 2, highest=4)


def test_lowered_target_waits_for_the_client() -> None:
    table = make(8)
    run(table, 0, 1)
    table.target = 2
    assert (table.size, table.highest, table.target_highest) == (8, 7, 1)
    run(table, 0, 2)  # sent before the client could know
    assert table.size == 8
    run(table, 7, 1, highest=7)  # it may still use what it has
    run(table, 0, 3, highest=2)  # told, but slot 2 is still in use
    assert table.size == 8
    run(table, 0, 4, highest=1)
    assert (table.size, table.highest) == (2, 1)
    assert table.counters["retired"] == 6
    assert table.begin(2, 1, 2, False) == Status.BADSLOT
    # sent before, served after: its highest slot id is no mistake
    run(table, 1, 1, highest=7)


def test_following_on_a_slot_that_goes_does_not_count() -> None:
    table = make(4)
    table.target = 1
    run(table, 3, 1)
    run(table, 3, 2)
    assert table.size == 4


def test_slots_stay_while_one_of_them_executes() -> None:
    table = make(4)
    table.target = 1
    run(table, 0, 1)
    assert table.begin(3, 1, 3, False) == 0
    run(table, 0, 2)
    assert table.size == 4
    table.end(3, b"late")
    assert table.begin(3, 1, 3, False) == b"late"
    run(table, 0, 3)
    assert table.size == 1


def test_slots_stay_while_an_old_reply_is_to_come() -> None:
    """What executed when the target fell tells the old one, perhaps after others told the new."""
    table = make(4)
    assert table.begin(1, 1, 1, False) == 0
    table.target = 2
    run(table, 0, 1)
    run(table, 0, 2)
    assert table.size == 4
    table.end(1, b"")
    run(table, 0, 3)
    assert table.size == 2


@pytest.mark.parametrize("sequence", [1, 6])
def test_slot_that_comes_back(sequence: int) -> None:
    """From the beginning, as Linux does once it was told sr_highest_slotid; or it goes on."""
    table = make(4)
    for before in range(1, 6):
        run(table, 3, before)
    table.target = 1
    run(table, 0, 1)
    run(table, 0, 2)
    table.target = 4
    assert table.begin(3, 5, 3, False) == Status.SEQ_MISORDERED  # no reply is left of it
    assert table.begin(3, 2, 3, False) == Status.SEQ_MISORDERED
    assert table.begin(3, sequence, 3, False) == 0
    table.cancel(3)
    run(table, 3, 7 - sequence, highest=3)  # still both
    assert table.begin(3, 7 - sequence, 3, False) == b"reply"
    assert table.begin(3, sequence, 3, False) == Status.SEQ_MISORDERED


def test_raised_before_the_client_followed() -> None:
    table = make(4)
    run(table, 3, 1, reply=b"kept")
    table.target = 1
    table.target = 4
    assert table.begin(3, 1, 3, False) == b"kept"
    run(table, 3, 2)


def test_retired_slots_give_their_replies_back() -> None:
    table = make(64)
    for slot in range(64):
        assert table.begin(slot, 1, slot, True) == 0
        table.end(slot, b"x" * 4096)
    assert table.counters["reply_bytes"] == 64 * 4096
    table.target = 1
    for sequence in (2, 3):
        assert table.begin(0, sequence, 0, True) == 0
        table.end(0, b"x" * 4096)
    assert table.counters["reply_bytes"] == 4096


def test_closed() -> None:
    table = make()
    assert table.begin(1, 1, 0, False) == 0
    table.close()
    table.close()
    assert table.is_closed
    assert table.begin(0, 1, 0, False) == Status.BADSESSION
    assert table.begin(1, 1, 0, False) == Status.BADSESSION
    table.end(1, b"the one that closed it")


def test_connections() -> None:
    table = make()
    for number in range(1, 17):
        table.bind(number)
    table.bind(3)  # once is enough
    assert all(table.is_bound(number) for number in range(1, 17))
    table.unbind(5)
    table.unbind(99)
    assert not table.is_bound(5) and not table.is_bound(0)
    table.bind(17)
    assert table.is_bound(17) and table.is_bound(1)
    table.bind(18)  # one has to go
    assert table.is_bound(18)
    assert sum(table.is_bound(number) for number in range(1, 19)) == 16
    with pytest.raises(ValueError, match="from 1"):
        table.bind(0)


def test_settings() -> None:
    table = make()
    assert (table.status_flags, table.request_max, table.response_max) == (0, WRAP - 1, WRAP - 1)
    table.status_flags, table.request_max, table.response_max = 1, 2, 3
    assert (table.status_flags, table.request_max, table.response_max) == (1, 2, 3)


def test_threads_execute_each_request_once() -> None:
    table = make(4)
    executed: list[tuple[int, int]] = []

    def send(slot: int) -> None:
        sequence = 1
        while sequence <= 300:
            reply = f"{slot} {sequence}".encode()
            answer = table.begin(slot, sequence, 3, True)
            if answer == 0:
                executed.append((slot, sequence))
                table.end(slot, reply)
            elif answer == Status.DELAY:
                continue
            else:
                assert answer in (reply, Status.SEQ_MISORDERED)
            sequence += 1

    threads = [threading.Thread(target=send, args=(slot % 4,)) for slot in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert not any(thread.is_alive() for thread in threads)
    assert sorted(executed) == [(slot, n) for slot in range(4) for n in range(1, 301)]


@dataclass
class ModelSlot:
    last: int | None = None
    reply: bytes | None = None
    executing: int | None = None
    told: int = -1  # the fall of the target that its last reply knew
    telling: int = -1
    came_back: bool = False


@dataclass
class Model:
    """The rules, as plainly as they can be said."""

    size: int
    target: int
    peak: int
    falls: int = 0
    slots: dict[int, ModelSlot] = field(default_factory=dict)

    def begin(self, slot: int, sequence: int, highest: int) -> int | bytes:
        if slot >= self.size:
            return Status.BADSLOT
        if highest >= self.peak:
            return Status.BAD_HIGH_SLOT
        state = self.slots.setdefault(slot, ModelSlot())
        if state.executing is not None:
            return Status.DELAY if sequence == state.executing else Status.SEQ_MISORDERED
        following = {1} if state.last is None else {(state.last + 1) % WRAP}
        if state.came_back:
            following.add(1)
        if sequence not in following:
            if sequence != state.last or state.came_back:
                return Status.SEQ_MISORDERED
            return Status.RETRY_UNCACHED_REP if state.reply is None else state.reply
        self.perhaps_retire(slot, highest)
        state.executing = sequence
        state.telling = self.falls
        return 0

    def perhaps_retire(self, slot: int, highest: int) -> None:
        state = self.slots[slot]
        busy = [(n, s) for n, s in self.slots.items() if s.executing is not None]
        if (
            max(slot, highest) < self.target < self.size
            and state.told == self.falls
            and all(n < self.target and s.telling == self.falls for n, s in busy)
        ):
            for n, gone in self.slots.items():
                if n >= self.target and gone.last is not None:
                    gone.came_back = True
                    gone.reply = None
            self.size = self.target

    def end(self, slot: int, reply: bytes | None) -> None:
        state = self.slots[slot]
        state.last, state.executing = state.executing, None
        state.reply, state.told, state.came_back = reply, state.telling, False


class SlotMachine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.table = make(3)
        self.model = Model(3, 3, 3)
        self.count = 0

    @property
    def executing(self) -> list[int]:
        return [n for n, slot in self.model.slots.items() if slot.executing is not None]

    @rule(
        slot=st.integers(0, 6), step=st.sampled_from([1, 1, 1, 0, 2, -1]), above=st.integers(0, 6)
    )
    def continued(self, slot: int, step: int, above: int) -> None:
        last = self.model.slots.get(slot, ModelSlot()).last or 0
        self.begin(slot, (last + step) % WRAP, above)

    @rule(slot=st.integers(0, 6), sequence=st.integers(0, 2), above=st.integers(0, 6))
    def begin(self, slot: int, sequence: int, above: int) -> None:
        expected = self.model.begin(slot, sequence, above)
        assert self.table.begin(slot, sequence, above, False) == expected

    @precondition(lambda self: self.executing)
    @rule(data=st.data(), is_kept=st.booleans())
    def end(self, data: st.DataObject, is_kept: bool) -> None:
        slot = data.draw(st.sampled_from(self.executing))
        self.count += 1
        reply = str(self.count).encode() if is_kept else None
        assert self.table.end(slot, reply) is is_kept
        self.model.end(slot, reply)

    @precondition(lambda self: self.executing)
    @rule(data=st.data())
    def cancel(self, data: st.DataObject) -> None:
        slot = data.draw(st.sampled_from(self.executing))
        self.table.cancel(slot)
        self.model.slots[slot].executing = None

    @rule(wanted=st.integers(1, 6))
    def retarget(self, wanted: int) -> None:
        model = self.model
        model.falls += wanted < model.target
        model.target, model.size = wanted, max(wanted, model.size)
        model.peak = max(model.peak, wanted)
        self.table.target = wanted

    @invariant()
    def same_size(self) -> None:
        assert (self.table.size, self.table.target) == (self.model.size, self.model.target)


TestSlotMachine = pytest.mark.slow(SlotMachine.TestCase)
