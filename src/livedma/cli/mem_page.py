# SPDX-License-Identifier: BSD-2-Clause
"""Formats what `livedma mem` prints: a page for people, or a line for a log."""

from __future__ import annotations

import os
import textwrap
import time
from collections.abc import Iterator

from livedma.cli.output import amount
from livedma.memory.host import Advice, Host, Motion, Process, Snapshot
from livedma.memory.host.advice import LARGE_GRANULE, SMALL_GRANULE, descriptors
from livedma.memory.host.buddy import Zone, together
from livedma.memory.host.cgroup import CgroupMemory
from livedma.memory.host.huge import HugePool
from livedma.memory.host.text import printable, size_text
from livedma.memory.ledger import Entry

__all__ = ["clipped", "line", "page"]

_WIDTH = 112
_LABEL = 16
_COMMAND = 50


def page(
    snapshot: Snapshot, advice: list[Advice], motion: Motion | None = None, trouble: str = ""
) -> str:
    return "\n".join(
        [
            *_host(snapshot, motion, trouble),
            "",
            *_processes(snapshot),
            *_unseen(snapshot),
            *_advice(advice),
        ]
    )


def clipped(text: str, size: os.terminal_size) -> str:
    """Cuts the text to the screen: a longer one would scroll its beginning away."""
    lines = [each[: size.columns] for each in text.splitlines()]
    if len(lines) > size.lines:
        more = len(lines) - size.lines + 1
        lines[size.lines - 1 :] = [f"{amount(more, 'line')} more: a larger window shows them"]
    return "\n".join(lines)


def line(snapshot: Snapshot, motion: Motion | None, advice: list[Advice]) -> str:
    """Returns a line of the figures that change, then what has gone wrong since the line before."""
    host = snapshot.host
    mapped = sum(one.mapped for one in snapshot.processes)
    parts = [
        time.strftime("%H:%M:%S"),
        f"pinned {_pinned(host)}",
        f"locked {size_text(host.locked)}",
        f"mapped {size_text(mapped)}",
        f"free {size_text(host.free)}",
        f"2 MiB blocks {together(host.zones).blocks(_large_order(host)):,}",
        *([_compaction(motion), _migration(motion)] if motion else []),
    ]
    return "\n".join(["  ".join(parts), *_advice(advice)])


def _row(label: str, text: str) -> str:
    return f"  {label:{_LABEL}}{text}"


def _host(snapshot: Snapshot, motion: Motion | None, trouble: str) -> Iterator[str]:
    host = snapshot.host
    sizes = f"{size_text(host.total)} of memory, {size_text(host.available)} available"
    yield f"{host.name}  Linux {host.kernel}  {sizes}"
    yield _row("pinned", _pinned_row(snapshot))
    yield _row("locked", f"{size_text(host.locked)}; stays in memory, but may be moved")
    yield from _huge_rows(host)
    yield from _free_rows(host)
    yield _row("since boot", _moved_since_boot(host.counters))
    yield _row("", _given_since_boot(host.counters))
    if motion is not None:
        yield _row("compaction", _compaction(motion))
        yield _row("migration", _migration(motion))
    if trouble:
        yield _row("", trouble)
    yield _row("waiting", _pressure(host))
    if host.overcommit is not None:
        commit = f"{size_text(host.committed)} promised"
        limit = f" of {size_text(host.commit_limit)}" if host.overcommit == "never" else ""
        yield _row("overcommit", f"{host.overcommit}; {commit}{limit}")


def _pinned(host: Host) -> str:
    return "unknown" if host.pinned is None else size_text(host.pinned)


def _pinned_row(snapshot: Snapshot) -> str:
    host = snapshot.host
    if host.pinned is None:
        return "unknown: this kernel has no counters for it (nr_foll_pin_acquired, Linux 5.7)"
    since = f"{host.pins_since_boot or 0:,} pages were pinned since boot, most for a moment of I/O"
    return f"{size_text(host.pinned)} now; {since}"


def _huge_rows(host: Host) -> Iterator[str]:
    label = "huge pages"
    for pool in host.huge_pools:
        yield _row(label, _pool(pool))
        label = ""
    if not host.huge_pools:
        yield _row(label, "this kernel has no pools of them")
    thp = host.transparent
    modes = f"{thp.enabled} (defrag: {thp.defrag or 'unknown'})" if thp else "none in this kernel"
    yield _row("transparent", modes)


def _pool(pool: HugePool) -> str:
    where = "" if pool.node is None else f"node {pool.node}: "
    size = size_text(pool.size)
    if not pool.total:
        return f"{where}{size}: none reserved"
    parts = [f"{where}{size}: {pool.free:,} of {pool.total:,} free"]
    if pool.reserved:
        parts.append(f"{pool.reserved:,} of them promised")
    if pool.surplus:
        parts.append(f"{pool.surplus:,} surplus")
    return ", ".join(parts)


def _large_order(host: Host) -> int:
    return (LARGE_GRANULE // host.page_size).bit_length() - 1


def _free_rows(host: Host) -> Iterator[str]:
    free = together(host.zones)
    largest = free.largest_order
    if largest is None:
        yield _row("free", "nothing, or /proc/buddyinfo cannot be read")
        return
    block = size_text(host.page_size << largest)
    yield _row(
        "free",
        f"{size_text(host.free)}; the largest block is {block}, {free.free[largest]:,} of them",
    )
    names = [size_text(host.page_size << order) for order in range(len(free.free))]
    counts = _per_node(host) or [("blocks", free)]
    columns = [
        max(6, len(name), *(len(f"{zone.free[order]:,}") for _, zone in counts))
        for order, name in enumerate(names)
    ]

    def cells(texts: Iterator[str]) -> str:
        return "  ".join(f"{text:>{width}}" for text, width in zip(texts, columns, strict=True))

    yield _row("  in blocks of", cells(iter(names)))
    for label, zone in counts:
        yield _row(f"  {label}", cells(f"{blocks:,}" for blocks in zone.free))
        unusable = (zone.unusable_index(order) for order in range(len(names)))
        yield _row("  in smaller", cells(f"{index * 100:.1f} %" for index in unusable))
    indexes = [free.fragmentation_index(order) for order in range(len(names))]
    if any(index is not None for index in indexes):
        shown = ("-" if index is None else f"{index:.3f}" for index in indexes)
        yield _row("  fragmentation", cells(shown))


def _per_node(host: Host) -> list[tuple[str, Zone]]:
    """Returns the sum of each node's zones, all with as many orders; empty if there is one node."""
    nodes = sorted({zone.node for zone in host.zones if zone.node is not None})
    orders = len(together(host.zones).free)
    if len(nodes) < 2:
        return []
    each = [(node, together(host.zones, node)) for node in nodes]
    return [
        (f"node {node}", Zone(node, zone.name, zone.free + (0,) * (orders - len(zone.free))))
        for node, zone in each
    ]


def _moved_since_boot(counters: dict[str, int]) -> str:
    return (
        f"{_count(counters, 'compact_stall')} tasks waited for compaction, "
        f"{_count(counters, 'compact_fail')} in vain; "
        f"{_count(counters, 'pgmigrate_success')} pages moved, "
        f"{_count(counters, 'pgmigrate_fail')} could not be"
    )


def _given_since_boot(counters: dict[str, int]) -> str:
    return (
        f"transparent huge pages: {_count(counters, 'thp_fault_alloc')} given, "
        f"{_count(counters, 'thp_fault_fallback')} refused"
    )


def _count(counters: dict[str, int], name: str) -> str:
    return f"{counters[name]:,}" if name in counters else "an unknown number of"


def _compaction(motion: Motion) -> str:
    ends = ", ".join(f"{count:,} {name}" for name, count in motion.ends.items())
    known = "" if motion.source == "bpf" else ", only where a task had to wait"
    return (
        f"compaction {motion.rate(motion.attempts):,.1f}/s, failed "
        f"{motion.rate(motion.failures):,.1f}/s{known}{f' ({ends})' if ends else ''}"
    )


def _migration(motion: Motion) -> str:
    why = ", ".join(name for name in motion.moved_because if name != "unknown")
    return (
        f"moved {motion.rate(motion.pages_moved):,.0f} pages/s, "
        f"could not {motion.rate(motion.pages_failed):,.0f}/s{f' ({why})' if why else ''}"
    )


def _pressure(host: Host) -> str:
    if not host.pressure:
        return "for memory: not measured by this kernel (boot with psi=1)"
    some, full = (host.pressure.get(kind, {}) for kind in ("some", "full"))
    return (
        f"for memory: {some.get('avg10', 0):.1f} % of the last 10 s for some task, "
        f"{full.get('avg10', 0):.1f} % for all; in 5 min {some.get('avg300', 0):.1f} %"
    )


def _processes(snapshot: Snapshot) -> Iterator[str]:
    if not snapshot.processes:
        yield "no process pins or locks memory or has any mapped for a device"
        return
    sizes = f"{'pinned':>9} {'locked':>9} {'resident':>9}"
    yield f"{'pid':>8}  {sizes}  {'memlock limit':18}  command"
    for one in snapshot.processes:
        yield (
            f"{one.pid:>8}  {size_text(one.pinned):>9} {size_text(one.locked):>9} "
            f"{size_text(one.resident):>9}  {_limit(one):18}  {one.command[:_COMMAND]}"
        )
        if one.cgroup is not None and one.cgroup.limit is not None:
            yield f"{'':10}{_cgroup(one.cgroup)}"
        if one.huge:
            yield f"{'':10}{size_text(one.huge)} in reserved huge pages"
        for entry in _grouped(one.entries):
            yield f"{'':10}{_entry(entry)}"


def _limit(one: Process) -> str:
    if one.has_ipc_lock:
        return "none: CAP_IPC_LOCK"
    if one.memlock is None:
        return "unknown"
    return "none" if one.memlock.soft is None else size_text(one.memlock.soft)


def _cgroup(cgroup: CgroupMemory) -> str:
    used, limit = size_text(cgroup.used), size_text(cgroup.limit or 0)
    return f"cgroup {printable(cgroup.path)}: {used} of {limit} used"


def _grouped(entries: list[Entry]) -> list[Entry]:
    """Returns the sum of each kind, granule and tenant, the largest first."""
    groups: dict[tuple[str, int, str], list[Entry]] = {}
    for entry in entries:
        groups.setdefault((entry.kind, entry.granule, entry.tenant), []).append(entry)
    sums = [
        Entry(
            kind,
            count=sum(entry.count for entry in group),
            granule=granule,
            reserved=sum(entry.reserved for entry in group),
            mapped=sum(entry.mapped for entry in group),
            descriptors=sum(entry.descriptors for entry in group),
            links=sum(entry.links for entry in group),
            pinned=sum(entry.pinned for entry in group),
            tenant=tenant,
        )
        for (kind, granule, tenant), group in groups.items()
    ]
    return sorted(sums, key=lambda entry: -entry.mapped)


def _entry(entry: Entry) -> str:
    kind = f"{entry.count:,} x {entry.kind}" if entry.count > 1 else entry.kind
    whose = f" of {printable(entry.tenant)}" if entry.tenant else ""
    reserved = f" of {size_text(entry.reserved)} reserved" if entry.reserved else ""
    pinned = f", {_pinned_part(entry)} pinned" if entry.kind == "window" and entry.mapped else ""
    links = f", {amount(entry.links, 'link')}" if entry.links else ""
    granule = size_text(entry.granule) if entry.granule else "mixed"
    others = ", ".join(
        f"{descriptors(entry.mapped, size):,} with {size_text(size)}"
        for size in (SMALL_GRANULE, LARGE_GRANULE)
        if (size, descriptors(entry.mapped, size)) != (entry.granule, entry.descriptors)
    )
    return (
        f"{kind}{whose}: {size_text(entry.mapped)}{reserved} mapped{pinned}{links}, "
        f"{granule} granules: {amount(entry.descriptors, 'descriptor')} ({others})"
    )


def _pinned_part(entry: Entry) -> str:
    if entry.pinned in (0, entry.mapped):
        return "all" if entry.pinned else "not"
    return size_text(entry.pinned)


def _unseen(snapshot: Snapshot) -> Iterator[str]:
    is_root = os.geteuid() == 0
    how = ", not even by root" if is_root else ": run it as root"
    if snapshot.may_hide_others and not is_root:
        yield "  /proc is mounted with hidepid: other users' processes are not even counted"
    if snapshot.hidden:
        yield f"  {_processes_text(snapshot.hidden)} cannot be seen at all{how}"
    if snapshot.hidden_ledgers:
        whose = _processes_text(snapshot.hidden_ledgers)
        yield f"  what {whose} may have mapped for devices cannot be seen{how}"


def _processes_text(count: int) -> str:
    return f"{count:,} process{'' if count == 1 else 'es'}"


def _advice(advice: list[Advice]) -> Iterator[str]:
    for each in advice:
        yield ""
        label = "wrong" if each.is_wrong else "note"
        yield from textwrap.wrap(
            each.text, _WIDTH, initial_indent=f"{label:7}", subsequent_indent=" " * 7
        )
        if each.fix:
            yield f"{'':7}fix: {each.fix}"
