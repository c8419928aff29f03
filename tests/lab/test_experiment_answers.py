# SPDX-License-Identifier: BSD-2-Clause
"""The three experiments: their answers follow from the data, and they measure on the real parts."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Mapping
from collections.abc import Set as AbstractSet

import pytest

from livedma.lab.experiment import pool, registry
from livedma.lab.experiment.design import Experiment, Measures, Point
from livedma.lab.experiment.pages import Pages
from livedma.lab.experiment.paging import Paging
from livedma.lab.experiment.pool import Pools
from livedma.lab.experiment.quantities import Value
from livedma.lab.experiment.runs import Row, Runs
from needs import needs

HUGE = 2 << 20


def data(experiment: Experiment, measures: Callable[[Point], Measures]) -> Runs:
    """All points of the quick form, three turns, the second one on a machine half as fast."""
    return Runs(
        [
            Row(
                point,
                turn,
                0,
                {name: _slowed(name, value, turn) for name, value in measures(point).items()},
            )
            for point in experiment.points("quick")
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
        self, mapping_ns: float, given_back: Mapping[str, float], outcome: str = "works"
    ) -> Callable[[Point], Measures]:
        def of(point: Point) -> Measures:
            buffers = number(point, "buffers") * number(point, "connections")
            shard = str(point["shard"])
            each = {"each buffer": 1, "16 KiB": 4, "64 KiB": 16, "1 MiB": 256}.get(shard, buffers)
            if shard == "each buffer" and outcome != "works":
                return {"outcome": outcome}
            mappings = -(-buffers // each)
            return {
                "mappings": mappings,
                "setup_ns": 1e6 + mappings * mapping_ns,
                "teardown_ns": 1e6 + mappings * mapping_ns,
                "mapped_bytes": buffers * 4096,
                "resident_bytes": buffers * 4096,
                "miss_share": 0.1,
                "receive_ns": 50.0,
                "receive_bytes_per_s": 1e9,
                "given_back_share": given_back.get(shard, 0.0),
                "outcome": "works",
            }

        return of

    def test_it_helps(self) -> None:
        answer = Pools().answer(data(Pools(), self.measures(50e3, {"64 KiB": 0.75})))
        assert answer[0].startswith("A pool of shards helps where connections come and go (set up ")
        assert "and where the load falls (75 % of the memory can be given back, 0 % of" in answer[0]
        assert answer[0].endswith("; receiving is not clearly faster.")
        assert "they make no clear difference to cost per Receive, throughput" in answer[1]
        assert "they cost setup" in answer[2]

    def test_it_does_not(self) -> None:
        answer = Pools().answer(data(Pools(), self.measures(0, {"one slab": 0.75})))
        assert answer[0] == "A pool of shards helps with nothing that was measured."
        assert "cost giving memory back (0 % against 75 %)" in answer[2]

    def test_a_refusal_is_a_finding(self) -> None:
        answer = Pools().answer(data(Pools(), self.measures(1, {}, "refused: no room")))
        assert answer[-1].startswith("Shard each buffer, 16 connections of 1,024 buffers each:")
        assert answer[-1].endswith("refused: no room.")


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

    @pytest.mark.parametrize(
        ("shard", "mappings"), [("each buffer", 32), ("64 KiB", 2), ("one slab", 2)]
    )
    def test_pool(self, shard: str, mappings: int, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(pool, "_MESSAGES", 200)
        found = Pools().run({"shard": shard, "buffers": 16, "connections": 2})
        assert found["mappings"] == mappings
        assert found["mapped_bytes"] == 32 * 4096
        assert found["outcome"] == "works"
        assert found["given_back_share"] == (0.75 if shard == "each buffer" else 0)
        _check_columns(Pools(), found, without={"miss_share"} if shard == "each buffer" else set())

    def test_a_pool_that_cannot_be_had_is_a_result(self) -> None:
        """In a process that may not have so many addresses."""
        program = (
            "import resource\n"
            "from livedma.lab.experiment.pool import Pools\n"
            "taken = int(open('/proc/self/statm').read().split()[0]) * 4096\n"
            "resource.setrlimit(resource.RLIMIT_AS, (taken + (900 << 20),) * 2)\n"
            "print(Pools().run({'shard': 'one slab', 'buffers': 4096, 'connections': 64}))\n"
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
