# SPDX-License-Identifier: BSD-2-Clause
"""Facts about host, cgroups and processes, from texts of other machines."""

from __future__ import annotations

from pathlib import Path

import pytest
from machines import OLD, TWO_NODES, machine, process

from livedma.errors import LivedmaError
from livedma.memory.host import Files, look
from livedma.memory.host.cgroup import Place, memory_of, mounts, place_of
from livedma.memory.host.huge import HugePool, pools, transparent
from livedma.memory.host.process import MemlockLimit, command_line, limits, status
from livedma.memory.host.system import host
from livedma.memory.host.text import chosen, pairs, pressure, size_text
from livedma.privilege import maps_all_users

ALL_CAPABILITIES = "000001ffffffffff"


def test_a_large_host(tmp_path: Path) -> None:
    found = host(machine(tmp_path, TWO_NODES), page_size=4096)
    assert (found.name, found.kernel) == ("storage7", "6.8.0-45-generic")
    assert found.total == 528085896 << 10
    assert found.pinned == (91234567 - 90185991) * 4096
    assert found.locked == 1 << 30
    assert found.pressure == {
        "some": {"avg10": 12.34, "avg60": 5.0, "avg300": 1.0},
        "full": {"avg10": 3.2, "avg60": 1.0, "avg300": 0.1},
    }
    assert found.counters["compact_fail"] == 5
    assert found.overcommit == "heuristic"
    assert found.may_compact_locked is True
    assert len(found.zones) == 4


def test_an_old_host(tmp_path: Path) -> None:
    found = host(machine(tmp_path, OLD), page_size=4096)
    assert found.pinned is None
    assert found.pins_since_boot is None
    assert found.pressure is None
    assert found.transparent is None
    assert found.huge_pools == []
    assert found.counters == {"compact_stall": 3, "compact_fail": 3}
    assert found.overcommit == "never"
    assert found.may_compact_locked is None


def test_pages_that_are_let_go_before_they_are_counted(tmp_path: Path) -> None:
    text = {"proc/vmstat": "nr_foll_pin_acquired 10\nnr_foll_pin_released 12\n"}
    assert host(machine(tmp_path, text), page_size=4096).pinned == 0


def test_nothing_at_all(tmp_path: Path) -> None:
    snapshot = look(Files(tmp_path), page_size=4096)
    assert snapshot.processes == []
    assert snapshot.host.total == 0
    assert snapshot.host.overcommit is None


def test_huge_pages_by_node(tmp_path: Path) -> None:
    found = pools(machine(tmp_path, TWO_NODES))
    assert found == [
        HugePool(2 << 20, None, 8192, 100, 40, 2),
        HugePool(2 << 20, 0, 6144, 0, None, 2),
        HugePool(2 << 20, 1, 2048, 100, None, 0),
        HugePool(1 << 30, None, 16, 16, 0, 0),
        HugePool(1 << 30, 0, 8, 8, None, 0),
        HugePool(1 << 30, 1, 8, 8, None, 0),
    ]
    assert [pool.available for pool in found[:3]] == [60, 0, 100]


def test_transparent_huge_pages(tmp_path: Path) -> None:
    found = transparent(machine(tmp_path, TWO_NODES))
    assert found is not None
    assert (found.enabled, found.defrag, found.page_size) == ("always", "madvise", 2 << 20)


@pytest.mark.parametrize(
    ("text", "place"),
    [
        ("0::/system.slice/db.service\n", Place(2, "/system.slice/db.service")),
        ("5:cpu,cpuacct:/\n4:memory:/docker/abc\n0::/\n", Place(1, "/docker/abc")),
        ("0::/\n4:hugetlb,memory:/a:b\n", Place(1, "/a:b")),
        ("3:cpu:/x\n", None),
        ("", None),
        ("0::relative\n", None),
        ("memory\n", None),
    ],
)
def test_where_a_process_is(text: str, place: Place | None) -> None:
    assert place_of(text) == place


def test_where_cgroups_are() -> None:
    assert mounts(TWO_NODES["proc/self/mountinfo"]) == {2: ("/", "/sys/fs/cgroup")}
    assert mounts(OLD["proc/self/mountinfo"]) == {
        1: ("/", "/sys/fs/cgroup/memory"),
        2: ("/", "/sys/fs/cgroup/unified"),
    }
    spaced = "30 24 0:26 /a /my\\040cgroups rw - cgroup2 none rw\n"
    assert mounts(spaced) == {2: ("/a", "/my cgroups")}


def test_the_tightest_cgroup_counts(tmp_path: Path) -> None:
    """The worker's own is loose; that of the service above it is nearly full."""
    files = machine(tmp_path, TWO_NODES)
    mounted = mounts(TWO_NODES["proc/self/mountinfo"])
    found = memory_of(files, Place(2, "/system.slice/db.service/worker"), mounted)
    assert found is not None
    assert found.path == "/system.slice/db.service"
    assert found.directory == "/sys/fs/cgroup/system.slice/db.service"
    assert (found.limit, found.high) == (4 << 30, None)
    assert found.used == 4200000000 - 201000000
    above = memory_of(files, Place(2, "/system.slice"), mounted)
    assert above is not None
    assert above.limit is None


def test_version_1_beside_version_2(tmp_path: Path) -> None:
    files, mounted = machine(tmp_path, OLD), mounts(OLD["proc/self/mountinfo"])
    found = memory_of(files, Place(1, "/docker/abc"), mounted)
    assert found is not None
    assert (found.path, found.limit, found.used) == ("/docker/abc", 1 << 30, 148576000)
    top = memory_of(files, Place(1, "/"), mounted)
    assert top is not None
    assert top.limit is None


@pytest.mark.parametrize("path", ["/../outside", "/gone", "/system.slice/../../x"])
def test_a_cgroup_that_cannot_be_seen(path: str, tmp_path: Path) -> None:
    files = machine(tmp_path, TWO_NODES)
    assert memory_of(files, Place(2, path), mounts(TWO_NODES["proc/self/mountinfo"])) is None


def test_a_cgroup_outside_of_the_mount(tmp_path: Path) -> None:
    """As in a container that sees only its own part."""
    files = machine(tmp_path, TWO_NODES)
    mounted = {2: ("/system.slice", "/sys/fs/cgroup/system.slice")}
    inside = memory_of(files, Place(2, "/system.slice/db.service"), mounted)
    assert inside is not None
    assert inside.limit == 4 << 30
    assert memory_of(files, Place(2, "/user.slice"), mounted) is None


def test_the_status_of_a_process() -> None:
    text = process(7, pinned_kb=4, locked_kb=8, capabilities=ALL_CAPABILITIES)["proc/7/status"]
    found = status(text)
    assert (found.name, found.uid, found.pinned, found.locked) == ("db", 1000, 4096, 8192)
    assert (found.huge, found.capabilities) == (2 << 20, 0x1FFFFFFFFFF)
    thread = status("Name:\tkworker/0:1\nUid:\t0\t0\t0\t0\n")
    assert (thread.name, thread.resident, thread.capabilities) == ("kworker/0:1", None, 0)


@pytest.mark.parametrize(
    ("text", "command"),
    [
        ("/usr/bin/python3\0server.py\0--port\x007\0", "python3 server.py --port 7"),
        ("nginx: master process", "nginx: master process"),
        ("a\0\x1b[2Jb\nc\0", "a ?[2Jb?c"),
        ("x" * 1000, "x" * 200),
        ("", ""),
    ],
)
def test_command_lines(text: str, command: str) -> None:
    assert command_line(text) == command


@pytest.mark.parametrize(
    ("memlock", "limit"),
    [
        ("8388608              16777216", MemlockLimit(8 << 20, 16 << 20)),
        ("unlimited            unlimited", MemlockLimit(None, None)),
        ("65536                unlimited", MemlockLimit(65536, None)),
    ],
)
def test_limits(memlock: str, limit: MemlockLimit) -> None:
    assert limits(process(7, memlock=memlock)["proc/7/limits"]) == limit


def test_capabilities_of_a_namespace_do_not_count(tmp_path: Path) -> None:
    outside = process(7, locked_kb=4, capabilities=ALL_CAPABILITIES)
    inside = process(8, locked_kb=4, capabilities=ALL_CAPABILITIES, uid_map="0 100000 65536\n")
    snapshot = look(machine(tmp_path, TWO_NODES, outside, inside), page_size=4096)
    assert {one.pid: one.has_ipc_lock for one in snapshot.processes} == {7: True, 8: False}
    assert maps_all_users("")


def test_the_largest_comes_first_and_others_not_at_all(tmp_path: Path) -> None:
    files = machine(
        tmp_path,
        TWO_NODES,
        process(7, locked_kb=4),
        process(8),
        process(9, pinned_kb=100),
        {"proc/2/status": "Name:\tkthreadd\nUid:\t0\t0\t0\t0\n"},
    )
    snapshot = look(files, page_size=4096)
    assert [one.pid for one in snapshot.processes] == [9, 7]
    assert snapshot.seen == 3
    assert [one.pid for one in look(files, [8], 4096).processes] == [8]
    with pytest.raises(LivedmaError, match="there is no process 10"):
        look(files, [10], 4096)
    with pytest.raises(LivedmaError, match="process 2 has no memory of its own"):
        look(files, [2], 4096)


@pytest.mark.parametrize("target", ["/dev/vfio/vfio", "anon_inode:[vfio-device]", "/dev/iommu"])
def test_who_uses_vfio(target: str, tmp_path: Path) -> None:
    files = machine(tmp_path, TWO_NODES, process(7, locked_kb=4), process(8, locked_kb=4))
    for pid, link in ((7, target), (8, "/dev/null")):
        (tmp_path / f"proc/{pid}/fd").mkdir()
        (tmp_path / f"proc/{pid}/fd/3").symlink_to(link)
    found = {one.pid: one.uses_vfio for one in look(files, page_size=4096).processes}
    assert found == {7: True, 8: False}


def test_forms_of_text() -> None:
    assert pairs("A: 1 kB\nB 2\nActive(file):   3 kB\nC x\nD: 1 2\n") == {
        "A": 1024,
        "B": 2,
        "Active(file)": 3072,
    }
    assert chosen("always [never]") == "never"
    assert chosen("always never") is None
    assert pressure("some avg10=1.00\n") is None


@pytest.mark.parametrize(
    ("size", "text"),
    [
        (0, "0 B"),
        (4096, "4 KiB"),
        (2 << 20, "2 MiB"),
        (4 << 30, "4 GiB"),
        (17_400_000, "16.6 MiB"),
        ((1 << 20) - 1, "1.0 MiB"),
        (1023, "1,023 B"),
        (5 << 60, "5,120 PiB"),
    ],
)
def test_sizes(size: int, text: str) -> None:
    assert size_text(size) == text
