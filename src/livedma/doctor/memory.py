# SPDX-License-Identifier: BSD-2-Clause
"""Checks the memory that a device may have: pinned, on demand, in huge pages."""

from __future__ import annotations

import mmap
import resource
from collections.abc import Sequence

from livedma._native.pinning import place_of
from livedma._native.rdma import Engine
from livedma.doctor.commands import as_root, limit, sysctl, sysctl_kept, unit_setting
from livedma.doctor.finding import Finding
from livedma.errors import LimitError, LivedmaError
from livedma.memory import OnDemand, pin
from livedma.memory.host import Files
from livedma.memory.host.huge import HugePool, Transparent, pools, transparent
from livedma.privilege import CAP_IPC_LOCK, holds
from livedma.sizes import exact

__all__ = ["memory"]

_AMPLE = 1 << 30  # a limit that allows this is not worth a word
_HUGE_PAGE = 2 << 20
_USUAL_HUGE = 512  # pages: 1 GiB
_THP = "/sys/kernel/mm/transparent_hugepage/enabled"


def memory(files: Files | None = None) -> Sequence[Finding]:
    return [_pinned(), _on_demand(), huge(files or Files())]


def _pinned() -> Finding:
    most, _ = resource.getrlimit(resource.RLIMIT_MEMLOCK)
    is_free = most == resource.RLIM_INFINITY or holds(CAP_IPC_LOCK)
    facts: dict[str, object] = {
        "limit_bytes": None if most == resource.RLIM_INFINITY else most,
        "has_cap_ipc_lock": holds(CAP_IPC_LOCK),
        "how": None,
    }
    fix, keep = limit("memlock", _AMPLE), unit_setting("LimitMEMLOCK", _AMPLE)
    try:
        with mmap.mmap(-1, mmap.PAGESIZE) as page, pin(*place_of(page)) as pinned:
            how, why = pinned.how, pinned.why
    except LimitError as error:
        cost = "regions can only be registered on demand; windows work"
        text = str(error).partition(";")[0]
        return Finding("pinned-memory", "costs", text, cost, fix, facts, keep)
    facts["how"] = how
    if how != "pinned":
        cost = "the kernel may move it, which only a device in hardware would mind"
        return Finding("pinned-memory", "costs", f"{how}: {why}", cost, facts=facts)
    if is_free or most >= _AMPLE:
        text = "without limit" if is_free else f"up to {exact(most)} (RLIMIT_MEMLOCK)"
        return Finding("pinned-memory", "fine", text, facts=facts)
    text = f"{exact(most)} in all (RLIMIT_MEMLOCK)"
    cost = "larger regions can only be registered on demand; windows do not count"
    return Finding("pinned-memory", "costs", text, cost, fix, facts, keep)


def _on_demand() -> Finding:
    try:
        with mmap.mmap(-1, mmap.PAGESIZE) as page:
            OnDemand(Engine(), page).close()
    except LivedmaError as error:
        cost = "memory for the device has to be pinned"
        return Finding("on-demand", "costs", str(error), cost, facts={"is_allowed": False})
    text = "memory may be registered without pinning it"
    return Finding("on-demand", "fine", text, facts={"is_allowed": True})


def huge(files: Files) -> Finding:
    """Checks huge pages, for programs' windows: those of the server have pages of 4 KiB."""
    pool = next((one for one in pools(files) if one.size == _HUGE_PAGE and one.node is None), None)
    thp = transparent(files)
    facts = {
        "reserved": pool.total if pool else None,
        "available": pool.available if pool else None,
        "transparent": thp.enabled if thp else None,
    }
    text = f"{_reserved(pool)}; {_transparent(thp)}"
    if (pool and pool.available) or (thp and thp.enabled != "never"):
        return Finding("huge-pages", "fine", text, facts=facts)
    settings = {"vm.nr_hugepages": (pool.total if pool else 0) + _USUAL_HUGE}
    is_transparent = pool is None and thp is not None
    return Finding(
        "huge-pages",
        "costs",
        text,
        "windows with granules of 2 MiB get pages of 4 KiB: 512 times the descriptors",
        f"echo madvise | {as_root(f'tee {_THP}')}"
        if is_transparent
        else (sysctl(settings) if pool else ""),
        facts,
        sysctl_kept(settings) if pool else "",
    )


def _reserved(pool: HugePool | None) -> str:
    if pool is None:
        return "this kernel reserves none of 2 MiB"
    if not pool.total:
        return "none are reserved"
    return f"{pool.available:,} of {pool.total:,} reserved ones of 2 MiB are free"


def _transparent(thp: Transparent | None) -> str:
    if thp is None:
        return "there are no transparent ones"
    if thp.enabled == "never":
        return "transparent ones are off"
    return f"transparent ones are given on {'demand' if thp.enabled == 'madvise' else 'any use'}"
