# SPDX-License-Identifier: BSD-2-Clause
"""Compaction and migration while we watch: the real kernel's, and counted by less than BPF."""

from __future__ import annotations

import errno
import mmap
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from machines import machine

from livedma.memory.host import Motion, MotionCounter
from livedma.memory.host.files import Files
from livedma.privilege import as_root
from needs import needs

PAGES = 16384


@pytest.fixture
def sparse() -> Iterator[mmap.mmap]:
    """Every other page of 64 MiB: blocks that compaction can empty by moving the rest together."""
    with mmap.mmap(-1, 2 * PAGES * 4096, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS) as memory:
        memory.madvise(mmap.MADV_NOHUGEPAGE)
        for page in range(2 * PAGES):
            memory[page * 4096] = 1
        for page in range(0, 2 * PAGES, 2):
            memory.madvise(mmap.MADV_DONTNEED, page * 4096, 4096)
        yield memory


@pytest.mark.slow
def test_real_compaction_is_counted(bpf: None, tracefs: None, sparse: mmap.mmap) -> None:
    with MotionCounter() as counter:
        assert counter.trouble == ""
        total = []
        for _ in range(20):
            Path("/proc/sys/vm/compact_memory").write_text("1")
            total.append(counter.since())
            if total[-1].pages_moved:
                break
    last = total[-1]
    assert last.source == "bpf"
    assert last.attempts >= 1
    # a request for no block of any size gets none: the whole zone, or as much as was possible
    assert sum(motion.ends.get("whole zone", 0) for motion in total) >= 1
    assert set(last.ends) <= {"success", "whole zone", "contended", "other"}
    assert last.failures == sum(last.ends.values()) - last.ends.get("success", 0)
    assert last.moved_because["compaction"] == last.pages_moved > 0
    assert all(sparse[page * 4096] == 1 for page in range(1, 2 * PAGES, 2))


WITHOUT = """
from pathlib import Path
from livedma.memory.host import MotionCounter
with MotionCounter() as counter:
    Path("/proc/sys/vm/compact_memory").write_text("1")
    motion = counter.since()
print(counter.trouble, motion.source, motion.attempts, sep="; ")
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("hidden", "said"),
    [
        (
            "/sys/kernel/tracing/events/compaction",
            "this kernel has no tracepoint mm_compaction_begin and no mm_compaction_end; bpf; 0\n",
        ),
        ("/sys/kernel/tracing", "none /sys/kernel/tracing; vmstat; 0\n"),
    ],
)
def test_a_kernel_with_fewer_tracepoints(hidden: str, said: str, bpf: None, tracefs: None) -> None:
    """An empty file system over their directory, in a mount namespace, is as if there were none."""
    cover = 'mount -t tmpfs none "$0" && exec "$@"'
    argv = ["unshare", "-m", "sh", "-c", cover, hidden, sys.executable, "-c", WITHOUT]
    done = subprocess.run(argv, check=True, capture_output=True, text=True, timeout=60)
    assert done.stdout.endswith(said)


def test_vmstat_counts_where_bpf_may_not(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    refuse(monkeypatch, OSError(errno.EPERM, "Operation not permitted"))
    files, now = vmstat(tmp_path, 10, 4, 1000, 50), iter([100.0, 102.0, 104.0])
    counter = MotionCounter(files, clock=lambda: next(now))
    assert counter.trouble == "BPF needs root (CAP_BPF and CAP_PERFMON)"
    vmstat(tmp_path, 16, 5, 3000, 50)
    motion = counter.since()
    assert motion == Motion("vmstat", 2.0, 6, 1, 2000, 0, {}, {"unknown": 2000}, {})
    assert (motion.rate(motion.attempts), motion.rate(motion.pages_moved)) == (3.0, 1000.0)
    assert counter.since().pages_moved == 0
    counter.close()


@pytest.mark.parametrize(
    ("number", "said"),
    [
        (errno.EACCES, "/sys/kernel/tracing"),
        (errno.ENOENT, as_root("mount -t tracefs")),
        (errno.ESRCH, "no BTF"),
        (errno.ENOMEM, "Cannot allocate memory"),
    ],
)
def test_what_is_missing_is_said(
    number: int, said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    refuse(monkeypatch, OSError(number, os.strerror(number)))
    with MotionCounter(Files(tmp_path)) as counter:
        assert said in counter.trouble
        assert counter.since().source == "vmstat"


def test_an_unprivileged_user_is_refused() -> None:
    needs(os.geteuid() == 0, "only a process that has privileges can drop them")
    pid = os.fork()
    if pid == 0:
        os.setgid(65534)
        os.setuid(65534)
        counter = MotionCounter()
        os._exit(0 if "root" in counter.trouble and counter.since().source == "vmstat" else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0


def refuse(monkeypatch: pytest.MonkeyPatch, error: OSError) -> None:
    """Which errors there are depends on the machine."""

    def refused() -> None:
        raise error

    monkeypatch.setattr("livedma._native.memory.MemorySession", refused)


def vmstat(root: Path, stall: int, fail: int, moved: int, failed: int) -> Files:
    text = (
        f"compact_stall {stall}\ncompact_fail {fail}\n"
        f"pgmigrate_success {moved}\npgmigrate_fail {failed}\n"
    )
    return machine(root, {"proc/vmstat": text})
