# SPDX-License-Identifier: BSD-2-Clause
"""What is said to be wrong, and the command that is said to mend it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from machines import FRAGMENTED, OLD, TWO_NODES, machine, process

from livedma.memory.host import Advice, Snapshot, advise, look
from livedma.memory.host.advice import descriptors
from livedma.memory.host.huge import HugePool, Transparent
from livedma.memory.ledger import Entry
from livedma.privilege import as_root

HUGE = {
    "proc/buddyinfo": "Node 0, zone Normal 0 0 0 0 0 0 0 0 0 0 1000\n",
    "sys/kernel/mm/hugepages/hugepages-2048kB/nr_hugepages": "8\n",
    "sys/kernel/mm/hugepages/hugepages-2048kB/free_hugepages": "8\n",
}
WINDOW_4K = Entry("window", 1, 4096, 8 << 30, 4 << 30, 1 << 20, 4)


def named(snapshot: Snapshot, name: str) -> list[Advice]:
    return [advice for advice in advise(snapshot) if advice.name == name]


def with_entries(snapshot: Snapshot, *entries: Entry) -> Snapshot:
    (one,) = snapshot.processes
    return replace(snapshot, processes=[replace(one, entries=list(entries))])


def test_nothing_is_wrong(tmp_path: Path) -> None:
    assert advise(look(machine(tmp_path, HUGE), page_size=4096)) == []


def test_four_gibibytes_in_either_granule() -> None:
    assert descriptors(4 << 30, 4096) == 1_048_576
    assert descriptors(4 << 30, 2 << 20) == 2_048
    assert descriptors(4097, 4096) == 2
    assert descriptors(0, 4096) == 0


def test_locked_is_not_pinned(tmp_path: Path) -> None:
    movable = process(7, locked_kb=2048, memlock="unlimited            unlimited")
    snapshot = look(machine(tmp_path, HUGE, movable), page_size=4096)
    (advice,) = named(snapshot, "locked")
    assert "db (7): 2 MiB locked, not pinned" in advice.text
    assert "not fit for DMA by hardware" in advice.text
    assert "for which locked is enough" in advice.text
    assert "cannot be seen" in advice.text  # whether it uses VFIO: the copy has no fd/
    assert advice.pids == (7,)
    (one,) = snapshot.processes
    assert not named(replace(snapshot, processes=[replace(one, uses_vfio=True)]), "locked")
    (sure,) = named(replace(snapshot, processes=[replace(one, uses_vfio=False)]), "locked")
    assert "VFIO" not in sure.text


@pytest.mark.parametrize(("allowed", "fix"), [("1\n", True), ("0\n", False)])
def test_compaction_may_be_kept_from_locked_memory(allowed: str, fix: bool, tmp_path: Path) -> None:
    setting = {"proc/sys/vm/compact_unevictable_allowed": allowed}
    snapshot = look(machine(tmp_path, HUGE, setting, process(7, locked_kb=4)), page_size=4096)
    (advice,) = named(snapshot, "locked")
    assert ("compact_unevictable_allowed=0" in advice.text) is fix
    assert advice.fix == ""  # a setting of the whole machine, and nothing is wrong


@pytest.mark.parametrize(
    ("pinned_kb", "locked_kb", "memlock", "capabilities", "is_wrong"),
    [
        (8000, 0, "8388608 8388608", "0", True),
        (4000, 4000, "8388608 8388608", "0", True),
        (100, 0, "8388608 8388608", "0", False),
        (8000, 0, "unlimited unlimited", "0", False),
        (8000, 0, "8388608 8388608", "4000", False),  # CAP_IPC_LOCK
        (8000, 0, "0 0", "0", True),
        (0, 0, "0 0", "0", False),
    ],
)
def test_a_limit_that_is_nearly_reached(
    pinned_kb: int, locked_kb: int, memlock: str, capabilities: str, is_wrong: bool, tmp_path: Path
) -> None:
    one = process(
        7, pinned_kb=pinned_kb, locked_kb=locked_kb, memlock=memlock, capabilities=capabilities
    )
    found = named(look(machine(tmp_path, HUGE, one), [7], 4096), "limit")
    assert bool(found) is is_wrong
    if found:
        assert found[0].is_wrong
        ample = 2 * max(int(memlock.split()[0]), (pinned_kb + locked_kb) << 10)
        assert found[0].fix == as_root(f"prlimit --pid 7 --memlock={ample}")
        for way in ("LimitMEMLOCK=infinity", "ulimit -l unlimited", "CAP_IPC_LOCK"):
            assert way in found[0].text


def test_a_cgroup_that_is_nearly_full(tmp_path: Path) -> None:
    members = [
        process(pid, pinned_kb=4, cgroup="0::/system.slice/db.service/worker") for pid in (7, 8)
    ]
    (advice,) = named(look(machine(tmp_path, TWO_NODES, *members), page_size=4096), "cgroup")
    assert advice.is_wrong
    assert "/system.slice/db.service of db (7), db (8)" in advice.text
    directory = "/sys/fs/cgroup/system.slice/db.service"
    assert advice.fix == f"echo {8 << 30} | {as_root(f'tee {directory}/memory.max')}"


@pytest.mark.parametrize(
    ("name", "fix"),
    [
        ("$(reboot)", "'/sys/fs/cgroup/$(reboot)/memory.max'"),
        ("a;b", "'/sys/fs/cgroup/a;b/memory.max'"),
        ("x\x1b[2K", ""),
    ],
)
def test_a_name_does_not_become_a_command(name: str, fix: str, tmp_path: Path) -> None:
    files = {
        f"sys/fs/cgroup/{name}/memory.current": "100\n",
        f"sys/fs/cgroup/{name}/memory.max": "100\n",
    }
    one = process(7, "e\x1bvil", pinned_kb=4, cgroup=f"0::/{name}")
    snapshot = look(machine(tmp_path, TWO_NODES, files, one), page_size=4096)
    (advice,) = named(snapshot, "cgroup")
    assert advice.fix == (f"echo 200 | {as_root(f'tee {fix}')}" if fix else "")
    assert advice.text.isprintable()
    assert "e?vil (7)" in advice.text


def test_caches_do_not_fill_a_cgroup(tmp_path: Path) -> None:
    one = process(7, pinned_kb=4, cgroup="4:memory:/docker/abc")
    assert not named(look(machine(tmp_path, OLD, one), page_size=4096), "cgroup")


def test_memory_in_pieces(tmp_path: Path) -> None:
    (advice,) = named(look(machine(tmp_path, FRAGMENTED), page_size=4096), "fragmentation")
    assert advice.is_wrong
    assert "no block of 2 MiB is free (the largest: 128 KiB) because memory is in pieces" in (
        advice.text
    )
    assert advice.fix == f"echo 1 | {as_root('tee /proc/sys/vm/compact_memory')}"


def test_one_node_in_pieces(tmp_path: Path) -> None:
    (advice,) = named(look(machine(tmp_path, TWO_NODES), page_size=4096), "fragmentation")
    assert "no block of 2 MiB is free on node 1 (the largest: 128 KiB)" in advice.text
    assert advice.fix == f"echo 1 | {as_root('tee /sys/devices/system/node/node1/compact')}"


def test_too_little_memory(tmp_path: Path) -> None:
    text = {"proc/buddyinfo": "Node 0, zone Normal 0 0 0 0 0 0 0 1 1 0 0\n"}
    (advice,) = named(look(machine(tmp_path, text), page_size=4096), "fragmentation")
    assert "(the largest: 1 MiB) because there is too little memory" in advice.text


def test_most_of_it_in_pieces(tmp_path: Path) -> None:
    text = {"proc/buddyinfo": "Node 0, zone Normal 99999 0 0 0 0 0 0 0 0 2 0\n"}
    (advice,) = named(look(machine(tmp_path, text), page_size=4096), "fragmentation")
    assert not advice.is_wrong
    assert "99 % of the free memory is in pieces smaller than 2 MiB: 2 such blocks" in advice.text


def test_pressure_and_promises(tmp_path: Path) -> None:
    assert named(look(machine(tmp_path, TWO_NODES), page_size=4096), "pressure")[0].is_wrong
    full = {"proc/meminfo": "CommitLimit: 1000 kB\nCommitted_AS: 950 kB\n"}
    (advice,) = named(look(machine(tmp_path, OLD, full), page_size=4096), "overcommit")
    assert "950 KiB of 1,000 KiB" in advice.text and advice.fix == ""


def test_huge_pages_for_what_is_mapped(tmp_path: Path) -> None:
    snapshot = look(machine(tmp_path, HUGE, process(7)), [7], 4096)
    (advice,) = named(with_entries(snapshot, WINDOW_4K), "huge-pages")
    assert "takes 1,048,576 descriptors; with 2 MiB it would be 2,048" in advice.text
    assert advice.fix == as_root("sysctl -w vm.nr_hugepages=2048")
    small = replace(WINDOW_4K, mapped=1 << 20)
    large = replace(WINDOW_4K, granule=2 << 20)
    for fine in (small, large):
        assert not named(with_entries(snapshot, fine), "huge-pages")


def test_huge_pages_that_are_there(tmp_path: Path) -> None:
    snapshot = look(machine(tmp_path, HUGE, process(7)), [7], 4096)
    pool = HugePool(2 << 20, None, 4096, 4096, 0, 0)
    enough = replace(snapshot, host=replace(snapshot.host, huge_pools=[pool]))
    (advice,) = named(with_entries(enough, WINDOW_4K), "huge-pages")
    assert (advice.fix, "enough huge pages are free" in advice.text) == ("", True)


@pytest.mark.parametrize(
    ("pool", "mode", "is_wrong", "said", "fix"),
    [
        (HugePool(2 << 20, None, 0, 0, 0, 0), "never", True, "no huge pages are", "=512"),
        (HugePool(2 << 20, None, 0, 0, 0, 0), "madvise", False, "depend on transparent", ""),
        (HugePool(2 << 20, None, 8, 2, 2, 0), "always", False, "all 8 reserved", ""),
        (None, "never", True, "no pool of huge pages", ""),
    ],
)
def test_no_huge_pages(
    pool: HugePool | None, mode: str, is_wrong: bool, said: str, fix: str, tmp_path: Path
) -> None:
    snapshot = look(machine(tmp_path, HUGE), page_size=4096)
    pools = [pool] if pool else []
    host = replace(snapshot.host, huge_pools=pools, transparent=Transparent(mode, None, None))
    (advice,) = named(replace(snapshot, host=host), "huge-pages")
    assert (advice.is_wrong, said in advice.text) == (is_wrong, True)
    assert advice.fix.endswith(fix) and bool(advice.fix) == bool(fix)


def test_a_ledger_that_makes_no_sense(tmp_path: Path) -> None:
    snapshot = look(machine(tmp_path, HUGE, process(7)), [7], 4096)
    one = replace(snapshot.processes[0], ledger_trouble="3 entries of its ledger make no sense")
    (advice,) = named(replace(snapshot, processes=[one]), "ledger")
    assert advice.text == "db (7): 3 entries of its ledger make no sense"


def test_what_is_wrong_comes_first(tmp_path: Path) -> None:
    found = advise(look(machine(tmp_path, FRAGMENTED, process(7, locked_kb=4)), page_size=4096))
    assert [advice.is_wrong for advice in found] == [True, True, False]
