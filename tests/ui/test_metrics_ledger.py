# SPDX-License-Identifier: BSD-2-Clause
"""Whatever comes, goes and is labelled later: series only grow, sums are exact, labels are few."""

from __future__ import annotations

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from livedma.ui.metrics.ledger import Ledger, Seen, Tally

WIDTH = 3
REST_S = 10.0


def plus(*tallies: Tally) -> Tally:
    return tuple(map(sum, zip((0,) * WIDTH, *tallies, strict=True)))


def at_least(after: Tally, before: Tally) -> bool:
    return all(a >= b for a, b in zip(after, before, strict=True))


class Life(RuleBasedStateMachine):
    """Things that count, against books of our own."""

    @initialize(most=st.integers(0, 4))
    def begin(self, most: int) -> None:
        self.most = most
        self.now_s = 0.0
        self.ledger: Ledger[int] = Ledger(WIDTH, most, rest_s=REST_S, clock=lambda: self.now_s)
        self.live: dict[int, Tally] = {}
        self.ended: dict[int, Tally] = {}
        self.names = 0
        self.seen: Seen[int] = self.ledger.see({})
        self.labelled: list[tuple[float, int]] = []

    @rule()
    def comes(self) -> None:
        self.names += 1
        self.live[self.names] = (0,) * WIDTH

    @precondition(lambda self: self.live)
    @rule(data=st.data(), more=st.tuples(*[st.integers(0, 1 << 40)] * WIDTH))
    def counts(self, data: st.DataObject, more: Tally) -> None:
        key = data.draw(st.sampled_from(sorted(self.live)))
        self.live[key] = plus(self.live[key], more)

    @precondition(lambda self: self.live)
    @rule(data=st.data())
    def goes(self, data: st.DataObject) -> None:
        key = data.draw(st.sampled_from(sorted(self.live)))
        self.ended[key] = self.live.pop(key)
        self.ledger.end(key, self.ended[key])

    @rule(seconds=st.floats(0, 2 * REST_S))
    def time_passes(self, seconds: float) -> None:
        self.now_s += seconds

    @rule()
    def is_looked_at(self) -> None:
        before, seen = self.seen, self.ledger.see(self.live)
        self.seen = seen
        assert seen.total == plus(*self.live.values(), *self.ended.values())
        assert at_least(seen.total, before.total) and at_least(seen.other, before.other)
        assert seen.own.keys() <= self.live.keys() and len(seen.own) <= self.most
        for key, tally in before.own.items():
            assert (key in seen.own) == (key in self.live)  # only its end takes a label away
            assert key not in seen.own or at_least(seen.own[key], tally)
        for key in seen.own.keys() - before.own.keys():
            assert key not in [name for _, name in self.labelled]
            self.labelled.append((self.now_s, key))
        # All that was ever counted is in one series, or was in one that is gone.
        assert at_least(seen.total, plus(seen.other, *seen.own.values()))
        if self.most == 0:
            assert seen.other == seen.total

    @rule()
    def two_looks_at_the_same_agree(self) -> None:
        self.is_looked_at()
        assert self.ledger.see(self.live) == self.seen

    @invariant()
    def labels_are_not_made_faster_than_they_rest(self) -> None:
        for at_s, _ in getattr(self, "labelled", []):
            since = [one for one, _ in self.labelled if at_s <= one < at_s + REST_S]
            assert len(since) <= self.most


TestLife = pytest.mark.slow(Life.TestCase)


def test_who_is_labelled_later_keeps_what_was_the_others() -> None:
    now_s = 0.0
    ledger: Ledger[str] = Ledger(1, 1, rest_s=REST_S, clock=lambda: now_s)
    assert ledger.see({"a": (5,), "b": (3,)}) == Seen({"a": (5,)}, (3,), (8,))
    ledger.end("a", (6,))
    assert ledger.see({"b": (4,)}) == Seen({}, (4,), (10,))  # the place rests
    now_s = REST_S
    assert ledger.see({"b": (7,)}) == Seen({"b": (0,)}, (7,), (13,))
    assert ledger.see({"b": (9,)}) == Seen({"b": (2,)}, (7,), (15,))
    ledger.end("b", (10,))
    assert ledger.see({}) == Seen({}, (7,), (16,))


def test_who_does_most_is_labelled_first() -> None:
    ledger: Ledger[int] = Ledger(1, 2)
    assert ledger.see({n: (n % 7,) for n in range(10)}).own.keys() == {6, 5}


def test_who_came_and_went_unseen_is_the_others() -> None:
    ledger: Ledger[int] = Ledger(1, 2)
    ledger.end(1, (4,))
    assert ledger.see({}) == Seen({}, (4,), (4,))
