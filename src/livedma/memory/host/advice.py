# SPDX-License-Identifier: BSD-2-Clause
"""Says in plain words what is wrong with a host's memory for DMA, and which command repairs it."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from dataclasses import dataclass

from livedma.memory.host.buddy import Zone, together
from livedma.memory.host.huge import HugePool, Transparent
from livedma.memory.host.process import Process
from livedma.memory.host.snapshot import Snapshot
from livedma.memory.host.system import Host
from livedma.memory.host.text import printable, size_text
from livedma.privilege import as_root

__all__ = ["LARGE_GRANULE", "SMALL_GRANULE", "Advice", "advise", "descriptors"]

SMALL_GRANULE, LARGE_GRANULE = 4096, 2 << 20

_NEARLY = 0.9
_WORTH_LARGE = 64 << 20  # mapped in small granules: thousands of descriptors
_USUAL_HUGE = 512  # pages: 1 GiB
_STALLED_PERCENT = 10.0


@dataclass(frozen=True)
class Advice:
    """Gives advice. With `is_wrong`, something fails or soon will; else it is good to know."""

    name: str
    is_wrong: bool
    text: str
    fix: str = ""  #: the command, if there is one
    pids: tuple[int, ...] = ()


def descriptors(mapped: int, granule: int) -> int:
    """Returns how many descriptors a device needs for so many bytes, one for each granule."""
    return -(-mapped // granule)


def advise(snapshot: Snapshot) -> list[Advice]:
    """Returns all advice, what is wrong first."""
    found = [
        *_limits(snapshot.processes),
        *_cgroups(snapshot.processes),
        *_fragmentation(snapshot.host),
        *_pressure(snapshot.host),
        *_commit(snapshot.host),
        *_locked(snapshot),
        *_huge(snapshot),
        *_ledgers(snapshot.processes),
    ]
    return sorted(found, key=lambda advice: not advice.is_wrong)


def _who(processes: list[Process]) -> str:
    named = [f"{one.name} ({one.pid})" for one in processes[:3]]
    more = len(processes) - len(named)
    return ", ".join(named) + (f" and {more} more" if more else "")


def _pids(processes: list[Process]) -> tuple[int, ...]:
    return tuple(one.pid for one in processes)


def _limits(processes: list[Process]) -> Iterator[Advice]:
    for one in processes:
        limit = one.memlock.soft if one.memlock else None
        used = one.pinned + one.locked
        if limit is None or one.has_ipc_lock or not used or used < limit * _NEARLY:
            continue
        yield Advice(
            "limit",
            True,
            f"{_who([one])} has {size_text(used)} pinned and locked of the {size_text(limit)} that "
            "RLIMIT_MEMLOCK allows; more will be refused. For good: LimitMEMLOCK=infinity in its "
            "systemd unit, `ulimit -l unlimited` before it starts, or CAP_IPC_LOCK",
            as_root(f"prlimit --pid {one.pid} --memlock={2 * max(limit, used)}"),
            (one.pid,),
        )


def _cgroups(processes: list[Process]) -> Iterator[Advice]:
    by_path: dict[str, list[Process]] = {}
    for one in processes:
        if one.cgroup is not None:
            by_path.setdefault(one.cgroup.path, []).append(one)
    for path, members in by_path.items():
        cgroup = members[0].cgroup
        if cgroup is None or cgroup.limit is None or cgroup.used < cgroup.limit * _NEARLY:
            continue
        what = "memory.max" if cgroup.limit == cgroup.max else "memory.high"
        name = what if cgroup.version == 2 else "memory.limit_in_bytes"
        file = f"{cgroup.directory}/{name}"
        yield Advice(
            "cgroup",
            True,
            f"cgroup {printable(path)} of {_who(members)} uses {size_text(cgroup.used)}, besides "
            f"caches, of the {size_text(cgroup.limit)} that {name} allows; what is "
            "pinned cannot be reclaimed",
            # another user may have chosen the name: it must not become a command, nor hide one
            f"echo {cgroup.limit * 2} | {as_root(f'tee {shlex.quote(file)}')}"
            if file.isprintable()
            else "",
            _pids(members),
        )


def _fragmentation(host: Host) -> Iterator[Advice]:
    """Checks each node by itself, since a device that wants memory of its own node cannot use that
    of another.
    """
    order = (LARGE_GRANULE // host.page_size).bit_length() - 1
    nodes = sorted({zone.node for zone in host.zones if zone.node is not None})
    for node in nodes:
        free = together(host.zones, node)
        if order < len(free.free):
            where = f" on node {node}" if len(nodes) > 1 else ""
            compact = f"/sys/devices/system/node/node{node}/compact"
            file = compact if len(nodes) > 1 else "/proc/sys/vm/compact_memory"
            fix = f"echo 1 | {as_root(f'tee {file}')}"
            yield from _in_pieces(free, order, host.page_size, where, fix)


def _in_pieces(free: Zone, order: int, page_size: int, where: str, fix: str) -> Iterator[Advice]:
    size, index = size_text(page_size << order), free.fragmentation_index(order)
    if index is not None:
        largest = free.largest_order
        block = "nothing" if largest is None else size_text(page_size << largest)
        why = "memory is in pieces" if index > 0.5 else "there is too little memory"
        yield Advice(
            "fragmentation",
            True,
            f"no block of {size} is free{where} (the largest: {block}) because {why} "
            f"(fragmentation index {index:.3f}): huge pages cannot be had "
            "without compaction, which may fail",
            fix,
        )
    elif free.unusable_index(order) > _NEARLY:
        yield Advice(
            "fragmentation",
            False,
            f"{free.unusable_index(order) * 100:.0f} % of the free memory{where} is in pieces "
            f"smaller than {size}: {free.blocks(order):,} such blocks are left",
            fix,
        )


def _pressure(host: Host) -> Iterator[Advice]:
    stalled = (host.pressure or {}).get("some", {}).get("avg10", 0.0)
    if stalled >= _STALLED_PERCENT:
        yield Advice(
            "pressure",
            True,
            f"tasks waited for memory {stalled:.0f} % of the last 10 s: what is not pinned or "
            "locked is paged out and in again",
            "ps -eo pid,rss,comm --sort=-rss | head",
        )


def _commit(host: Host) -> Iterator[Advice]:
    if host.overcommit == "never" and host.committed > host.commit_limit * _NEARLY:
        yield Advice(
            "overcommit",
            True,
            f"overcommit is off and {size_text(host.committed)} of {size_text(host.commit_limit)} "
            "are promised: new mappings will be refused. An administrator chose that for the whole "
            "machine (vm.overcommit_memory=2)",
        )


def _locked(snapshot: Snapshot) -> Iterator[Advice]:
    movable = [one for one in snapshot.processes if one.locked and not one.uses_vfio]
    if not movable:
        return
    total = size_text(sum(one.locked for one in movable))
    vfio = (
        "; whether some of them use VFIO, which counts its pins as locked, cannot be seen"
        if any(one.uses_vfio is None for one in movable)
        else ""
    )
    setting = (
        "; vm.compact_unevictable_allowed=0 would keep compaction from it, not migration"
        if snapshot.host.may_compact_locked
        else ""
    )
    yield Advice(
        "locked",
        False,
        f"{_who(movable)}: {total} locked, not pinned. It stays in memory, but compaction and "
        "migration may still move it: not fit for DMA by hardware. livedma's own device goes "
        f"through virtual addresses, for which locked is enough{vfio}{setting}",
        pids=_pids(movable),
    )


def _huge(snapshot: Snapshot) -> Iterator[Advice]:
    pools = snapshot.host.huge_pools
    pool = next((each for each in pools if each.size == LARGE_GRANULE and each.node is None), None)
    small = [one for one in snapshot.processes if _in_small_granules(one) >= _WORTH_LARGE]
    if small:
        yield _too_many_descriptors(small, pool)
    elif pool is None or not pool.available:
        yield _no_huge_pages(snapshot.host.transparent, pool)


def _in_small_granules(one: Process) -> int:
    return sum(entry.mapped for entry in one.entries if entry.granule == SMALL_GRANULE)


def _too_many_descriptors(small: list[Process], pool: HugePool | None) -> Advice:
    mapped = sum(_in_small_granules(one) for one in small)
    needed = descriptors(mapped, LARGE_GRANULE)
    if pool is None:
        remedy, fix = "", ""
    elif pool.available >= needed:
        remedy, fix = "; enough huge pages are free: restart it", ""
    else:
        remedy = "; reserve huge pages, then restart it"
        fix = as_root(f"sysctl -w vm.nr_hugepages={pool.total - pool.available + needed}")
    text = (
        f"{_who(small)}: {size_text(mapped)} mapped in granules of {size_text(SMALL_GRANULE)} "
        f"takes {descriptors(mapped, SMALL_GRANULE):,} descriptors; with "
        f"{size_text(LARGE_GRANULE)} it would be {needed:,}{remedy}"
    )
    return Advice("huge-pages", False, text, fix, _pids(small))


def _no_huge_pages(transparent: Transparent | None, pool: HugePool | None) -> Advice:
    size = size_text(LARGE_GRANULE)
    is_off = transparent is None or transparent.enabled == "never"
    if pool is None:
        state = f"this kernel has no pool of huge pages of {size}"
    elif pool.total:
        state = f"all {pool.total:,} reserved huge pages of {size} are in use or promised"
    else:
        state = "no huge pages are reserved"
    outcome = (
        f"and transparent ones are off: windows get granules of {size_text(SMALL_GRANULE)} only"
        if is_off
        else f"windows depend on transparent ones, that is on free blocks of {size}"
    )
    # Reserved pages are taken from all processes: suggested only where there are no others.
    wanted = _USUAL_HUGE + (pool.total if pool else 0)
    fix = as_root(f"sysctl -w vm.nr_hugepages={wanted}") if pool and is_off else ""
    return Advice("huge-pages", is_off, f"{state}; {outcome}", fix)


def _ledgers(processes: list[Process]) -> Iterator[Advice]:
    for one in processes:
        if one.ledger_trouble:
            yield Advice("ledger", False, f"{_who([one])}: {one.ledger_trouble}", "", (one.pid,))
