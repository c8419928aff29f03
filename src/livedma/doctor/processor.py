# SPDX-License-Identifier: BSD-2-Clause
"""Checks the processors that this process may use."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import PurePosixPath

from livedma.doctor.finding import Finding
from livedma.memory.host import Files
from livedma.memory.host.text import number

__all__ = ["processor"]

_MUCH_STOLEN = 0.05
_FEW_CPUS = 2  # one for the device and one for the program that uses it


def processor(files: Files | None = None) -> Sequence[Finding]:
    files = files or Files()
    return [_checksums(files), _count(files), _steal(files)]


def _checksums(files: Files) -> Finding:
    words = set(files.text("proc/cpuinfo").split())
    has_multiply = bool(words & {"pclmulqdq", "pmull"})
    facts = {"has_carryless_multiplication": has_multiply}
    if has_multiply:
        text = "carry-less multiplication, which the ICRC needs"
        return Finding("processor", "fine", text, facts=facts)
    text = "no carry-less multiplication (PCLMULQDQ, PMULL)"
    cost = "the ICRC of every packet costs about ten times as much"
    return Finding("processor", "costs", text, cost, facts=facts)


def _count(files: Files) -> Finding:
    cpus, quota = len(os.sched_getaffinity(0)), _quota(files)
    facts = {"cpus": cpus, "of": os.cpu_count(), "quota": quota}
    if quota is not None and quota < min(cpus, _FEW_CPUS):
        text = f"{cpus} of {os.cpu_count()}, for {quota:.3g} CPUs' worth of time (cpu.max)"
        cost = "all threads stop together, for up to a tenth of a second, when that is used up"
        return Finding("cpus", "costs", text, cost, facts=facts)
    if cpus > 1:
        return Finding("cpus", "fine", f"{cpus} of {os.cpu_count()}", facts=facts)
    text = "one CPU for all threads"
    cost = "a thread that spins takes the time of the one it waits for: perf --spin 0"
    return Finding("cpus", "costs", text, cost, facts=facts)


def _quota(files: Files) -> float | None:
    """Returns the CPUs that the tightest cgroup allows; None: all, or it cannot be seen."""
    group = next(
        (line[3:] for line in files.text("proc/self/cgroup").splitlines() if line[:3] == "0::"), ""
    )
    found = []
    for path in (PurePosixPath(group), *PurePosixPath(group).parents):
        allowed, _, period = files.text(f"sys/fs/cgroup/{path}/cpu.max").partition(" ")
        if (time := number(allowed)) and (each := number(period.strip())):
            found.append(time / each)
    return min(found, default=None)


def _steal(files: Files) -> Finding:
    line = files.text("proc/stat").partition("\n")[0].split()
    if len(line) < 9 or line[0] != "cpu":
        return Finding("steal", "unknown", "/proc/stat does not tell")
    times = [int(each) for each in line[1:9]]  # user time includes guest time
    share = times[7] / max(1, sum(times))
    facts = {"share": round(share, 4)}
    text = f"{share:.1%} of the time since boot went to other guests of this host"
    if share < _MUCH_STOLEN:
        return Finding("steal", "fine", text, facts=facts)
    cost = "waits of milliseconds in p99 that no memory helps against; figures of runs vary"
    return Finding("steal", "costs", text, cost, facts=facts)
