# SPDX-License-Identifier: BSD-2-Clause
"""What windows are backed with: memory that says what it is, and files that may be cut short."""

from __future__ import annotations

import gc
import mmap
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from windowed import PAGE, RIGHTS, World, mapped_by_us

from livedma._native.mapping import Mapping
from livedma._native.rdma import Engine
from livedma.errors import LivedmaError, NoRoomError
from livedma.memory import Anonymous, File, Huge, Registrar, Window
from needs import needs

HUGE = 2 << 20
NR_HUGE = Path("/proc/sys/vm/nr_hugepages")
FREE_HUGE = Path("/sys/kernel/mm/hugepages/hugepages-2048kB/free_hugepages")


@pytest.fixture
def set_aside() -> Iterator[int]:
    """Huge pages that are free, as root sets them aside; given back at the end."""
    needs(os.geteuid() == 0 and NR_HUGE.exists(), "setting huge pages aside needs root")
    before = int(NR_HUGE.read_text())
    NR_HUGE.write_text(str(before + 4))
    got = int(NR_HUGE.read_text()) - before
    try:
        needs(got == 4, "memory is in pieces too small for huge pages")
        yield int(FREE_HUGE.read_text())
    finally:
        gc.collect()
        NR_HUGE.write_text(str(before))


def test_anonymous_memory_says_so() -> None:
    window = Window(Engine(), 4 * PAGE, mapped=PAGE)
    assert (window.backing.kind, window.backing.reason) == ("memfd", "")
    assert window.parts[0].kind == "memfd"


def test_huge_pages_that_are_set_aside(set_aside: int) -> None:
    world = World(4 * HUGE, HUGE)
    world.window.extend(2 * HUGE)
    assert world.window.backing.kind == "hugetlb", world.window.backing.reason
    assert world.write(HUGE - 100, bytes(range(200))) == "SUCCESS"
    assert bytes(world.window.view(HUGE - 100, 200)) == bytes(range(200))
    seen = world.window.statistics()
    assert (seen.descriptors, seen.descriptors_otherwise) == (2, 1024)
    assert int(FREE_HUGE.read_text()) == set_aside - 2
    world.window.close()
    assert int(FREE_HUGE.read_text()) == set_aside


def test_huge_pages_otherwise() -> None:
    """Transparent ones where the system has them, and the truth in either case."""
    needs(NR_HUGE.exists() and NR_HUGE.read_text() == "0\n", "huge pages are set aside")
    world = World(8 * HUGE, HUGE)
    part = world.window.extend()
    backing, mapping = world.window.backing, part.block.mapping
    assert "0 of 2 huge pages are set aside (sysctl vm.nr_hugepages)" in backing.reason
    assert mapping.address % HUGE == 0
    assert backing.kind == ("THP" if mapping.huge_bytes() == part.length else "4 KiB pages")
    expected = {"THP": 2, "4 KiB pages": 1024}
    if mapping.huge_bytes() in (0, part.length):
        assert world.window.statistics().descriptors == expected[backing.kind]
    assert world.write(1000, b"data") == "SUCCESS"


def test_small_pages_are_called_so() -> None:
    """In a process that may have no transparent huge pages."""
    program = f"""
import ctypes
PR_SET_THP_DISABLE = 41
assert ctypes.CDLL(None).prctl(PR_SET_THP_DISABLE, 1, 0, 0, 0) == 0
from livedma.memory import Huge
block = Huge().allocate(0, {2 * HUGE}, {HUGE}, None)
print(block.kind, block.descriptors, block.reason, sep="|")
"""
    needs(NR_HUGE.exists() and NR_HUGE.read_text() == "0\n", "huge pages are set aside")
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    kind, descriptors, reason = done.stdout.strip().split("|")
    assert (kind, descriptors) == ("4 KiB pages", "1024")
    assert "0 of 4096 KiB came in huge pages" in reason


@pytest.fixture
def small_cgroup() -> Iterator[Path]:
    """A memory cgroup of 64 MiB below this process's own."""
    lines = Path("/proc/self/cgroup").read_text().splitlines()
    places = {tuple(line.split(":")[1].split(",")): line.split(":", 2)[2] for line in lines}
    first = next((path for names, path in places.items() if "memory" in names), None)
    if first is not None:
        parent, limit = Path("/sys/fs/cgroup/memory" + first), "memory.limit_in_bytes"
    else:
        parent, limit = Path("/sys/fs/cgroup" + places.get(("",), "/nowhere")), "memory.max"
    group = parent / f"livedma-test-{os.getpid()}"
    try:
        group.mkdir()
    except OSError as error:
        needs(False, f"memory cgroups cannot be made: {error}")
    try:
        needs((group / limit).exists(), "the memory controller is not for us")
        (group / limit).write_text(str(64 << 20))
        yield group
    finally:
        group.rmdir()


def test_a_limit_is_an_error_and_not_the_end(small_cgroup: Path) -> None:
    """A process that exceeds a memory cgroup's limit is killed: it must not come so far."""
    program = f"""
import os
from livedma._native.rdma import Engine
from livedma.errors import NoRoomError
from livedma.memory import Window
with open({str(small_cgroup / "cgroup.procs")!r}, "w") as procs:
    procs.write(str(os.getpid()))
window = Window(Engine(), 1 << 30)
window.extend(16 << 20)
try:
    window.extend(256 << 20)
except NoRoomError as error:
    print(window.linked, error)
window.shrink()
window.extend(16 << 20)
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    linked, _, error = done.stdout.partition(" ")
    assert (int(linked), "64 MiB" in error) == (16 << 20, True)


def test_a_node_that_does_not_exist_is_told_not_fatal() -> None:
    block = Anonymous().allocate(0, PAGE, PAGE, 1000)
    assert "node 1000" in block.reason
    assert Anonymous().allocate(0, PAGE, PAGE, 0).reason == ""


def test_nobody_can_cut_the_memory_short() -> None:
    needs(os.geteuid() == 0, "/proc/self/map_files needs root")
    window = Window(Engine(), 4 * PAGE, mapped=PAGE)
    (line,) = mapped_by_us()
    path = f"/proc/self/map_files/{line.split()[0]}"
    with pytest.raises(PermissionError):
        os.truncate(path, 0)
    assert bytes(window.view(0, 4)) == bytes(4)


def test_children_have_no_part_in_it() -> None:
    """Else what is given back would stay, for as long as the child lives."""
    window = Window(Engine(), 4 * PAGE, mapped=PAGE)
    child = os.fork()
    if child == 0:
        os._exit(len(mapped_by_us()))
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert len(mapped_by_us()) == 1
    window.close()


def test_a_child_unmaps_nothing_of_its_own() -> None:
    mapping = Mapping(PAGE)
    address = mapping.address
    child = os.fork()
    if child == 0:
        own = Mapping(PAGE)  # most likely at the same place
        memoryview(own)[:2] = b"ok"
        mapping.close()
        os._exit(0 if bytes(memoryview(own)[:2]) == b"ok" else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert mapping.address == address


@pytest.mark.parametrize("arguments", [(0,), (100,), (PAGE, 1000), (PAGE, 3 * PAGE)])
def test_mappings_are_of_pages(arguments: tuple[int, ...]) -> None:
    with pytest.raises(ValueError, match="pages"):
        Mapping(*arguments)


# Files


@pytest.fixture
def file_world(tmp_path: Path) -> Iterator[World]:
    world = World(16 * PAGE, backing=File(tmp_path / "data"), part=4 * PAGE)
    yield world
    world.window.close()


def test_what_a_peer_writes_is_in_the_file(file_world: World, tmp_path: Path) -> None:
    window = file_world.window
    window.extend()
    window.extend()
    data = os.urandom(3 * PAGE)
    assert file_world.write(3 * PAGE - 7, data) == "SUCCESS"  # from part to part
    content = (tmp_path / "data").read_bytes()
    assert (len(content), content[3 * PAGE - 7 : 6 * PAGE - 7]) == (8 * PAGE, data)
    assert file_world.read(3 * PAGE, 100) == data[7:107]
    window.shrink(8 * PAGE)
    assert file_world.read(3 * PAGE, 100) == "REM_ACCESS_ERR"
    window.extend()
    assert file_world.read(3 * PAGE, PAGE) == data[7 : PAGE + 7]  # it is all there still
    assert window.backing.kind == "file"


def test_a_file_that_is_there_keeps_its_data(tmp_path: Path) -> None:
    (tmp_path / "old").write_bytes(b"h" * PAGE + b"e" * 100)
    world = World(4 * PAGE, backing=File(tmp_path / "old", offset=PAGE), mapped=PAGE)
    assert world.read(0, 101) == b"e" * 100 + b"\0"
    with pytest.raises(ValueError, match="page"):
        File(tmp_path / "old", offset=100)


@pytest.mark.parametrize("operation", ["WRITE", "READ"])
def test_a_file_that_is_cut_short(file_world: World, tmp_path: Path, operation: str) -> None:
    """The peer gets the protocol's error, the process lives, and what is left goes on."""
    window = file_world.window
    window.extend()
    file_world.write(0, b"kept")
    file_world.start(operation, 0, 4 * PAGE)
    file_world.until("peer")
    os.truncate(tmp_path / "data", PAGE)
    assert file_world.finish() == "REM_ACCESS_ERR"
    assert file_world.read(PAGE, 8) == "REM_ACCESS_ERR"
    assert file_world.write(2 * PAGE, b"x") == "REM_ACCESS_ERR"
    assert file_world.write(10, b"here") == "SUCCESS"
    assert file_world.read(10, 4) == b"here"
    with pytest.raises(LivedmaError, match="cut short"):
        window.flush()
    os.truncate(tmp_path / "data", 4 * PAGE)
    assert file_world.read(PAGE, 8) == bytes(8)
    assert window.shrink() == 4 * PAGE


def test_what_the_host_sends_of_a_cut_file(file_world: World, tmp_path: Path) -> None:
    file_world.window.extend()
    lease = file_world.window.take(PAGE)
    os.truncate(tmp_path / "data", 0)
    pair = file_world.pair
    pair.a.qp.post_recv(1, [pair.a.at(0, PAGE)])
    pair.b.qp.post_send(2, "SEND", [lease.piece])
    pair.run()
    assert [status for _, status in pair.b.statuses()] == ["LOC_PROT_ERR"]


def dirty_bytes(path: Path) -> int:
    """Of the file's mapping: what the system has yet to write."""
    about = Path("/proc/self/smaps").read_text().partition(f" {path}\n")[2]
    fields = dict(line.split(":") for line in about.splitlines()[:20] if ":" in line)
    return sum(int(fields[name].split()[0]) for name in ("Shared_Dirty", "Private_Dirty")) * 1024


def test_flushed_data_is_on_the_disk(file_world: World, tmp_path: Path) -> None:
    """Nothing is left to write; and looked at past the page cache."""
    kind = subprocess.check_output(["stat", "-f", "-c", "%T", tmp_path], text=True).strip()
    needs(kind != "tmpfs", "temporary files are in memory, where nothing is durable")
    window = file_world.window
    window.extend(8 * PAGE)
    window.flush()
    data = os.urandom(2 * PAGE)
    assert file_world.write(PAGE, data) == "SUCCESS"
    assert dirty_bytes(tmp_path / "data") == 2 * PAGE
    window.flush(PAGE, PAGE + 1)
    assert dirty_bytes(tmp_path / "data") == 0
    try:
        fd = os.open(tmp_path / "data", os.O_RDONLY | os.O_DIRECT)
    except OSError as error:
        needs(False, f"the file system has no O_DIRECT: {error}")
    with open(fd, "rb", buffering=0) as direct, mmap.mmap(-1, 2 * PAGE) as buffer:
        direct.seek(PAGE)
        assert direct.readinto(buffer) == 2 * PAGE
        assert buffer[:] == data
    window.flush()
    with pytest.raises(ValueError, match="mapped"):
        window.flush(7 * PAGE, 2 * PAGE)


def test_memory_is_never_durable() -> None:
    window = Window(Engine(), 4 * PAGE, mapped=PAGE)
    with pytest.raises(ValueError, match="durable"):
        window.flush()


def test_a_file_offers_no_atomics(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="atomics"):
        Window(Engine(), PAGE, PAGE, "remote_atomic", backing=File(tmp_path / "data"))
    with pytest.raises(ValueError, match="vanish"):
        Registrar(Engine(), backing=File(tmp_path / "data"))


def test_atomics_on_guarded_memory_are_denied() -> None:
    from livedma._native.window import Window as Core

    world = World(access=(*RIGHTS, "remote_atomic"))
    memory = mmap.mmap(-1, PAGE)
    core = Core(world.engine, PAGE, PAGE, ("local_write", "remote_atomic"), guarded=True)
    core.link(0, memory)
    core.sync(0, PAGE)
    a = world.pair.a
    a.qp.post_send(1, "FETCH_ADD", [a.at(0, 8)], remote_va=core.va, rkey=core.key, swap_add=1)
    assert world.finish() == "REM_ACCESS_ERR"
    assert memory[:8] == bytes(8)


@pytest.mark.parametrize("path", [".", "nowhere/data"])
def test_what_cannot_back_a_window(
    path: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(LivedmaError, match="cannot back a window"):
        File(path)


def test_a_full_disk_is_found_out_when_it_grows() -> None:
    """/dev/shm may hold at most half the memory, by default."""
    stat = os.statvfs("/dev/shm")
    needs(stat.f_blocks * stat.f_frsize < 1 << 40, "/dev/shm has no end")
    path = Path(f"/dev/shm/livedma-test-{os.getpid()}")
    try:
        window = Window(Engine(), 1 << 41, backing=File(path))
        with pytest.raises(NoRoomError, match="cannot grow"):
            window.extend(1 << 40)
        assert window.linked == 0
        assert window.extend(PAGE).length == PAGE
        window.close()
    finally:
        path.unlink(missing_ok=True)


def test_huge_backing_of_small_granules() -> None:
    window = Window(Engine(), 16 * PAGE, backing=Huge())
    window.extend(3 * PAGE)
    assert "no multiple of 2 MiB" in window.backing.reason
    assert window.backing.kind == "4 KiB pages"
