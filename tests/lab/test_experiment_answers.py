# SPDX-License-Identifier: BSD-2-Clause
"""Experiments about memory: answers follow from the data, and they measure on the real parts."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from collections.abc import Set as AbstractSet

import pytest

from livedma.lab.experiment import pool, pool_ways, registry
from livedma.lab.experiment.design import Experiment, LeftOut, Measures, Point, grid
from livedma.lab.experiment.mlock import Locks
from livedma.lab.experiment.moving import EVENTS
from livedma.lab.experiment.moving import WAYS as MEMORIES
from livedma.lab.experiment.pages import Pages
from livedma.lab.experiment.paging import Paging
from livedma.lab.experiment.pool import Pools
from livedma.lab.experiment.pool_ways import WAYS
from livedma.lab.experiment.quantities import Value
from livedma.lab.experiment.runs import Row, Runs
from needs import needs

HUGE = 2 << 20


def data(
    experiment: Experiment, measures: Callable[[Point], Measures], **within: Sequence[str]
) -> Runs:
    """All points of the quick form, three turns, the second one on a machine half as fast; with the
    levels of factors that a run goes through by itself.
    """
    points = [
        {**point, **levels} for point in experiment.points("quick") for levels in grid(**within)
    ]
    return Runs(
        [
            Row(
                point,
                turn,
                0,
                {name: _slowed(name, value, turn) for name, value in measures(point).items()},
            )
            for point in points
            for turn in range(3)
        ]
    )


def _slowed(name: str, value: Value, turn: int) -> Value:
    if turn != 1 or not isinstance(value, int | float):
        return value
    return value * 2 if name.endswith("_ns") else value / 2 if name.endswith("per_s") else value


def number(point: Point, name: str) -> int:
    return int(str(point[name]))


class TestPages:
    def measures(self, huge_speed: float, fine_misses: float) -> Callable[[Point], Measures]:
        def of(point: Point) -> Measures:
            size, granule = number(point, "region_bytes"), number(point, "granule_bytes")
            is_large = size > 16 << 20
            is_huge = granule == HUGE
            return {
                "descriptors": size // granule,
                "map_ns": size / granule * 1000,
                "link_ns": size / granule * 10,
                "miss_share": fine_misses if is_large and not is_huge else 0.0,
                "small_bytes_per_s": 1e9 * (huge_speed if is_large and is_huge else 1),
                "large_bytes_per_s": 2e9,
                "backing": "hugetlb" if is_huge else "memfd",
            }

        return of

    def test_faster(self) -> None:
        answer = Pages().answer(data(Pages(), self.measures(1.5, 0.9)))
        assert answer[0] == (
            "2 MiB granules make random access faster from 256 MiB on: "
            "WRITEs of 4 KiB at 4 GiB are 1.5x faster than with 4 KiB granules."
        )
        assert answer[1] == (
            "4 GiB take 1,048,576 descriptors with 4 KiB granules and 2,048 with 2 MiB granules: "
            "512x."
        )
        assert "too small from 256 MiB on: up to 90 % of accesses miss" in answer[2]
        assert "2 MiB granules were backed by hugetlb." in answer

    def test_slower(self) -> None:
        answer = Pages().answer(data(Pages(), self.measures(0.5, 0.0)))
        assert answer[0].startswith(
            "2 MiB granules make random WRITEs of 4 KiB clearly faster at no"
        )
        assert "4 GiB: 2x slower" in answer[0]
        assert (
            answer[2] == "With 4 KiB granules at most 0 % of accesses miss, at any size measured."
        )

    def test_without_one_of_them_there_is_no_answer(self) -> None:
        runs = data(Pages(), self.measures(1, 0)).where(granule_bytes=HUGE)
        assert Pages().answer(runs) == ["No size could be measured with both granules."]


class TestPools:
    def measures(
        self, slow: Mapping[str, float], outcome: str = "works"
    ) -> Callable[[Point], Measures]:
        """slow: how many times as much as with shards a way costs; on the wire as little."""

        def of(point: Point) -> Measures:
            way = str(point["way"])
            if way == "each buffer" and outcome != "works":
                return {"outcome": outcome}
            misses = way in ("each buffer", "64 KiB in pieces", "each use")
            cost = slow.get(way, 1.0)
            return {
                "mappings": 7 * cost,
                "memory_ns": 1e6,
                "map_ns": 1e3 * cost,
                "setup_ns": 1e6 + 1e3 * cost,
                "miss_share": 1.0 if misses else 0.25,
                "host_ns": 40.0 * cost,
                "device_ns": 60.0 * cost + 6 * misses,
                "receive_ns": 100.0 * cost,
                "refill_ns": 40.0 * cost,
                "receive_bytes_per_s": 1.024e9 / slow.get("wire", 1.0) ** (way == "each buffer"),
                "given_back_share": 0.0 if way == "one slab" else 0.75,
                "frame_runs": 9.0,
                "scattered_runs": 16.0,
                "outcome": "works",
            }

        return of

    def answer(self, slow: Mapping[str, float], outcome: str = "works") -> list[str]:
        return Pools().answer(data(Pools(), self.measures(slow, outcome), way=list(WAYS)))

    def test_it_helps(self) -> None:
        answer = self.answer({"each buffer": 2, "wire": 1.5})
        assert answer[0] == (
            "Shards of 64 KiB help: with 16 connections of 1,024 buffers each a Receive costs "
            "100 ns instead of 200 ns with a mapping for each buffer (2x; 2x to 2x), set-up 1 ms "
            "instead of 1 ms (no clear difference), and on the wire throughput is 1.5x more; with "
            "1 connection of 72 buffers each a Receive costs 100 ns instead of 200 ns."
        )

    def test_it_saves_work_that_does_not_show(self) -> None:
        answer = self.answer({"each buffer": 2, "each use": 3})
        assert answer[0].startswith("Shards of 64 KiB save work, and give no throughput: with 16")
        assert "and on the wire, where a message takes 1 us, it does not show; with 1" in answer[0]
        (miss,) = (text for text in answer if text.startswith("A translation miss costs"))
        assert (
            "costs this device some 8 ns: the same shards with memory in pieces miss 100 %" in miss
        )
        assert "For a device whose miss costs 500 ns the same counts would be 375 ns" in miss
        (use,) = (text for text in answer if text.startswith("Mapping for each use"))
        assert "each Receive costs 3x more than with shards (100 ns instead of 300 ns" in use

    def test_it_does_not(self) -> None:
        answer = self.answer({"64 KiB": 2})
        assert answer[0].startswith("Shards of 64 KiB do not make a Receive cheaper: ")
        (slab,) = (text for text in answer if text.startswith("Against one slab"))
        assert "the cost of a Receive is 2x more; a slab gives back 0 % of its memory" in slab

    def test_a_refusal_is_a_finding(self) -> None:
        assert self.answer({}, "refused: no room") == [
            "Shards of 64 KiB and a mapping for each buffer could not both be measured."
        ]


class TestLocks:
    def answer(self, moved: Mapping[tuple[str, str], int]) -> list[str]:
        def of(point: Point) -> Measures:
            count = moved.get((str(point["event"]), str(point["way"])), 0)
            return {
                "pages": 8192,
                "moved": count,
                "moved_share": count / 8192,
                "lost": 0,
                "changed": 0,
                "locked_bytes": 32 << 20 if point["way"] == "locked" else None,
                "pinned_bytes": 32 << 20 if point["way"] == "pinned" else None,
                "outcome": "refused: busy" if point["way"] == "pinned" else "done",
            }

        return Locks().answer(data(Locks(), of, way=MEMORIES))

    def test_locked_pages_move(self) -> None:
        answer = self.answer({("compaction", "locked"): 12, ("huge pages", "locked"): 8192})
        assert answer[0] == (
            "mlock is not enough for DMA: locked pages get other physical frames in compaction and "
            "huge pages (up to 100 % of them in one run); no pinned page moved in any run."
        )
        assert answer[1] == (
            "Compaction, pages of 8,192 that moved: plain 0, locked 12, pinned 0; the kernel's "
            "answer: pinned refused: busy."
        )
        assert "32 MiB locked (VmLck) and 32 MiB pinned (VmPin)" in answer[-2]
        assert answer[-1].startswith("0 pages had other content afterwards: the process does not")

    def test_nothing_moved(self) -> None:
        answer = self.answer({})
        assert answer[0].startswith("No locked page moved in compaction, huge pages and merging; ")
        assert answer[0].endswith("that proves nothing.")

    def test_pinned_pages_move_too(self) -> None:
        answer = self.answer({("merging", "locked"): 1, ("merging", "pinned"): 2})
        assert answer[0].startswith("Locked pages get other physical frames in merging")
        assert answer[0].endswith("but pinned pages moved, too (2 in one run).")


class TestPaging:
    def measures(self, is_cheap: bool, pressed: Mapping[str, str]) -> Callable[[Point], Measures]:
        def of(point: Point) -> Measures:
            way, size = str(point["way"]), number(point, "region_bytes")
            is_pinned = way == "pinned"
            if point["limit"] != "none":
                return {"outcome": pressed[way]}
            return {
                "register_ns": size / 10 if is_pinned == is_cheap else 1e5,
                "first_ns": 1e4 if is_pinned or way.endswith("prefetched") else 1e6,
                "later_ns": 1e4,
                "first_bytes_per_s": 1e9,
                "later_bytes_per_s": 1e9 if is_pinned or is_cheap else 2e8,
                "rnr_naks": 300 if way == "on demand" else 0,
                "prefetch_ns": size / 20 if way.endswith("prefetched") else None,
                "pinned_bytes": size if is_pinned else 0,
                "resident_bytes": size,
                "outcome": "works",
            }

        return of

    def test_it_pays(self) -> None:
        pressed = {"pinned": "killed", "on demand": "works", "on demand, prefetched": "works"}
        answer = Paging().answer(data(Paging(), self.measures(True, pressed)))
        assert answer[0] == (
            "Memory on demand is registered 67.1x faster than pinned memory at 64 MiB; a first "
            "access of a page takes 100x longer, and it costs nothing later on."
        )
        assert answer[1] == (
            "With memory for half of 256 MiB, of which the peer uses a quarter: pinned - killed; "
            "on demand - works; on demand, prefetched - works."
        )
        assert any("64 MiB cannot be moved" in text and "0 B on demand" in text for text in answer)

    def test_it_does_not(self) -> None:
        pressed = dict.fromkeys(("pinned", "on demand", "on demand, prefetched"), "works")
        answer = Paging().answer(data(Paging(), self.measures(False, pressed)))
        assert "67.1x slower than pinned" in answer[0]
        assert answer[0].endswith("and later passes are 5x slower.")
        assert "pinned - works; on demand - works" in answer[1]


@pytest.mark.slow
class TestMeasuring:
    """One small point of each kind, on real devices and real memory."""

    @pytest.mark.parametrize("granule", [4096, HUGE])
    def test_pages(self, granule: int) -> None:
        found = Pages().run({"granule_bytes": granule, "region_bytes": 4 << 20})
        # transparent huge pages may not come
        assert found["descriptors"] in ((4 << 20) // 4096, (4 << 20) // granule)
        assert found["miss_share"] == 0
        _check_columns(Pages(), found)

    def test_pool(self, monkeypatch: pytest.MonkeyPatch) -> None:
        for module, name, value in (
            (pool, "_MESSAGES", 200),
            (pool, "_STREAMS", 2),
            (pool_ways, "_SLICES", 3),
        ):
            monkeypatch.setattr(module, name, value)
        rows = Pools().rows({"buffers": 32, "connections": 2})
        found = {str(levels["way"]): measures for levels, measures in rows}
        assert {way: row["mappings"] for way, row in found.items()} == {
            "each buffer": 64,
            "16 KiB": 16,
            "64 KiB": 4,
            "1 MiB": 2,
            "one slab": 2,
            "64 KiB in pieces": 4,
            "each use": None,
        }
        assert found["64 KiB in pieces"]["pieces"] == 64
        assert found["1 MiB"]["mapped_bytes"] == 2 << 20  # a shard is mapped whole
        assert found["64 KiB"]["mapped_bytes"] == 64 * 4096
        # All of the shards fits into the device's translation cache; pieces of 4 KiB displace each
        # other in it, and what is mapped for one use was never in it.
        assert found["64 KiB"]["miss_share"] == 0
        assert float(str(found["each buffer"]["miss_share"])) > 0.5
        assert found["64 KiB in pieces"]["miss_share"] == found["each use"]["miss_share"] == 1
        assert found["each buffer"]["given_back_share"] == 0.75
        assert found["one slab"]["given_back_share"] == found["1 MiB"]["given_back_share"] == 0
        seen = {"frame_runs", "scattered_runs"}
        root_alone = seen if os.geteuid() else set()
        _check_columns(Pools(), found["64 KiB"], root_alone)
        for way in ("each buffer", "16 KiB", "1 MiB", "one slab"):
            _check_columns(Pools(), found[way], seen)
        for way in ("64 KiB in pieces", "each use"):
            none = {"mappings", "pieces"} if way == "each use" else set()
            _check_columns(Pools(), found[way], seen | none | {"given_back_share"})

    def test_scattered_memory_comes_in_more_pieces(self) -> None:
        needs(os.geteuid() == 0, "physical frames are shown to root alone")
        found = pool._contiguity(256, 4)
        assert 1 <= float(str(found["frame_runs"])) <= 16
        assert float(str(found["scattered_runs"])) > 8  # of 16 pages of a shard

    @pytest.mark.parametrize("event", list(EVENTS))
    def test_mlock(self, event: str) -> None:
        """Locked pages move, and pinned ones never do; neither is seen by the process."""
        try:
            EVENTS[event].check()
        except LeftOut as reason:
            needs(False, str(reason))
        experiment = Locks()
        experiment.range_bytes = 4 << 20
        found = {str(levels["way"]): row for levels, row in experiment.rows({"event": event})}
        assert {row["pages"] for row in found.values()} == {1024}
        assert found["pinned"]["moved"] == 0
        assert {row["changed"] for row in found.values()} == {row["lost"] for row in found.values()}
        assert found["locked"]["changed"] == 0
        for row in found.values():
            lines = [line.split("  ") for line in str(row["shown"]).splitlines()]
            assert len(lines) == min(3, int(str(row["moved"])) or 3)
            assert all((one != other) == bool(row["moved"]) for _, one, other in lines)
        assert found["locked"]["locked_bytes"] == found["pinned"]["pinned_bytes"] == 4 << 20
        if event == "huge pages" and found["locked"]["outcome"] == "done":
            assert found["locked"]["moved"] == found["plain"]["moved"] == 1024
        if event == "merging" and found["locked"]["outcome"] == "merged":
            assert int(str(found["locked"]["moved"])) > 512

    def test_a_pool_that_cannot_be_had_is_a_result(self) -> None:
        """In a process that may not have so many addresses."""
        program = (
            "import resource\n"
            "from livedma.lab.experiment.pool import Pools\n"
            "taken = int(open('/proc/self/statm').read().split()[0]) * 4096\n"
            "resource.setrlimit(resource.RLIMIT_AS, (taken + (900 << 20),) * 2)\n"
            "print(Pools().run({'way': 'one slab', 'buffers': 4096, 'connections': 64}))\n"
        )
        ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
        assert ran.stdout.startswith("{'outcome': 'refused: "), ran.stderr

    @pytest.mark.parametrize("way", ["pinned", "on demand", "on demand, prefetched"])
    def test_paging(self, way: str) -> None:
        found = Paging().run({"way": way, "region_bytes": 1 << 20, "limit": "none"})
        assert bool(found["pinned_bytes"]) == (way == "pinned")
        assert bool(found["rnr_naks"]) == (way == "on demand")
        without = set() if way.endswith("prefetched") else {"prefetch_ns"}
        _check_columns(Paging(), found, without)

    @pytest.mark.slow
    def test_paging_under_pressure(self) -> None:
        needs(os.geteuid() == 0, "control groups need root")
        outcomes = {
            way: Paging().run({"way": way, "region_bytes": 256 << 20, "limit": "half the region"})
            for way in ("pinned", "on demand")
        }
        assert outcomes["pinned"]["outcome"] != "works"
        assert outcomes["on demand"]["outcome"] == "works"


def _check_columns(
    experiment: Experiment, found: Measures, without: AbstractSet[str] = frozenset()
) -> None:
    """Every measure that is promised, and nothing else."""
    measured = {name for name, value in found.items() if value is not None}
    assert measured == {column.name for column in experiment.measures} - without
    for column in experiment.measures:
        if column.unit in ("ns", "bytes_per_s") and column.name in measured:
            assert float(str(found[column.name])) > 0


@pytest.mark.parametrize("experiment", registry.EXPERIMENTS, ids=lambda each: each.name)
class TestDesign:
    def test_a_question_is_one_sentence(self, experiment: Experiment) -> None:
        assert experiment.question.endswith("?") and experiment.question.count("?") == 1

    def test_full_measures_more(self, experiment: Experiment) -> None:
        quick, full = (
            len(experiment.points(form)) * experiment.repetitions(form)
            for form in ("quick", "full")
        )
        assert full > quick

    @pytest.mark.parametrize("form", ["quick", "full"])
    def test_points_have_all_factors_once(self, experiment: Experiment, form: str) -> None:
        points = experiment.points(form)  # type: ignore[arg-type]
        names = [one.name for one in experiment.factors if one.name not in experiment.within]
        assert all(list(point) == names for point in points)
        assert len({tuple(point.values()) for point in points}) == len(points)
