# SPDX-License-Identifier: BSD-2-Clause
"""Takes a snapshot of the host and its processes."""

from __future__ import annotations

import re
from collections.abc import Collection
from dataclasses import dataclass

from livedma.errors import LivedmaError
from livedma.memory.host import process, system
from livedma.memory.host.cgroup import mounts
from livedma.memory.host.files import Files
from livedma.memory.host.process import Process
from livedma.memory.host.system import Host

__all__ = ["Snapshot", "look"]

#: the modes of hidepid that leave out other users' processes
_HIDING = re.compile(r" /proc \S+ .*- proc \S+ \S*\bhidepid=(?:2|4|invisible|ptraceable)\b")


@dataclass(frozen=True)
class Snapshot:
    host: Host
    processes: list[Process]  #: those asked for, else those of interest; the largest first
    seen: int  #: processes that were read
    hidden: int  #: processes that may not be read at all
    hidden_ledgers: int  #: of the processes that were read, those with a ledger that may not be
    may_hide_others: bool  #: /proc does not even list them, unless to root


def look(
    files: Files | None = None, pids: Collection[int] = (), page_size: int | None = None
) -> Snapshot:
    """Looks at the host and the processes `pids`; without `pids`, at all processes."""
    files = files or Files()
    mountinfo = files.text("proc/self/mountinfo")
    mounted = mounts(mountinfo)
    found, hidden = [], 0
    for pid in pids or [int(name) for name in files.names("proc") if name.isdecimal()]:
        try:
            one = process.read(files, pid, mounted)
        except PermissionError:
            hidden += 1
            continue
        except (FileNotFoundError, ProcessLookupError):
            if pids:
                raise LivedmaError(f"there is no process {pid}") from None
            continue
        if one is not None:
            found.append(one)
        elif pids:
            raise LivedmaError(
                f"process {pid} has no memory of its own: a thread of the kernel, or dead"
            )
    shown = [one for one in found if pids or one.is_of_interest]
    shown.sort(key=lambda one: (-max(one.pinned + one.locked, one.mapped), one.pid))
    return Snapshot(
        host=system.host(files, page_size),
        processes=shown,
        seen=len(found),
        hidden=hidden,
        hidden_ledgers=sum(one.is_ledger_hidden for one in found),
        may_hide_others=bool(_HIDING.search(mountinfo)),
    )
