# SPDX-License-Identifier: BSD-2-Clause
"""Where memory may come from: nodes, limits, free ranges; as functions of recorded trees."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from livedma.memory.headroom import Gauge, Headroom, headroom
from livedma.memory.holes import Holes
from livedma.memory.numa import node_of

MEMINFO = """\
MemTotal:        6400 kB
MemFree:          100 kB
MemAvailable:    1100 kB
HugePages_Total:       0
"""


def tree(root: Path, files: dict[str, str]) -> Path:
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return root


TWO_NODES = {"devices/system/node/online": "0-1\n"}


@pytest.mark.parametrize(
    ("files", "node"),
    [
        ({}, None),
        ({"class/net/x/device/numa_node": "1\n"}, None),  # no nodes at all
        ({"devices/system/node/online": "0\n", "class/net/x/device/numa_node": "0\n"}, None),
        ({**TWO_NODES, "class/net/x/device/numa_node": "1\n"}, 1),
        ({**TWO_NODES, "class/net/x/device/numa_node": "-1\n"}, None),
        ({**TWO_NODES, "class/net/x/mtu": "1500\n"}, None),  # veth, lo: nowhere
        ({**TWO_NODES, "class/net/x/lower_y/name": "", "class/net/y/device/numa_node": "1"}, 1),
        (
            {
                **TWO_NODES,
                "class/net/x/lower_y/name": "",
                "class/net/x/lower_z/name": "",
                "class/net/y/lower_x/name": "",  # a circle
                "class/net/y/device/numa_node": "1",
                "class/net/z/device/numa_node": "0",
            },
            None,
        ),
    ],
)
def test_the_node_of_an_interface(tmp_path: Path, files: dict[str, str], node: int | None) -> None:
    assert node_of("x", tree(tmp_path, files)) == node


def test_the_machine_is_a_limit(tmp_path: Path) -> None:
    found = headroom(tree(tmp_path, {"proc/meminfo": MEMINFO}))
    assert (found.free, found.limit) == (1000 << 10, "the machine's memory (6 MiB)")
    assert headroom(tmp_path / "nothing").free == 0


def test_cgroups_are_limits(tmp_path: Path) -> None:
    """The tightest counts: here it is not the process's own, but one above."""
    root = tree(
        tmp_path,
        {
            "proc/meminfo": MEMINFO,
            "proc/self/cgroup": "0::/a/b\n",
            "sys/fs/cgroup/cgroup.controllers": "memory\n",
            "sys/fs/cgroup/a/memory.max": f"{640 << 10}\n",
            "sys/fs/cgroup/a/memory.current": f"{600 << 10}\n",
            "sys/fs/cgroup/a/memory.stat": f"anon 1\ninactive_file {100 << 10}\n",
            "sys/fs/cgroup/a/b/memory.max": "max\n",
            "sys/fs/cgroup/a/b/memory.current": "5\n",
        },
    )
    found = headroom(root)
    assert found.free == (640 - 600 + 100 - 10) << 10
    assert found.limit == "memory.max of /sys/fs/cgroup/a (0 MiB)"


def test_cgroups_of_the_first_version_are_limits(tmp_path: Path) -> None:
    root = tree(
        tmp_path,
        {
            "proc/meminfo": MEMINFO,
            "proc/self/cgroup": "4:memory:/c\n2:cpu:/elsewhere\n0::/\n",
            "sys/fs/cgroup/memory/c/memory.limit_in_bytes": f"{64 << 10}\n",
            "sys/fs/cgroup/memory/c/memory.usage_in_bytes": f"{200 << 10}\n",
            "sys/fs/cgroup/memory/c/memory.stat": "total_inactive_file 0\n",
        },
    )
    assert headroom(root).free == 0


def test_this_machine_has_room() -> None:
    assert headroom().free > 1 << 20


@given(
    st.lists(
        st.one_of(
            st.tuples(st.just("take"), st.integers(1, 40), st.sampled_from([1, 4, 16])),
            st.tuples(st.just("claim"), st.integers(0, 120), st.integers(0, 40)),
            st.tuples(st.just("give"), st.integers(0, 100), st.just(0)),
        ),
        max_size=60,
    )
)
def test_holes_are_what_was_not_taken(steps: list[tuple[str, int, int]]) -> None:
    """Against a row of bytes; the first place that fits is taken."""
    holes, taken, ranges = Holes(100), bytearray(100), []
    for what, one, other in steps:
        if what == "take":
            fits = (
                at for at in range(0, 101 - one, other) if not any(taken[at : at + one])
            )  # fmt: skip
            expected = next(fits, None)
            assert holes.take(one, other) == expected
            if expected is not None:
                ranges.append((expected, one))
                taken[expected : expected + one] = b"x" * one
        elif what == "claim":
            is_free = other > 0 and one + other <= 100 and not any(taken[one : one + other])
            assert holes.claim(one, other) == is_free
            if is_free:
                ranges.append((one, other))
                taken[one : one + other] = b"x" * other
        elif ranges:
            at, size = ranges.pop(one % len(ranges))
            holes.give(at, size)
            taken[at : at + size] = bytes(size)
            with pytest.raises(ValueError, match="was not taken"):
                holes.give(at, size)
        assert holes.free == taken.count(0)
        runs = bytes(taken).replace(b"x", b" ").split()
        assert holes.largest == max(map(len, runs), default=0)


class TestGauge:
    """A machine with a mebibyte left, and a clock that stands still unless told."""

    def setup_method(self) -> None:
        self.free, self.now_s, self.looks = 1 << 20, 100.0, 0
        self.gauge = Gauge(self.look, lambda: self.now_s)

    def look(self) -> Headroom:
        self.looks += 1
        return Headroom(self.free, "the machine")

    def test_many_small_wishes_take_one_look(self) -> None:
        assert [self.gauge.refusal(4096) for _ in range(4)] == [None] * 4
        assert self.looks == 1

    def test_it_looks_again_when_a_part_is_granted(self) -> None:
        for _ in range(5):
            self.gauge.refusal(4096)
        assert self.looks == 2

    def test_it_looks_again_after_a_while(self) -> None:
        self.gauge.refusal(1)
        self.now_s += 1
        self.gauge.refusal(1)
        assert self.looks == 2

    def test_it_refuses_by_what_is_there_now(self) -> None:
        assert self.gauge.refusal((1 << 20) + 1) == Headroom(1 << 20, "the machine")
        self.free = 2 << 20
        assert self.gauge.refusal((1 << 20) + 1) is None
        self.free = 100
        assert self.gauge.refusal(1 << 20) == Headroom(100, "the machine")
