# SPDX-License-Identifier: BSD-2-Clause
"""Byte ranges against a model that knows every byte."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from livedma.nfs.server.state.byteranges import LAST, ByteRanges, Locked


@dataclass(frozen=True, eq=False)
class Holder:
    """Two of them may be of one owner."""

    lock_owner: str
    name: str


HOLDERS = [Holder("a", "a1"), Holder("a", "a2"), Holder("b", "b1"), Holder("c", "c1")]
# Ranges begin and end at the ends of the world; one byte stands for all that lies between, of which
# a range has either all or nothing.
LOW, MIDDLE, HIGH = range(12), LAST // 2, range(LAST - 11, LAST + 1)
BYTES = [*LOW, MIDDLE, *HIGH]
PLACES = st.sampled_from([*LOW, *HIGH])


class Ranges(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.ranges: ByteRanges[Holder] = ByteRanges()
        self.model: dict[str, dict[int, tuple[bool, Holder]]] = {"a": {}, "b": {}, "c": {}}

    def span(self, one: int, other: int) -> tuple[int, int, list[int]]:
        first, last = min(one, other), max(one, other)
        return first, last, [place for place in BYTES if first <= place <= last]

    def in_the_way(self, owner: str, places: list[int], is_exclusive: bool) -> set[Holder]:
        return {
            held[place][1]
            for other, held in self.model.items()
            if other != owner
            for place in places
            if place in held and (is_exclusive or held[place][0])
        }

    @rule(holder=st.sampled_from(HOLDERS), one=PLACES, other=PLACES, is_exclusive=st.booleans())
    def lock(self, holder: Holder, one: int, other: int, is_exclusive: bool) -> None:
        first, last, places = self.span(one, other)
        found = list(self.ranges.conflicts(holder.lock_owner, first, last, is_exclusive))
        expected = self.in_the_way(holder.lock_owner, places, is_exclusive)
        assert {lock.holder for lock in found} == expected
        for lock in found:
            assert lock.first <= last and lock.last >= first
        if not found:
            self.ranges.lock(holder, first, last, is_exclusive)
            self.model[holder.lock_owner] |= dict.fromkeys(places, (is_exclusive, holder))

    @rule(owner=st.sampled_from("abc"), one=PLACES, other=PLACES)
    def unlock(self, owner: str, one: int, other: int) -> None:
        first, last, places = self.span(one, other)
        self.ranges.unlock(owner, first, last)
        for place in places:
            self.model[owner].pop(place, None)

    @rule(holder=st.sampled_from(HOLDERS))
    def drop(self, holder: Holder) -> None:
        self.ranges.drop(holder)
        held = self.model[holder.lock_owner]
        self.model[holder.lock_owner] = {
            place: lock for place, lock in held.items() if lock[1] is not holder
        }

    @invariant()
    def same_bytes(self) -> None:
        found: dict[str, dict[int, tuple[bool, Holder]]] = {"a": {}, "b": {}, "c": {}}
        for lock in self.ranges:
            assert 0 <= lock.first <= lock.last <= LAST
            for place in BYTES:
                if lock.first <= place <= lock.last:
                    assert place not in found[lock.holder.lock_owner]
                    found[lock.holder.lock_owner][place] = (lock.is_exclusive, lock.holder)
        assert found == self.model

    @rule(one=PLACES, other=PLACES)
    def unheld(self, one: int, other: int) -> None:
        first, last, places = self.span(one, other)
        gaps = list(self.ranges.unheld(first, last))
        held = {place for owned in self.model.values() for place in owned}
        assert {p for p in places if any(a <= p <= b for a, b in gaps)} == set(places) - held
        for before, after in pairwise([(first - 2, first - 2), *gaps, (last + 2, last + 2)]):
            assert before[1] + 1 < after[0] and after[0] <= after[1]

    @invariant()
    def neighbours_are_one(self) -> None:
        locks = list(self.ranges)
        assert len(self.ranges) == len(locks) == sum(map(self.ranges.count, "abc"))
        for before, after in pairwise(locks):
            if before.holder is after.holder and before.is_exclusive == after.is_exclusive:
                assert before.last + 1 < after.first

    @invariant()
    def who_holds(self) -> None:
        for holder in HOLDERS:
            held = self.model[holder.lock_owner].values()
            assert self.ranges.holds(holder) == any(by is holder for _, by in held)
            assert [lock for lock in self.ranges if lock.holder is holder] == self.ranges.of(holder)


TestRanges = pytest.mark.slow(Ranges.TestCase)
TestRanges.settings = settings(max_examples=150, stateful_step_count=30)


def test_unlocking_the_middle_leaves_two() -> None:
    ranges: ByteRanges[Holder] = ByteRanges()
    holder = HOLDERS[0]
    ranges.lock(holder, 0, LAST, True)
    ranges.unlock("a", 100, 199)
    assert list(ranges) == [Locked(0, 99, True, holder), Locked(200, LAST, True, holder)]
    ranges.lock(holder, 100, 199, True)
    assert list(ranges) == [Locked(0, LAST, True, holder)]
    ranges.lock(holder, 100, 199, False)
    assert [lock.is_exclusive for lock in ranges] == [True, False, True]
    ranges.unlock("a", 0, LAST)
    assert not ranges.holds(holder)
