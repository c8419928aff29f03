# SPDX-License-Identifier: BSD-2-Clause
"""Collects the facts about an experiment's machine that can matter for the figures."""

from __future__ import annotations

import os
import platform
import re
import resource
from datetime import UTC, datetime
from pathlib import Path

from livedma.lab.experiment.quantities import quantity
from livedma.privilege import CAP_IPC_LOCK, holds
from livedma.version import commit, version

__all__ = ["describe_host"]


def describe_host() -> dict[str, str]:
    """Returns facts by name."""
    return {
        "livedma": _version(),
        "processor": _processor(),
        "kernel": f"{platform.system()} {platform.release()} {platform.machine()}",
        "memory": _memory(),
        "transparent huge pages": _chosen("/sys/kernel/mm/transparent_hugepage/enabled"),
        "reserved huge pages": _huge_pages(),
        "locked memory": _locked(),
        "Python": platform.python_version(),
        "measured": datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC"),
    }


def _version() -> str:
    return f"{version()}, commit {commit() or 'unknown'}"


def _processor() -> str:
    text = Path("/proc/cpuinfo").read_text()
    model = re.search(r"^model name\s*:\s*(.*)$", text, re.MULTILINE)
    name = model[1] if model else platform.machine()
    flags = text.split()
    is_guest = " (virtual machine)" if "hypervisor" in flags else ""
    return f"{len(os.sched_getaffinity(0))} CPUs, {name}{is_guest}"


def _meminfo() -> dict[str, int]:
    found = re.findall(r"^(\w+):\s+(\d+)( kB)?$", Path("/proc/meminfo").read_text(), re.MULTILINE)
    return {name: int(value) * (1024 if unit else 1) for name, value, unit in found}


def _memory() -> str:
    info = _meminfo()
    total, free = (quantity(info[name], "bytes") for name in ("MemTotal", "MemAvailable"))
    return f"{total}, {free} available"


def _chosen(path: str) -> str:
    """Returns the word in brackets of a file that lists the choices."""
    try:
        words = re.search(r"\[(.*)\]", Path(path).read_text())
    except OSError:
        return "not in this kernel"
    return words[1] if words else "unknown"


def _huge_pages() -> str:
    info = _meminfo()
    size = quantity(info.get("Hugepagesize", 0), "bytes")
    return f"{info.get('HugePages_Total', 0)} of {size}, {info.get('HugePages_Free', 0)} free"


def _locked() -> str:
    limit, _ = resource.getrlimit(resource.RLIMIT_MEMLOCK)
    text = "unlimited" if limit == resource.RLIM_INFINITY else quantity(limit, "bytes")
    return f"RLIMIT_MEMLOCK {text}{', lifted by CAP_IPC_LOCK' if holds(CAP_IPC_LOCK) else ''}"
