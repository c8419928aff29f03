# SPDX-License-Identifier: BSD-2-Clause
"""Texts of /proc and /sys of machines other than this one, as files below a directory."""

from __future__ import annotations

from pathlib import Path

from livedma.memory.host import Files

__all__ = ["FRAGMENTED", "OLD", "TWO_NODES", "machine", "process"]

_MOUNT_2 = "30 24 0:26 / /sys/fs/cgroup rw,nosuid shared:4 - cgroup2 cgroup2 rw,nsdelegate\n"
_MOUNT_1 = (
    "25 20 0:22 / /sys/fs/cgroup ro,nosuid - tmpfs tmpfs ro,mode=755\n"
    "26 25 0:23 / /sys/fs/cgroup/unified rw,nosuid shared:5 - cgroup2 cgroup2 rw\n"
    "27 25 0:24 / /sys/fs/cgroup/cpu,cpuacct rw,nosuid shared:6 - cgroup cgroup rw,cpu,cpuacct\n"
    "28 25 0:25 / /sys/fs/cgroup/memory rw,nosuid shared:7 - cgroup cgroup rw,memory\n"
)


def _pool(total: int, free: int, surplus: int, reserved: int | None = None) -> dict[str, str]:
    files = {"nr_hugepages": total, "free_hugepages": free, "surplus_hugepages": surplus}
    if reserved is not None:
        files["resv_hugepages"] = reserved
    return {name: f"{value}\n" for name, value in files.items()}


def _below(directory: str, files: dict[str, str]) -> dict[str, str]:
    return {f"{directory}/{name}": text for name, text in files.items()}


#: two sockets, huge pages of both sizes on both nodes, THP always, PSI, cgroups of version 2
TWO_NODES = {
    "proc/sys/kernel/hostname": "storage7\n",
    "proc/sys/kernel/osrelease": "6.8.0-45-generic\n",
    "proc/meminfo": (
        "MemTotal:       528085896 kB\nMemFree:        12345678 kB\nMemAvailable:   400000000 kB\n"
        "Unevictable:      1050000 kB\nMlocked:          1048576 kB\n"
        "CommitLimit:    264042948 kB\nCommitted_AS:   31415926 kB\n"
        "HugePages_Total:    8192\nHugepagesize:       2048 kB\n"
    ),
    "proc/vmstat": (
        "nr_free_pages 3086419\nnr_foll_pin_acquired 91234567\nnr_foll_pin_released 90185991\n"
        "pgmigrate_success 4711\npgmigrate_fail 17\ncompact_stall 12\ncompact_fail 5\n"
        "compact_success 7\nthp_fault_alloc 900\nthp_fault_fallback 100\n"
    ),
    "proc/buddyinfo": (
        "Node 0, zone      DMA      0      0      0      0      0      0      0      0      1"
        "      1      2 \n"
        "Node 0, zone    DMA32      5      4      3      2      3      2      2      2      3"
        "      3    340 \n"
        "Node 0, zone   Normal  81234  40321  10123   2011    901    210     80     21      9"
        "      4    112 \n"
        "Node 1, zone   Normal 281234 140321  50123   9011    301     10      0      0      0"
        "      0      0 \n"
    ),
    "proc/pressure/memory": (
        "some avg10=12.34 avg60=5.00 avg300=1.00 total=123456789\n"
        "full avg10=3.20 avg60=1.00 avg300=0.10 total=23456789\n"
    ),
    "proc/self/mountinfo": _MOUNT_2,
    "proc/sys/vm/overcommit_memory": "0\n",
    "proc/sys/vm/compact_unevictable_allowed": "1\n",
    "sys/kernel/mm/transparent_hugepage/enabled": "[always] madvise never\n",
    "sys/kernel/mm/transparent_hugepage/defrag": "always defer defer+madvise [madvise] never\n",
    "sys/kernel/mm/transparent_hugepage/hpage_pmd_size": "2097152\n",
    "sys/devices/system/node/online": "0-1\n",
    **_below("sys/kernel/mm/hugepages/hugepages-2048kB", _pool(8192, 100, 2, 40)),
    **_below("sys/kernel/mm/hugepages/hugepages-1048576kB", _pool(16, 16, 0, 0)),
    **_below("sys/devices/system/node/node0/hugepages/hugepages-2048kB", _pool(6144, 0, 2)),
    **_below("sys/devices/system/node/node1/hugepages/hugepages-2048kB", _pool(2048, 100, 0)),
    **_below("sys/devices/system/node/node0/hugepages/hugepages-1048576kB", _pool(8, 8, 0)),
    **_below("sys/devices/system/node/node1/hugepages/hugepages-1048576kB", _pool(8, 8, 0)),
    "sys/fs/cgroup/system.slice/memory.current": "6000000000\n",
    "sys/fs/cgroup/system.slice/memory.max": "max\n",
    "sys/fs/cgroup/system.slice/memory.high": "max\n",
    "sys/fs/cgroup/system.slice/db.service/memory.current": "4200000000\n",
    "sys/fs/cgroup/system.slice/db.service/memory.max": "4294967296\n",
    "sys/fs/cgroup/system.slice/db.service/memory.high": "max\n",
    "sys/fs/cgroup/system.slice/db.service/memory.stat": (
        "anon 3900000000\nfile 200000000\nactive_file 100000000\ninactive_file 100000000\n"
        "slab_reclaimable 1000000\n"
    ),
    "sys/fs/cgroup/system.slice/db.service/worker/memory.current": "1000000\n",
    "sys/fs/cgroup/system.slice/db.service/worker/memory.max": "max\n",
    "sys/fs/cgroup/system.slice/db.service/worker/memory.high": "8589934592\n",
}

#: Linux 5.4: pins are not counted, no PSI, no THP, cgroups of version 1 beside those of version 2
OLD = {
    "proc/sys/kernel/hostname": "attic\n",
    "proc/sys/kernel/osrelease": "5.4.0-150-generic\n",
    "proc/meminfo": "MemTotal: 8000000 kB\nMemFree: 100000 kB\nMemAvailable: 4000000 kB\n",
    "proc/vmstat": "nr_free_pages 25000\ncompact_stall 3\ncompact_fail 3\n",
    "proc/buddyinfo": "Node 0, zone   Normal   3000    300     30      3      0      0\n",
    "proc/self/mountinfo": _MOUNT_1,
    "proc/sys/vm/overcommit_memory": "2\n",
    "sys/fs/cgroup/memory/memory.usage_in_bytes": "7000000000\n",
    "sys/fs/cgroup/memory/memory.limit_in_bytes": "9223372036854771712\n",
    "sys/fs/cgroup/memory/docker/abc/memory.usage_in_bytes": "1048576000\n",
    "sys/fs/cgroup/memory/docker/abc/memory.limit_in_bytes": "1073741824\n",
    "sys/fs/cgroup/memory/docker/abc/memory.stat": (
        "cache 900000000\ntotal_inactive_file 500000000\ntotal_active_file 400000000\n"
    ),
}

#: enough memory, all of it in small pieces
FRAGMENTED = {
    "proc/meminfo": "MemTotal: 8000000 kB\nMemFree: 800000 kB\nMemAvailable: 4000000 kB\n",
    "proc/buddyinfo": (
        "Node 0, zone   Normal  99000  40000   5000    100      7      1      0      0      0"
        "      0      0 \n"
    ),
}


def process(
    pid: int,
    name: str = "db",
    *,
    pinned_kb: int = 0,
    locked_kb: int = 0,
    cgroup: str = "0::/",
    memlock: str = "8388608              8388608",
    capabilities: str = "0000000000000000",
    uid_map: str = "         0          0 4294967295\n",
) -> dict[str, str]:
    status = (
        f"Name:\t{name}\nUmask:\t0022\nState:\tS (sleeping)\nUid:\t1000\t1000\t1000\t1000\n"
        f"NSpid:\t{pid}\nVmPeak:\t 9000000 kB\nVmLck:\t{locked_kb:8} kB\nVmPin:\t{pinned_kb:8} kB\n"
        f"VmRSS:\t 5000000 kB\nHugetlbPages:\t   2048 kB\nCapEff:\t{capabilities}\n"
    )
    limits = (
        "Limit                     Soft Limit           Hard Limit           Units     \n"
        "Max open files            1024                 4096                 files     \n"
        f"Max locked memory         {memlock}              bytes     \n"
    )
    return _below(
        f"proc/{pid}",
        {"status": status, "limits": limits, "cgroup": f"{cgroup}\n", "uid_map": uid_map},
    )


def machine(root: Path, *parts: dict[str, str]) -> Files:
    for part in parts:
        for name, text in part.items():
            path = root / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
    return Files(root)
