"""What memory a device may have: pinned, on demand, in huge pages."""

from __future__ import annotations

import mmap
import resource

from livedma._native.pinning import place_of
from livedma._native.rdma import Engine
from livedma.doctor.finding import Finding
from livedma.errors import LimitError, LivedmaError
from livedma.memory import OnDemand, pin
from livedma.memory.memlock import amount
from livedma.privilege import CAP_IPC_LOCK, holds

__all__ = ["memory"]

_AMPLE = 1 << 30  # what a limit should allow before it is worth no word


def memory() -> list[Finding]:
    return [_pinned(), _on_demand()]


def _pinned() -> Finding:
    limit, _ = resource.getrlimit(resource.RLIMIT_MEMLOCK)
    is_free = limit == resource.RLIM_INFINITY or holds(CAP_IPC_LOCK)
    facts: dict[str, object] = {
        "limit_bytes": None if limit == resource.RLIM_INFINITY else limit,
        "has_cap_ipc_lock": holds(CAP_IPC_LOCK),
        "how": None,
    }
    fix = f"sudo prlimit --pid $$ --memlock={_AMPLE} (or LimitMEMLOCK= of the systemd unit)"
    try:
        with mmap.mmap(-1, mmap.PAGESIZE) as page, pin(*place_of(page)) as pinned:
            how, why = pinned.how, pinned.why
    except LimitError as error:
        cost = "regions can only be registered on demand; windows work"
        return Finding("pinned-memory", "costs", str(error).partition(";")[0], cost, fix, facts)
    facts["how"] = how
    if how != "pinned":
        cost = "the kernel may move it, which only a device in hardware would mind"
        return Finding("pinned-memory", "costs", f"{how}: {why}", cost, facts=facts)
    if is_free or limit >= _AMPLE:
        text = "without limit" if is_free else f"up to {amount(limit)} (RLIMIT_MEMLOCK)"
        return Finding("pinned-memory", "fine", text, facts=facts)
    text = f"{amount(limit)} in all (RLIMIT_MEMLOCK)"
    cost = "larger regions can only be registered on demand; windows do not count"
    return Finding("pinned-memory", "costs", text, cost, fix, facts)


def _on_demand() -> Finding:
    try:
        with mmap.mmap(-1, mmap.PAGESIZE) as page:
            OnDemand(Engine(), page).close()
    except LivedmaError as error:
        cost = "memory for the device has to be pinned"
        return Finding("on-demand", "costs", str(error), cost, facts={"is_allowed": False})
    text = "memory may be registered without pinning it"
    return Finding("on-demand", "fine", text, facts={"is_allowed": True})
