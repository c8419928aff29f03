"""The processors that this process may use."""

from __future__ import annotations

import os
from collections.abc import Sequence

from livedma.doctor.finding import Finding
from livedma.memory.host import Files

__all__ = ["processor"]

_MUCH_STOLEN = 0.05


def processor(files: Files | None = None) -> Sequence[Finding]:
    files = files or Files()
    return [_checksums(files), _count(), _steal(files)]


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


def _count() -> Finding:
    cpus = len(os.sched_getaffinity(0))
    facts = {"cpus": cpus, "of": os.cpu_count()}
    if cpus > 1:
        return Finding("cpus", "fine", f"{cpus} of {os.cpu_count()}", facts=facts)
    text = "one CPU for all threads"
    cost = "a thread that spins takes the time of the one it waits for: perf --spin 0"
    return Finding("cpus", "costs", text, cost, facts=facts)


def _steal(files: Files) -> Finding:
    line = files.text("proc/stat").partition("\n")[0].split()
    if len(line) < 9 or line[0] != "cpu":
        return Finding("steal", "unknown", "/proc/stat does not tell")
    times = [int(each) for each in line[1:9]]  # guest time is part of user time
    share = times[7] / max(1, sum(times))
    facts = {"share": round(share, 4)}
    text = f"{share:.1%} of the time since boot went to other guests of this host"
    if share < _MUCH_STOLEN:
        return Finding("steal", "fine", text, facts=facts)
    cost = "waits of milliseconds in p99 that no memory helps against; figures of runs vary"
    return Finding("steal", "costs", text, cost, facts=facts)
