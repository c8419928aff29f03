# SPDX-License-Identifier: BSD-2-Clause
"""Checks RLIMIT_MEMLOCK, and tells the user what to do when it is exceeded."""

from __future__ import annotations

import resource
from pathlib import Path

from livedma.errors import LimitError
from livedma.privilege import CAP_IPC_LOCK, as_root, holds, maps_all_users
from livedma.sizes import exact


def limit() -> int | None:
    """Returns the limit of this process in bytes; None: there is none."""
    soft, _ = resource.getrlimit(resource.RLIMIT_MEMLOCK)
    return None if soft == resource.RLIM_INFINITY else soft


def is_free() -> bool:
    """Returns whether no limit applies to this process: it has none, or may exceed it."""
    if limit() is None:
        return True
    try:
        users = Path("/proc/self/uid_map").read_text()
    except FileNotFoundError:  # a kernel without user namespaces
        users = ""
    return holds(CAP_IPC_LOCK) and maps_all_users(users)


def check(asked: int, more: int, charged: int) -> None:
    """Raises LimitError if `more` bytes on top of what is charged would exceed the limit."""
    allowed = limit()
    if allowed is not None and charged + more > allowed and not holds(CAP_IPC_LOCK):
        raise LimitError(
            f"cannot pin {exact(asked)}: {_taken(charged)} pinned so far, {exact(more)} more "
            f"would be, and RLIMIT_MEMLOCK is {exact(allowed)}; {remedy(charged + more)}"
        )


def explains(more: int) -> bool:
    """Returns whether the kernel, by its own count, has to refuse to lock `more` bytes."""
    allowed = limit()
    if allowed is None or holds(CAP_IPC_LOCK):
        return False
    status = Path("/proc/self/status").read_text()
    locked = int(status.partition("VmLck:")[2].split()[0]) << 10
    return locked + more > allowed


def refused(asked: int, charged: int, problem: str) -> LimitError:
    """Makes the error for a refusal by the kernel, whose count may include what this process cannot
    know of.
    """
    allowed = limit()
    return LimitError(
        f"cannot pin {exact(asked)}: the kernel refuses ({problem}), {_taken(charged)} pinned by "
        f"this process, and RLIMIT_MEMLOCK is {'none' if allowed is None else exact(allowed)}; "
        f"{remedy((allowed or charged) + asked)}"
    )


def _taken(size: int) -> str:
    return f"{exact(size)} are" if size else "nothing is"


def remedy(needed: int) -> str:
    """Suggests a limit of twice what is needed: the kernel charges for more than livedma counts."""
    _, hard = resource.getrlimit(resource.RLIMIT_MEMLOCK)
    ample = 1 << (2 * needed - 1).bit_length()
    if hard == resource.RLIM_INFINITY or ample <= hard:
        now = f"raise it with `ulimit -l {ample >> 10}`"
    else:
        command = as_root(f"prlimit --pid $$ --memlock={ample}")
        now = f"raise it with `{command}` in the shell"
    return (
        f"{now}, for good by LimitMEMLOCK= of the systemd unit or memlock in "
        "/etc/security/limits.conf; or lift it with CAP_IPC_LOCK (AmbientCapabilities= of the unit)"
    )
