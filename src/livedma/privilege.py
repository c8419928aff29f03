# SPDX-License-Identifier: BSD-2-Clause
"""Tells what this process may do, by capability."""

from __future__ import annotations

import os
from pathlib import Path

CAP_NET_ADMIN, CAP_NET_RAW, CAP_IPC_LOCK, CAP_SYS_ADMIN, CAP_BPF = 12, 13, 14, 21, 39

_EVERY_USER = 4294967295


def holds(*capabilities: int) -> bool:
    """Returns whether all of these capabilities are in effect."""
    held = capability_set("CapEff")
    return all(held >> each & 1 for each in capabilities)


def capability_set(which: str) -> int:
    """Returns a capability set of this thread as a mask: CapEff (in effect), CapBnd (all that it
    could have).
    """
    status = Path("/proc/thread-self/status").read_text()
    return int(status.partition(f"{which}:")[2].split()[0], 16)


def maps_all_users(text: str) -> bool:
    """Returns whether /proc/PID/uid_map maps all users. Capabilities count for the host only
    outside of user namespaces.
    """
    return not text or text.split() == ["0", "0", str(_EVERY_USER)]


def as_root(command: str) -> str:
    """Returns the command as this user has to type it to run it as root.

    Every command that livedma prints for people passes through here. Root gets no sudo: root needs
    none, and most containers have none.
    """
    return command if os.geteuid() == 0 else f"sudo {command}"


def may_share() -> bool:
    """Returns whether processes like this one may share one address for their devices."""
    return holds(CAP_NET_ADMIN) and (holds(CAP_BPF) or holds(CAP_SYS_ADMIN))
