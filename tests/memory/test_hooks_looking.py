# SPDX-License-Identifier: BSD-2-Clause
"""Hooks: what the kernel does to pages by itself is found by looking."""

from __future__ import annotations

import mmap
import os
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from hearing import HOUR, Hearer, Memory, heard_memory, until

from livedma._native.rdma import Engine
from livedma.memory import OnDemand, hooks
from mapped import PAGE, advise, get, map_at, put, unmap, view
from needs import needs

PAGEOUT, COLLAPSE = 21, 25
MIB = 1 << 20
HUGE = 2 * MIB


@pytest.fixture
def swap(tmp_path: Path) -> Iterator[None]:
    """A swap file of this host."""
    needs(os.geteuid() == 0, "only root can add swap")
    path = tmp_path / "swap"
    path.touch(0o600)
    with path.open("r+b") as file:
        os.posix_fallocate(file.fileno(), 0, 32 * MIB)
    subprocess.run(["mkswap", path], check=True, stdout=subprocess.DEVNULL, timeout=60)
    done = subprocess.run(["swapon", path], capture_output=True, text=True, timeout=60)
    needs(not done.returncode, f"no swap can be added here: {done.stderr.strip()}")
    yield
    subprocess.run(["swapoff", path], check=True, timeout=120)


def page_out(memory: Memory, page: int, pages: int) -> None:
    """Until the kernel has done it: a page that another CPU has just used stays."""
    pagemap = Path("/proc/self/pagemap")

    def swapped() -> bool:
        advise(memory.at(page), pages, PAGEOUT)
        with pagemap.open("rb", buffering=0) as file:
            file.seek(memory.at(page) // PAGE * 8)
            entries = memoryview(file.read(pages * 8)).cast("Q")
        return all(entry >> 62 & 1 for entry in entries)

    until(swapped)


def fresh(memory: Memory) -> None:
    put(memory.base, b"x" * memory.pages * PAGE)
    memory.told()


@pytest.mark.usefixtures("swap")
def test_pages_that_are_swapped_out_and_in() -> None:
    with heard_memory(16) as m:
        fresh(m)
        page_out(m, 4, 4)
        assert m.told() == [("invalidate_range", "swapped_out", 4, 4)]
        assert m.told() == []
        assert get(m.at(5), 3) == b"xxx"
        assert m.told() == [("update_page", "brought_in", 5, 1)]
        page_out(m, 5, 1)
        assert m.told() == [("invalidate_page", "swapped_out", 5, 1)]
        advise(m.at(4), 4)  # gone even from there
        assert m.told() == [("invalidate_range", "removed", 4, 4)]


@pytest.mark.usefixtures("swap")
def test_a_device_gives_up_what_is_swapped_out() -> None:
    """It asks for the page again instead of waiting for it with a packet in hand."""
    with heard_memory(8) as m, ExitStack() as stack:
        region = OnDemand(Engine(), view(m.base, 8 * PAGE), ("local_write", "remote_write"))
        stack.callback(region.close)
        region.prefetch()
        m.told()
        assert region.present == 8
        page_out(m, 2, 3)
        assert region.present == 8  # nobody has looked
        assert m.told() == [("invalidate_range", "swapped_out", 2, 3)]
        assert region.present == 5
        region.prefetch()
        assert m.told() == [("update_range", "brought_in", 2, 3)]
        assert region.present == 8


def test_what_a_region_was_asked_for() -> None:
    with heard_memory(8) as m, ExitStack() as stack:
        region = OnDemand(Engine(), view(m.base, 8 * PAGE), ("local_write", "remote_write"))
        stack.callback(region.close)
        fresh(m)
        assert region.sync_range(0, 8 * PAGE) == [(0, 8 * PAGE)]
        assert m.told() == [("sync_range", "taken", 0, 8)]
        put(m.at(3), b"y")
        assert region.sync_page(3 * PAGE)
        assert m.told() == [("sync_page", "taken", 3, 1)]
        unmap(m.at(6), 1)
        map_at(m.at(6), 1)
        region.update_page(6 * PAGE)
        assert m.told() == [
            ("invalidate_page", "unmapped", 6, 1),
            ("update_page", "offered", 6, 1),
        ]


def test_pages_in_another_frame() -> None:
    """Where the kernel moves them, here to make a huge page of them."""
    needs(os.geteuid() == 0, "only root sees frames")
    space = map_at(0, 2 * HUGE // PAGE)
    base = -(-space // HUGE) * HUGE
    advise(base, HUGE // PAGE, mmap.MADV_NOHUGEPAGE)
    with heard_memory(HUGE // PAGE, base) as m:
        fresh(m)
        advise(base, HUGE // PAGE, mmap.MADV_HUGEPAGE)
        try:
            advise(base, HUGE // PAGE, COLLAPSE)
        except OSError as error:
            needs(False, f"no huge page can be made: {error.strerror}")
        assert m.told() == [
            ("invalidate_range", "migrated", 0, HUGE // PAGE),
            ("update_range", "migrated", 0, HUGE // PAGE),
        ]
    unmap(space, 2 * HUGE // PAGE)


def test_a_write_after_a_fork_takes_another_frame() -> None:
    needs(os.geteuid() == 0, "only root sees frames")
    with heard_memory(4) as m:
        fresh(m)
        read, write = os.pipe()
        child = os.fork()
        if not child:
            os.close(write)
            os.read(read, 1)  # lives until the parent has written
            os._exit(0)
        until(lambda: len(m.heard) == 2)
        assert m.told() == [("change_protection", "forked", 0, 4)]
        put(m.at(2), b"y")
        assert m.told() == [
            ("invalidate_page", "migrated", 2, 1),
            ("update_page", "migrated", 2, 1),
        ]
        os.close(write)
        os.close(read)
        os.waitpid(child, 0)


def test_a_mapped_file(tmp_path: Path) -> None:
    """What happens to a page may happen to others of its folio, too."""
    path = tmp_path / "file"
    path.write_bytes(bytes(8 * PAGE))
    heard: list[tuple[str, str, hooks.Event]] = []

    def told(kind: str, cause: str, page: int) -> bool:
        hooks.look()
        until(lambda: bool(heard))
        events = [(hook.split("_")[0], e.cause, e.offset, e.length) for _, hook, e in heard]
        heard.clear()
        return any(
            event[:2] == (kind, cause) and event[2] <= page * PAGE < event[2] + event[3]
            for event in events
        )

    with path.open("r+b") as file, mmap.mmap(file.fileno(), 8 * PAGE) as memory:
        memory[:] = b"x" * 8 * PAGE
        memory.flush()
        with hooks.listen(memory, Hearer("it", heard), period=HOUR) as one:
            memory[PAGE] = 1
            hooks.look()
            memory.flush()
            if os.geteuid() == 0:
                assert told("sync", "written_back", 1)
            os.truncate(path, 6 * PAGE)
            assert told("invalidate", "dropped", 7)
            os.truncate(path, 8 * PAGE)
            assert memory[7 * PAGE] == 0
            assert told("update", "brought_in", 7)
        assert one.released.wait(30)


def test_looking_comes_by_itself() -> None:
    with heard_memory(4) as m:
        heard: list[tuple[str, str, hooks.Event]] = []
        with hooks.listen(view(m.base, 2 * PAGE), Hearer("often", heard), period=0.001):
            put(m.at(1), b"x")
            until(lambda: bool(heard))
        assert heard[0][1] == "update_page"
        assert m.told() == [("update_page", "brought_in", 1, 1)]  # once for all


def test_many_pages() -> None:
    """More than one block of 512, and listeners that share some of them."""
    with heard_memory(2000) as m:
        put(m.at(700), b"x" * 900 * PAGE)
        told = m.told()
        assert {(hook, cause) for hook, cause, _, _ in told} == {("update_range", "brought_in")}
        assert (told[0][2], sum(pages for *_, pages in told)) == (700, 900)
        with hooks.listen(view(m.at(500), 600 * PAGE), hooks.Listener(), period=HOUR):
            assert m.told() == []
        assert m.told() == []
        advise(m.at(0), 2000)
        assert m.told() == [("invalidate_range", "removed", 0, 2000)]


def test_more_is_told_than_a_look_remembers() -> None:
    """Then it may find what was told, but it misses nothing."""
    with heard_memory(600) as m:
        fresh(m)
        for page in range(0, 600, 2):
            unmap(m.at(page), 1)
        for page in range(0, 600, 2):
            map_at(m.at(page), 1)
        told = m.told()
        mapped = {
            page + i
            for hook, cause, page, pages in told
            if (hook.split("_")[0], cause) == ("update", "mapped")
            for i in range(pages)
        }
        assert sum(cause == "unmapped" for _, cause, _, _ in told) == 300
        assert mapped >= set(range(0, 600, 2))
        advise(m.at(0), 600)
        assert m.told()[0][1] == "removed"
