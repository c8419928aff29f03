# SPDX-License-Identifier: BSD-2-Clause
"""Reads one process: what it pins and locks, its limits, and what it has mapped for its devices."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass, field

from livedma.memory import ledger
from livedma.memory.host.cgroup import CgroupMemory, memory_of, place_of
from livedma.memory.host.files import Files
from livedma.memory.host.text import number, pairs, printable
from livedma.privilege import CAP_IPC_LOCK, maps_all_users

__all__ = [
    "MemlockLimit",
    "Process",
    "Status",
    "command_line",
    "limits",
    "read",
    "status",
]

_LOCKED = re.compile(r"^Max locked memory +(\S+) +(\S+) +bytes", re.MULTILINE)
_FIELD = re.compile(r"^(Name|Uid|CapEff):[ \t]+([^\t\n]*)", re.MULTILINE)
_VFIO = ("/dev/vfio/", "/dev/iommu", "anon_inode:[vfio")
_LONGEST_COMMAND = 200


@dataclass(frozen=True)
class MemlockLimit:
    """Holds RLIMIT_MEMLOCK in bytes; None: no limit."""

    soft: int | None
    hard: int | None


@dataclass(frozen=True)
class Status:
    """Holds the part of /proc/PID/status that matters here. If the sizes are None, the process has
    no memory of its own.
    """

    name: str
    uid: int | None
    pinned: int | None  #: VmPin: cannot be moved
    locked: int | None  #: VmLck: stays in memory, but not in its place
    resident: int | None
    huge: int | None  #: reserved huge pages in use
    capabilities: int  #: in effect


@dataclass(frozen=True)
class Process:
    pid: int
    name: str
    command: str  #: its command line, as far as it fits
    uid: int | None
    pinned: int
    locked: int
    resident: int
    huge: int
    memlock: MemlockLimit | None  #: None: unknown
    has_ipc_lock: bool  #: CAP_IPC_LOCK: no limit applies
    uses_vfio: bool | None  #: VFIO's pins are counted as locked; None: unknown
    cgroup: CgroupMemory | None
    entries: list[ledger.Entry] = field(default_factory=list)
    ledger_trouble: str = ""
    is_ledger_hidden: bool = False

    @property
    def mapped(self) -> int:
        return sum(entry.mapped for entry in self.entries)

    @property
    def is_of_interest(self) -> bool:
        return bool(self.pinned or self.locked or self.entries or self.ledger_trouble)


def status(text: str) -> Status:
    sizes, fields = pairs(text), dict(_FIELD.findall(text))
    capabilities = fields.get("CapEff", "")
    is_hex = re.fullmatch(r"[0-9a-f]{1,16}", capabilities)
    return Status(
        name=printable(fields.get("Name", "")),
        uid=number(fields.get("Uid", "")),
        pinned=sizes.get("VmPin"),
        locked=sizes.get("VmLck"),
        resident=sizes.get("VmRSS"),
        huge=sizes.get("HugetlbPages"),
        capabilities=int(capabilities, 16) if is_hex else 0,
    )


def command_line(text: str) -> str:
    """Makes /proc/PID/cmdline readable; the program is without its directory."""
    program, *arguments = text[:_LONGEST_COMMAND].rstrip("\0").split("\0")
    return printable(" ".join([program.rpartition("/")[2], *arguments]))


def limits(text: str) -> MemlockLimit | None:
    found = _LOCKED.search(text)
    return MemlockLimit(number(found[1]), number(found[2])) if found else None


def read(files: Files, pid: int, mounted: dict[int, tuple[str, str]]) -> Process | None:
    """Reads a process. None: it is a thread of the kernel, or it has ended. Raises PermissionError
    if this process may not see it, and FileNotFoundError or ProcessLookupError if it is gone.
    """
    directory = f"proc/{pid}"
    said = status(files.must(f"{directory}/status"))
    if said.resident is None:
        return None
    reading, is_hidden = _ledger(files, pid)
    place = place_of(files.text(f"{directory}/cgroup"))
    is_able = bool(said.capabilities >> CAP_IPC_LOCK & 1)
    return Process(
        pid=pid,
        name=said.name,
        command=command_line(files.text(f"{directory}/cmdline")) or said.name,
        uid=said.uid,
        pinned=said.pinned or 0,
        locked=said.locked or 0,
        resident=said.resident,
        huge=said.huge or 0,
        memlock=limits(files.text(f"{directory}/limits")),
        has_ipc_lock=is_able and maps_all_users(files.text(f"{directory}/uid_map")),
        uses_vfio=_uses_vfio(files, pid) if said.locked else False,
        cgroup=memory_of(files, place, mounted) if place else None,
        entries=reading.entries if reading else [],
        ledger_trouble=reading.trouble if reading else "",
        is_ledger_hidden=is_hidden,
    )


def _ledger(files: Files, pid: int) -> tuple[ledger.Reading | None, bool]:
    """Returns the process's ledger, and whether it is hidden."""
    try:
        return ledger.examine(pid, files.root / "proc"), False
    except PermissionError:
        return None, True
    except OSError:  # the process is ending
        return None, False


def _uses_vfio(files: Files, pid: int) -> bool | None:
    directory = files.root / "proc" / str(pid) / "fd"
    try:
        for name in os.listdir(directory):
            try:
                target = os.readlink(directory / name)
            except FileNotFoundError:  # the process has closed it
                continue
            if target.startswith(_VFIO):
                return True
    except OSError:
        return None
    return False
