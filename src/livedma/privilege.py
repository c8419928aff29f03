"""What this process may do, by capability."""

from __future__ import annotations

from pathlib import Path

CAP_NET_ADMIN, CAP_NET_RAW, CAP_IPC_LOCK, CAP_SYS_ADMIN, CAP_BPF = 12, 13, 14, 21, 39


def holds(*capabilities: int) -> bool:
    """Whether all of them are in effect."""
    held = capability_set("CapEff")
    return all(held >> each & 1 for each in capabilities)


def capability_set(which: str) -> int:
    """A set of this thread, as a mask: CapEff (in effect), CapBnd (all that it could have)."""
    status = Path("/proc/thread-self/status").read_text()
    return int(status.partition(f"{which}:")[2].split()[0], 16)


def may_share() -> bool:
    """Whether processes like this one may have devices at one address."""
    return holds(CAP_NET_ADMIN) and (holds(CAP_BPF) or holds(CAP_SYS_ADMIN))
