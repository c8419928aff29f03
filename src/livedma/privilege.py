"""What this process may do, by capability."""

from __future__ import annotations

from pathlib import Path

CAP_NET_ADMIN, CAP_NET_RAW, CAP_IPC_LOCK, CAP_SYS_ADMIN, CAP_BPF = 12, 13, 14, 21, 39


def holds(*capabilities: int) -> bool:
    """Whether all of them are in effect."""
    status = Path("/proc/thread-self/status").read_text()
    held = int(status.partition("CapEff:")[2].split()[0], 16)
    return all(held >> each & 1 for each in capabilities)


def may_share() -> bool:
    """Whether processes like this one may have devices at one address."""
    return holds(CAP_NET_ADMIN) and (holds(CAP_BPF) or holds(CAP_SYS_ADMIN))
