# SPDX-License-Identifier: BSD-2-Clause
"""Regions on demand: how they begin and end, what is refused, what they share with the process."""

from __future__ import annotations

import ctypes
import fcntl
import gc
import mmap
import os
import resource
import signal
import struct
import subprocess
import sys
import textwrap
import threading
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from pathlib import Path

import numpy as np
import pytest
from loopback import HERE, wait_until
from on_demand import PAGES, World, noise, world

from livedma.errors import LivedmaError
from livedma.memory import ledger
from livedma.rdma import Device
from mapped import PAGE, READ, advise, get, map_at, put, unmap, view
from needs import needs


@pytest.fixture
def w() -> Iterator[World]:
    with world() as one:
        yield one


def test_a_closed_region_is_refused(w: World) -> None:
    w.region.close()
    w.region.close()
    with pytest.raises(ValueError, match="closed"):
        w.region.prefetch()
    assert w.write(0, b"x") == "REM_ACCESS_ERR"


def test_the_last_region_leaves_nothing() -> None:
    def threads() -> list[str]:
        names = []
        for path in Path("/proc/self/task").glob("*/comm"):
            with suppress(OSError):  # it has ended meanwhile
                names.append(path.read_text().strip())
        return sorted(name for name in names if name in ("ldma-watcher", "ldma-filler"))

    def descriptors() -> int:
        return len(os.listdir("/proc/self/fd"))

    with Device(HERE) as device:
        pd = device.protection_domain()
        gc.collect()  # what tests before have forgotten may go meanwhile
        wait_until(lambda: not threads())
        base, before = map_at(0, 4), descriptors()
        for _ in range(3):
            with pd.register(view(base, 4 * PAGE), "remote_write", mode="on demand") as region:
                region.prefetch()
                wait_until(lambda: threads() == ["ldma-filler", "ldma-watcher"])
                assert descriptors() > before
        unmap(base, 4)  # waits for nobody
        wait_until(lambda: not threads() and descriptors() <= before)


def test_a_region_goes_with_its_device_or_its_last_user() -> None:
    def watched() -> int:
        return Path("/proc/self/smaps").read_text().count(" uw")

    before = watched()
    base = map_at(0, 4)
    with Device(HERE) as device:
        pd = device.protection_domain()
        kept = pd.register(view(base, 2 * PAGE), mode="on demand")
        dropped = pd.register(view(base + 2 * PAGE, 2 * PAGE), mode="on demand")
        assert watched() > before
        del dropped
        kept.prefetch()
    assert kept.closed
    assert watched() == before
    unmap(base, 4)


def test_a_childs_memory_is_its_own(w: World) -> None:
    assert w.write(0, b"parent") == "SUCCESS"
    read, write = os.pipe()
    child = os.fork()
    if not child:
        put(w.base, b"child ")
        advise(w.at(0), 1)
        unmap(w.at(0), 8)
        os.write(write, b"done")
        os._exit(0)
    assert os.read(read, 4) == b"done"
    assert w.read(0, 6) == b"parent"
    assert w.write(0, b"peer's") == "SUCCESS"
    assert get(w.base, 6) == b"peer's"
    assert os.waitpid(child, 0)[1] == 0
    os.close(read)
    os.close(write)


def test_forks_while_queue_pairs_come_and_go(w: World) -> None:
    is_over = threading.Event()

    def churn() -> None:
        while not is_over.is_set():
            qp = w.b.pd.queue_pair("RC", w.b.cq)
            advise(w.at(50), 4)
            qp.close()

    thread = threading.Thread(target=churn)
    thread.start()
    try:
        for i in range(30):
            child = os.fork()
            if not child:
                os._exit(0)
            assert w.write(i * PAGE, b"x" * 100) == "SUCCESS"
            assert os.waitpid(child, 0)[1] == 0
    finally:
        is_over.set()
        thread.join()


def test_it_is_in_the_ledger(w: World) -> None:
    entries = [e for e in ledger.read(os.getpid()) if e.kind == "on demand"]
    assert [(e.mapped, e.descriptors, e.granule) for e in entries] == [(PAGES * PAGE, PAGES, PAGE)]
    w.region.close()
    assert not [e for e in ledger.read(os.getpid()) if e.kind == "on demand"]


def test_refusals(w: World) -> None:
    with pytest.raises(ValueError, match="no region is 'loose'"):
        w.b.pd.register(bytearray(8), mode="loose")  # type: ignore[call-overload]
    with pytest.raises(ValueError, match="no tenant"):
        w.b.pd.register(bytearray(8), mode="on demand", tenant="x")  # type: ignore[call-overload]
    with pytest.raises(LivedmaError, match="cannot watch this memory"):
        w.b.pd.register(view(PAGE, 4 * PAGE), mode="on demand")  # where nothing ever is


def test_a_file_that_is_not_open_for_writing(tmp_path: Path, w: World) -> None:
    path = tmp_path / "file"
    path.write_bytes(bytes(PAGE))
    with path.open("rb") as file, mmap.mmap(file.fileno(), PAGE, prot=READ) as mapped:
        address = np.frombuffer(mapped, np.uint8).ctypes.data
        with pytest.raises(LivedmaError, match="not open for writing"):
            w.b.pd.register(view(address, PAGE), mode="on demand")


def test_memory_that_another_userfaultfd_watches(w: World) -> None:
    fd = ctypes.CDLL(None).syscall(323, os.O_CLOEXEC | 1)  # userfaultfd(UFFD_USER_MODE_ONLY)
    base = map_at(0, 4)
    fcntl.ioctl(fd, 0xC018AA3F, bytearray(struct.pack("QQQ", 0xAA, 0, 0)))  # UFFDIO_API
    watch = bytearray(struct.pack("QQQQ", base, 4 * PAGE, 1, 0))  # its first touches
    fcntl.ioctl(fd, 0xC020AA00, watch)  # UFFDIO_REGISTER
    with pytest.raises(LivedmaError, match="another userfaultfd"):
        w.b.pd.register(view(base, 4 * PAGE), mode="on demand")
    os.close(fd)
    w.b.pd.register(view(base, 4 * PAGE), mode="on demand").close()
    unmap(base, 4)


def test_no_descriptors_left() -> None:
    with Device(HERE) as device:
        pd, base = device.protection_domain(), map_at(0, 4)
        limits = resource.getrlimit(resource.RLIMIT_NOFILE)
        with ExitStack() as stack:
            stack.callback(resource.setrlimit, resource.RLIMIT_NOFILE, limits)
            resource.setrlimit(resource.RLIMIT_NOFILE, (64, limits[1]))
            with suppress(OSError):
                while True:
                    stack.callback(os.close, os.open("/dev/null", os.O_RDONLY))
            with pytest.raises(OSError, match="Too many open files"):
                pd.register(view(base, 4 * PAGE), mode="on demand")
        os.fstat(0)  # nobody else's was closed
        pd.register(view(base, 4 * PAGE), mode="on demand").close()
        unmap(base, 4)


def test_needs_no_privilege() -> None:
    needs(os.geteuid() == 0, "becoming another user needs root")
    child = os.fork()
    if not child:  # a process that has no device yet
        status = 1
        try:
            os.setgroups([])
            os.setgid(65534)
            os.setuid(65534)
            with world() as w:
                assert w.write(0, noise(8 * PAGE)) == "SUCCESS"
                advise(w.at(0), 1)
                assert w.region.present == 7
                with pytest.raises(LivedmaError, match="pagemap"):
                    w.region.sync_range(
                        0, PAGE
                    )  # a process that changed its user may not see its own
            status = 0
        finally:
            os._exit(status)
    assert os.waitpid(child, 0)[1] == 0


def in_a_process(code: str) -> subprocess.CompletedProcess[str]:
    path = (
        f"import sys; sys.path[:0] = {sys.path!r}; from on_demand import *; from mapped import *\n"
    )
    return subprocess.run(
        [sys.executable, "-c", path + textwrap.dedent(code)],
        capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip


def test_a_program_may_take_the_signals_away() -> None:
    """Whichever handler has SIGSEGV now, memory that vanishes is refused, and ends no process."""
    done = in_a_process("""
        import faulthandler
        with world() as w:
            w.region.prefetch()
            assert w.write(0, b"x" * PAGE) == "SUCCESS"
            faulthandler.enable()
            for page in range(64):
                assert w.write(page * PAGE, b"x" * PAGE) == "SUCCESS"
            protect(w.base, 64, NONE)
            assert w.write(0, b"x") == "REM_ACCESS_ERR"
            protect(w.base, 64, READ | WRITE)
            assert w.write(0, b"y") == "SUCCESS"
    """)
    assert (done.returncode, done.stderr) == (0, "")


def test_a_crash_of_the_program_is_its_own() -> None:
    done = in_a_process("""
        import faulthandler
        faulthandler.enable()
        with world() as w:
            assert w.write(0, b"x") == "SUCCESS"
            get(1, 1)
    """)
    assert done.returncode == -signal.SIGSEGV
    assert "Fatal Python error: Segmentation fault" in done.stderr
    assert "in get" in done.stderr
