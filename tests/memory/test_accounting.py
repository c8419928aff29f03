# SPDX-License-Identifier: BSD-2-Clause
"""Charges: each page once, whatever overlaps, comes and goes; and what budgets refuse."""

from __future__ import annotations

import gc
import random
import threading
from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kept import PAGE, kept_from_children, memory, needs_pins, pinned
from livedma.errors import BudgetError
from livedma.memory import Pin, accounting, budget, pin, tenant

PAGES = 24
TENANTS = (None, "one", ("two", 2))


@pytest.fixture(autouse=True)
def _nothing_stays() -> Iterator[None]:
    needs_pins()
    before = accounting.process().charged
    yield
    gc.collect()
    assert accounting.process().charged == before
    budget(None)


class Model:
    """What is charged, as sets of pages; knows nothing of how it is done."""

    def __init__(self, base: int) -> None:
        self.base = base
        self.limits: dict[object, int] = {}
        self.pins: list[tuple[Pin, object, set[int], set[int]]] = []

    def touched(self, offset: int, length: int) -> set[int]:
        return {(self.base + at) // PAGE for at in range(offset, offset + length)}

    def whole(self, offset: int, length: int) -> set[int]:
        """Those of which no byte lies outside."""
        outside = self.touched(offset - PAGE, PAGE) | self.touched(offset + length, PAGE)
        return self.touched(offset, length) - outside

    def charged(self, owner: object = "everybody") -> int:
        pages = [p for _, who, p, _ in self.pins if owner in ("everybody", who)]
        return PAGE * len(set().union(*pages))

    def may_have(self, owner: object, pages: set[int]) -> bool:
        for who in {"everybody", *([] if owner is None else [owner])}:
            mine = set().union(*(p for _, w, p, _ in self.pins if who in ("everybody", w)))
            if not pages <= mine and PAGE * len(pages | mine) > self.limits.get(who, 1 << 62):
                return False
        return True


ranges = st.tuples(st.integers(0, PAGES * PAGE - 1), st.integers(0, 8 * PAGE)).map(
    lambda r: (r[0], min(r[1], PAGES * PAGE - r[0]))
)
limits = st.none() | st.integers(0, PAGES).map(lambda pages: pages * PAGE)
steps = st.lists(
    st.tuples(st.just("pin"), ranges, st.sampled_from(TENANTS))
    | st.tuples(st.just("release"), st.integers(0, 99), st.just(None))
    | st.tuples(st.just("limit"), limits, st.sampled_from(("everybody", *TENANTS[1:]))),
    max_size=25,
)


@pytest.mark.slow
@given(steps)
def test_every_page_is_charged_once_to_all_and_once_to_each_tenant(
    steps: list[tuple[str, object, object]],
) -> None:
    process = accounting.process()
    before, pinned_before = process.charged, pinned()
    with memory(PAGES * PAGE) as base:
        model = Model(base)
        for what, which, who in steps:
            if what == "limit":
                (process if who == "everybody" else tenant(who)).limit = (
                    which + before if which is not None and who == "everybody" else which
                )
                model.limits.pop(who, None)
                if which is not None:
                    model.limits[who] = which
            elif what == "release" and model.pins:
                model.pins.pop(which % len(model.pins))[0].release()
            elif what == "pin":
                offset, length = which
                pages = model.touched(offset, length)
                if model.may_have(who, pages):
                    made = pin(base + offset, length, who)
                    model.pins.append((made, who, pages, model.whole(offset, length)))
                else:
                    with pytest.raises(BudgetError, match="cannot pin"):
                        pin(base + offset, length, who)
            assert process.charged - before == model.charged() == pinned() - pinned_before
            assert [tenant(name).charged for name in TENANTS[1:]] == [
                model.charged(name) for name in TENANTS[1:]
            ]
            assert {p.how for p, *_ in model.pins} <= {"pinned"}
        private = set().union(*(whole for *_, whole in model.pins))
        assert kept_from_children(base, base + PAGES * PAGE) == {page * PAGE for page in private}
        for made, *_ in model.pins:
            made.release()
        assert not kept_from_children(base, base + PAGES * PAGE)
    assert (process.charged, pinned()) == (before, pinned_before)
    process.limit = None
    for name in TENANTS[1:]:
        tenant(name).limit = None


def test_a_budget_says_what_was_asked_what_is_taken_and_how_to_raise_it() -> None:
    with memory(8 * PAGE) as base:
        tenant("backup").limit = 4 * PAGE
        with pin(base, 3 * PAGE, "backup"):
            with pytest.raises(BudgetError) as refused:
                pin(base + PAGE, 6 * PAGE, "backup")
            assert str(refused.value) == (
                "cannot pin 24 KiB for the tenant 'backup': of its budget of 16 KiB, 12 KiB are "
                "taken, and 16 KiB more would be; livedma.memory.tenant('backup').limit = BYTES "
                "sets it"
            )
            budget(accounting.process().charged + PAGE)
            with pytest.raises(BudgetError, match=r"the process.*livedma\.memory\.budget\(BYTES\)"):
                pin(base + 4 * PAGE, 2 * PAGE)
            pin(base, 4 * PAGE, "other").release()  # one page more, and others are as they were
            assert tenant("backup").charged == 3 * PAGE
        tenant("backup").limit = None


def test_a_limit_below_what_is_charged_stops_only_what_is_new() -> None:
    with memory(4 * PAGE) as base, pin(base, 3 * PAGE, "late"):
        tenant("late").limit = PAGE
        pin(base + PAGE, PAGE, "late").release()
        with pytest.raises(BudgetError):
            pin(base + 3 * PAGE, PAGE, "late")
        tenant("late").limit = None
    with pytest.raises(ValueError, match="negative"):
        tenant("late").limit = -1


def test_tenants_that_have_nothing_are_forgotten() -> None:
    with memory(PAGE) as base:
        kept = tenant("limited")
        kept.limit = 5 * PAGE
        for number in range(100):
            pin(base, PAGE, ("client", number)).release()
        gc.collect()
        assert not [name for name in accounting._tenants if name[0] == "client"]
        assert tenant("limited") is kept
        kept.limit = None


def test_what_nobody_released_is_released_when_it_is_forgotten() -> None:
    with memory(4 * PAGE) as base:
        before = pinned()
        held = pin(base, 4 * PAGE)
        assert pinned() == before + 4 * PAGE
        circle: list[object] = [held]
        circle.append(circle)
        del held, circle
        gc.collect()
        assert pinned() == before


def test_threads_may_pin_what_they_like() -> None:
    """Also while the garbage collector, in the midst of it, releases what others forgot."""
    before, wrong = accounting.process().charged, []

    def work(seed: int, base: int) -> None:
        chance = random.Random(seed)
        try:
            for _ in range(150):
                first = chance.randrange(PAGES)
                made = pin(base + first * PAGE, chance.randrange(1, PAGES - first + 1) * PAGE, seed)
                if chance.random() < 0.5:
                    circle: list[object] = [made]
                    circle.append(circle)
                    del circle
                else:
                    made.release()
        except BaseException as error:  # for the test's thread to say
            wrong.append(error)

    with memory(PAGES * PAGE) as base:
        kinds = gc.get_threshold()
        gc.set_threshold(5)
        try:
            threads = [threading.Thread(target=work, args=(seed, base)) for seed in range(4)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join(60)
                assert not thread.is_alive()
        finally:
            gc.set_threshold(*kinds)
        gc.collect()
        assert not wrong
        assert accounting.process().charged == before
        assert not kept_from_children(base, base + PAGES * PAGE)
