# SPDX-License-Identifier: BSD-2-Clause
"""Regions over pinned memory: forks under traffic, limits that others do not feel, the end."""

from __future__ import annotations

import ctypes
import faulthandler
import gc
import hashlib
import mmap
import os
import random
import signal
import struct
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from commands import loopback_address, run, serving
from pairs import RIGHTS, connected
from writing_process import SIZE, pattern, writer

from kept import (
    MIB,
    PAGE,
    become_a_user,
    in_a_process,
    kept_from_children,
    needs_pins,
    pinned,
    until,
)
from livedma.errors import BudgetError, LimitError
from livedma.memory import accounting, tenant
from livedma.rdma import Device
from needs import needs
from unprivileged import as_user


@pytest.fixture(autouse=True)
def _pins() -> None:
    needs_pins()


def frames(address: int, length: int) -> list[int]:
    """The frames of physical memory that hold the pages, which only root may see."""
    first, last = address // PAGE, (address + length - 1) // PAGE
    with Path("/proc/self/pagemap").open("rb", buffering=0) as pagemap:
        pagemap.seek(8 * first)
        entries = pagemap.read(8 * (last - first + 1))
    return [entry & (1 << 55) - 1 for (entry,) in struct.iter_unpack("<Q", entries)]


@contextmanager
def child_that_writes(address: int) -> Iterator[Callable[[], int]]:
    """It waits until the function that this yields is called, writes at the address, and ends.

    The function returns by which signal, or 0 if it ended well.
    """
    waiting, go = os.pipe()
    child = os.fork()
    if not child:
        faulthandler.disable()
        os.close(go)
        if os.read(waiting, 1):
            ctypes.memset(address, 0xEE, 1)
        os._exit(0)

    def let_it_write() -> int:
        os.write(go, b"x")
        status = os.waitpid(child, 0)[1]
        assert os.WEXITSTATUS(status) == 0
        return os.WTERMSIG(status)

    try:
        yield let_it_write
    finally:
        os.close(waiting)
        os.close(go)


def test_a_fork_separates_no_program_from_its_buffer() -> None:
    """What the peer writes arrives and what the parent writes is read, whatever a child does."""
    needs(os.geteuid() == 0, "where memory is, only root may see")
    here, there = loopback_address(), loopback_address()
    with Device(here) as device, writer(there) as peer:
        pd = device.protection_domain()
        memory = bytearray(2 * SIZE)
        region = pd.register(memory, *RIGHTS)
        assert region.pin.how == "pinned"
        qp = pd.queue_pair("RC", device.completion_queue())
        qp.modify("INIT", access=RIGHTS)
        qp.modify("RTR", mtu=1024, dst=there, dest_qp=peer.number, rq_psn=7)
        qp.modify("RTS", sq_psn=7)
        peer.tell(f"{here} {qp.number} {region.va} {region.rkey}")

        def rounds() -> int:
            return int.from_bytes(memory[:8], "little")

        until(rounds)
        where = frames(region.va, SIZE * 2)
        assert all(where)
        middle = region.va + SIZE
        # At both edges there are other objects, too: a child has copies of those pages.
        for at, ends_by in [(middle, signal.SIGSEGV), (region.va, 0), (middle + SIZE - 1, 0)] * 3:
            with child_that_writes(at) as let_it_write:
                mine = random.randbytes(SIZE)
                memory[SIZE:] = mine
                seen = rounds()
                until(lambda seen=seen: rounds() > seen + 1)
                assert frames(region.va, SIZE * 2) == where
                assert let_it_write() == ends_by
            assert memory[SIZE:] == mine
        last = int(peer.ask("stop"))
        assert memory[:SIZE] == pattern(last)
        assert peer.ask("read") == hashlib.sha256(mine).hexdigest()


def traffic_at_the_limit() -> None:
    become_a_user(memlock=4 * MIB)
    with connected(addresses=(loopback_address(), loopback_address())) as (a, b):
        done, rounds, wrong = threading.Event(), [0], []

        def write() -> None:
            try:
                while not done.is_set():
                    data = a.fill(0, 10_000, rounds[0])
                    a.qp.post_send(
                        1, "WRITE", [a.region[:10_000]], remote_va=b.region.va, rkey=b.region.rkey
                    )
                    assert a.complete()[0].status == "SUCCESS"
                    assert b.memory[:10_000] == data
                    rounds[0] += 1
            except BaseException as error:
                wrong.append(error)

        thread = threading.Thread(target=write)
        thread.start()
        tenant("small").limit = 2 * PAGE
        before = accounting.process().charged, pinned(), len(kept_from_children(0, 1 << 47))
        for _ in range(20):
            seen = rounds[0]
            with pytest.raises(LimitError, match=r"cannot pin 4092 KiB.*RLIMIT_MEMLOCK is 4 MiB"):
                a.pd.register(mmap.mmap(-1, 4 * MIB - PAGE))  # on pages, unlike a bytearray
            with pytest.raises(BudgetError, match="the tenant 'small'"):
                a.pd.register(bytearray(4 * PAGE), tenant="small")
            after = accounting.process().charged, pinned(), len(kept_from_children(0, 1 << 47))
            assert after == before and tenant("small").charged == 0
            until(lambda seen=seen: wrong or rounds[0] > seen)
        a.pd.register(bytearray(PAGE), tenant="small").close()
        done.set()
        thread.join(30)
        print(before[0] == before[1], wrong, rounds[0] >= 20)


def test_a_limit_that_one_reaches_is_not_felt_by_others() -> None:
    needs(os.geteuid() == 0, "becoming another user needs root")
    assert in_a_process(traffic_at_the_limit) == "True [] True\n"


def test_a_region_that_is_refused_holds_nothing() -> None:
    with Device(loopback_address()) as device:
        pd = device.protection_domain()
        memory, before = bytearray(4 * PAGE), pinned()
        tenant("nothing").limit = 0
        with pytest.raises(BudgetError):
            pd.register(memory, tenant="nothing")
        tenant("nothing").limit = None
        with pytest.raises(KeyError):
            pd.register(memory, "no right is called so")
        with pytest.raises(ValueError, match="give one of pinned"):
            pd.register(memory, mode="nailed")  # type: ignore[arg-type]
        assert pinned() == before
        memory.extend(b"x")  # nobody holds it
        pd.close()


@pytest.mark.parametrize("end", ["region", "device", "nobody"])
def test_the_memory_is_let_go(end: str) -> None:
    before = pinned()
    device = Device(loopback_address())
    region = device.protection_domain().register(bytearray(MIB), tenant="it")
    assert pinned() >= before + MIB
    assert tenant("it").charged == pinned() - before
    if end == "region":
        region.close()
        region.close()
    elif end == "device":
        device.close()
        assert region.pin.how == "unlocked"
    else:
        del region
        gc.collect()
    assert (pinned(), tenant("it").charged) == (before, 0)
    device.close()


@pytest.mark.slow
def test_commands_work_under_the_usual_limit() -> None:
    address, user = loopback_address(), as_user(8 * MIB)
    with serving(*user, "livedma", "perf", "send-bw", "--listen", address) as server:
        done = run(*user, "livedma", "perf", "send-bw", address, "-n", "100")
        assert done.returncode == 0, done.stderr
        assert server.wait()[0] == 0
    address = loopback_address()
    with serving(*user, "livedma", "rping", "-s", "-a", address) as server:
        done = run(*user, "livedma", "rping", "-c", "-a", address, "-C", "3")
        assert done.returncode == 0, done.stderr
        assert server.wait()[0] == 0


@pytest.mark.slow
@pytest.mark.parametrize("memlock", [0, 64 << 10])
def test_commands_say_what_limit_stops_them(memlock: int) -> None:
    needs(os.geteuid() == 0, "becoming another user needs root")
    address = loopback_address()
    with serving("livedma", "perf", "send-bw", "--listen", address):
        done = run(*as_user(memlock), "livedma", "perf", "send-bw", address)
    assert done.returncode == 1
    assert done.stderr.startswith("livedma: cannot pin ") and "RLIMIT_MEMLOCK is" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.slow
def test_a_client_hears_of_the_limit_of_its_server() -> None:
    needs(os.geteuid() == 0, "becoming another user needs root")
    address = loopback_address()
    with serving(*as_user(MIB), "livedma", "perf", "send-bw", "--listen", address) as server:
        done = run("livedma", "perf", "send-bw", address, "--size", "1MiB")
        assert "livedma: cannot pin 2 MiB" in server.wait()[2]
    assert done.returncode == 1
    assert f"{address} says: cannot pin 2 MiB" in done.stderr
    assert "RLIMIT_MEMLOCK is 1 MiB" in done.stderr
