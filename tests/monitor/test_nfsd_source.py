# SPDX-License-Identifier: BSD-2-Clause
"""The source inside the kernel's NFS server, as far as a machine without that server tells."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from livedma.errors import LivedmaError
from livedma.monitor.nfsd import NfsdSource
from livedma.monitor.nfsd_threads import Threads
from livedma.monitor.source import Source
from needs import needs


def test_it_is_a_source() -> None:
    source = NfsdSource()
    assert isinstance(source, Source)
    assert not source.is_attached
    source.close()
    source.close()


def test_it_says_what_is_missing(bpf: None) -> None:
    needs(not Path("/sys/module/nfsd").exists(), "this machine has nfsd")
    needs(Path("/sys/kernel/btf/vmlinux").exists(), "this kernel has no BTF")
    with pytest.raises(LivedmaError, match="modprobe nfsd"):
        NfsdSource().attach()


@pytest.mark.parametrize("room", [{"connections": 0}, {"connections": 257}, {"sessions": 0}])
def test_its_room_is_bounded(room: dict[str, int]) -> None:
    with pytest.raises(LivedmaError, match="there is room for 1 to"):
        NfsdSource(**room).attach()  # type: ignore[arg-type]


def test_it_looks_at_no_interface() -> None:
    argv = [sys.executable, "-m", "livedma", "watch", "--inside", "lo"]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=60)
    assert done.returncode == 2
    assert "--inside looks at no interface" in done.stderr


def test_cpus_of_this_machine_are_counted() -> None:
    threads = Threads()
    threads.look(0)
    end = os.times().user + 0.2
    while os.times().user < end:
        pass
    seen = threads.look(0, serving_ns=500_000_000, interval_s=1.0)
    assert seen.serving == 0.5
    assert 0 < seen.cpus_busy <= 1
    assert seen.cpus == os.cpu_count()
    if not Path("/sys/module/nfsd").exists():
        assert (seen.threads, seen.cpus_used, seen.cpu_waiting) == (0, 0.0, None)
