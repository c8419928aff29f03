# SPDX-License-Identifier: BSD-2-Clause
"""The ledger: written here, read there, whatever either does."""

from __future__ import annotations

import mmap
import os
import random
import resource
import signal
import subprocess
import sys
import threading
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from livedma.memory import ledger
from needs import needs

WAIT_S = 30

WRITER = """
import sys
from livedma.memory import ledger
entry = ledger.record("window", granule=2 << 20, reserved=1 << 40)
entry.update(mapped=4 << 30, descriptors=2048, links=4)
print("ready", flush=True)
sys.stdin.read()
"""
#: an entry whose numbers belong together, changed as fast as can be
RESTLESS = """
from livedma.memory import ledger
entry = ledger.record("pinned")
print("ready", flush=True)
n = 0
while True:
    n = (n * 6364136223846793005 + 1442695040888963407) % (1 << 50)
    entry.update(mapped=n, descriptors=n ^ 0x2AAAAAAAAAAAA, links=n ^ 0x1555555555555)
"""


@pytest.fixture
def start() -> Iterator[Callable[[str], subprocess.Popen[str]]]:
    """Runs a program and returns when it has said something."""
    running = []

    def run(program: str) -> subprocess.Popen[str]:
        process = subprocess.Popen(
            [sys.executable, "-c", program],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        running.append(process)
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        return process

    yield run
    for process in running:
        process.kill()
        process.communicate(timeout=WAIT_S)


@pytest.fixture
def clean() -> Iterator[None]:
    """Nothing is written down by this process before, nor after."""
    ledger._after_fork_in_child()
    yield
    ledger._after_fork_in_child()


def in_child(work: Callable[[], bool]) -> bool:
    pid = os.fork()
    if pid == 0:
        try:
            os._exit(0 if work() else 1)
        except BaseException:
            os._exit(2)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0


def own() -> list[ledger.Entry]:
    entries = ledger.read(os.getpid())
    assert entries is not None
    return entries


def own_map(clean: None) -> mmap.mmap:
    """The memory of this process's ledger, to write nonsense into."""
    ledger.record("flat").update(mapped=4096)
    assert ledger._current is not None
    assert ledger._current._map is not None
    return ledger._current._map


def test_another_process_is_read(start: Callable[[str], subprocess.Popen[str]]) -> None:
    pid = start(WRITER).pid
    assert ledger.read(pid) == [
        ledger.Entry(
            "window", 1, 2 << 20, reserved=1 << 40, mapped=4 << 30, descriptors=2048, links=4
        )
    ]


def test_nothing_stays_of_the_killed(start: Callable[[str], subprocess.Popen[str]]) -> None:
    process = start(WRITER)
    process.send_signal(signal.SIGKILL)
    process.wait(WAIT_S)
    with pytest.raises(ProcessLookupError):
        ledger.read(process.pid)


def test_a_process_without(clean: None) -> None:
    assert ledger.read(os.getpid()) is None


def test_the_life_of_a_record(clean: None) -> None:
    first = ledger.record("window", granule=2 << 20, reserved=1 << 30)
    second = ledger.record("on demand")
    first.update(mapped=4 << 20, descriptors=2)
    first.update(links=1)
    second.update(mapped=8192, reserved=1 << 20)
    assert sorted(own(), key=lambda entry: entry.kind) == [
        ledger.Entry("on demand", 1, 4096, 1 << 20, 8192, 0, 0),
        ledger.Entry("window", 1, 2 << 20, 1 << 30, 4 << 20, 2, 1),
    ]
    first.remove()
    first.remove()
    first.update(mapped=1)
    assert [entry.kind for entry in own()] == ["on demand"]


@pytest.mark.parametrize(
    "wrong",
    [{"kind": "rug"}, {"granule": 0}, {"granule": 4097}, {"granule": 512}, {"reserved": -1}],
)
def test_wrong_use(wrong: dict[str, object]) -> None:
    with pytest.raises(ValueError):
        ledger.record(**{"kind": "window", **wrong})  # type: ignore[arg-type]


def test_an_update_that_cannot_be_changes_nothing(clean: None) -> None:
    entry = ledger.record("flat")
    entry.update(mapped=4096, links=1)
    for wrong in (-1, 1 << 57, 1 << 70):
        with pytest.raises(ValueError):
            entry.update(mapped=0, descriptors=wrong)
    assert own() == [ledger.Entry("flat", 1, 4096, 0, 4096, 0, 1)]


def test_what_has_no_room_is_summed(clean: None) -> None:
    records = [ledger.record("pinned") for _ in range(ledger.CAPACITY + 3)]
    more = ledger.record("window", granule=2 << 20, reserved=1 << 30)
    for each in records:
        each.update(mapped=8192, descriptors=2, links=1)
    more.update(mapped=2 << 20)
    sums = [entry for entry in own() if not entry.granule]
    assert sums == [
        ledger.Entry("window", 1, 0, 1 << 30, 2 << 20, 0, 0),
        ledger.Entry("pinned", 3, 0, 0, 3 * 8192, 6, 3),
    ]
    assert sum(entry.mapped for entry in own()) == len(records) * 8192 + (2 << 20)
    for each in reversed(records):
        each.remove()
    assert [entry.kind for entry in own()] == ["window"]
    more.remove()
    assert own() == []
    ledger.record("flat")  # in a place that was given back
    assert [entry.granule for entry in own()] == [4096]


def test_threads(clean: None) -> None:
    def work() -> None:
        for _ in range(300):
            records = [ledger.record("flat") for _ in range(5)]
            for each in records:
                each.update(mapped=4096, links=1)
            for each in records[1:]:
                each.remove()

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(WAIT_S)
    entries = own()
    assert sum(entry.count for entry in entries) == sum(entry.links for entry in entries) == 1200
    assert sum(entry.mapped for entry in entries) == 1200 * 4096


def test_a_child_has_its_own(clean: None) -> None:
    entry = ledger.record("window", reserved=1 << 20)

    def work() -> bool:
        if ledger.read(os.getpid()) is not None:
            return False
        entry.update(mapped=1 << 20)
        entry.remove()
        ledger.record("flat")
        return [each.kind for each in own()] == ["flat"]

    assert in_child(work)
    assert own() == [ledger.Entry("window", 1, 4096, 1 << 20, 0, 0, 0)]


def test_fork_while_others_write(clean: None) -> None:
    """A lock that was held at that moment is nobody's in the child."""
    done = threading.Event()

    def write() -> None:
        entry = ledger.record("pinned")
        while not done.is_set():
            entry.update(mapped=random.randrange(1 << 40))
            ledger.record("flat").remove()

    thread = threading.Thread(target=write)
    thread.start()
    try:
        for _ in range(20):
            assert in_child(lambda: ledger.record("flat") is not None and len(own()) == 1)
    finally:
        done.set()
        thread.join(WAIT_S)


def test_an_inherited_ledger_is_not_the_childs(clean: None) -> None:
    ledger.record("window")
    assert ledger._current is not None
    assert ledger._current._map is not None
    (path,) = [
        entry.path for entry in os.scandir("/proc/self/fd") if "ledger" in os.readlink(entry.path)
    ]
    inherited = os.dup(int(Path(path).name))
    try:
        assert in_child(lambda: ledger.read(os.getpid()) is None)
        assert len(own()) == 1
    finally:
        os.close(inherited)


def test_no_entry_is_torn(start: Callable[[str], subprocess.Popen[str]]) -> None:
    pid, seen = start(RESTLESS).pid, set()
    for _ in range(1000):
        reading = ledger.examine(pid)
        assert reading is not None
        for entry in reading.entries:
            if entry.mapped:
                assert entry.descriptors == entry.mapped ^ 0x2AAAAAAAAAAAA
                assert entry.links == entry.mapped ^ 0x1555555555555
                seen.add(entry.mapped)
    assert len(seen) > 1


def checked(body: bytes) -> bytes:
    return zlib.crc32(body).to_bytes(4, "little") + body


def lie(kind: int, count: int, granule: int, *sizes: int, pinned: int = 0) -> bytes:
    return checked(ledger._ENTRY.pack(0, kind, count, granule, *sizes, pinned, b"")[4:])


@pytest.mark.parametrize(
    "nonsense",
    [
        b"\1" * 128,
        lie(1, 1, 4096, 0, 0, 0, 0)[:64] + b"\7" * 64,  # half of one entry, half of another
        lie(9, 1, 4096, 0, 0, 0, 0),
        lie(0, 1, 4096, 0, 0, 0, 0),
        lie(1, 0, 4096, 0, 0, 0, 0),
        lie(1, 2, 4096, 0, 0, 0, 0),
        lie(1, 1, 4097, 0, 0, 0, 0),
        lie(1, 1, 1 << 63, 0, 0, 0, 0),
        lie(1, 1, 4096, 1 << 57, 0, 0, 0),
        lie(1, 1, 4096, 0, (1 << 64) - 1, 0, 0),
        lie(1, 1, 4096, 0, 0, 1 << 60, 0),
        lie(1, 1, 4096, 0, 0, 0, 1 << 58),
        lie(1, 1, 4096, 0, 0, 0, 0, pinned=1 << 57),
        lie(1, 1 << 60, 0, 0, 0, 0, 0),
    ],
)
def test_a_ledger_that_lies(nonsense: bytes, clean: None) -> None:
    memory = own_map(clean)
    memory[64 + 128 * 500 : 64 + 128 * 501] = nonsense
    reading = ledger.examine(os.getpid())
    assert reading is not None
    assert [entry.kind for entry in reading.entries] == ["flat"]
    assert reading.trouble == "1 entries of its ledger make no sense"


def test_any_bytes(clean: None) -> None:
    memory, source = own_map(clean), random.Random(4791)
    memory[64:] = source.randbytes(len(memory) - 64)
    reading = ledger.examine(os.getpid())
    assert reading is not None
    assert reading.entries == []
    assert reading.trouble == "1023 entries of its ledger make no sense"


def test_another_version(clean: None) -> None:
    memory = own_map(clean)
    memory[8:12] = (7).to_bytes(4, "little")
    reading = ledger.examine(os.getpid())
    assert reading == ledger.Reading([], "its ledger is of version 7; this is version 2")


def test_a_name_is_not_enough(clean: None) -> None:
    """Empty, short, without the mark, of somebody else: no ledger. An honest one is still found."""
    header = ledger._HEADER.pack(b"LDMALEDG", 2, os.getpid() + 1, 128, 1023)
    impostors = []
    for content in (b"", b"LDMALEDG", b"x" * 100_000, header.ljust(1 << 17, b"\0")):
        fd = os.memfd_create("livedma-ledger")
        os.write(fd, content)
        impostors.append(fd)
    try:
        assert ledger.read(os.getpid()) is None
        ledger.record("flat")
        assert len(own()) == 1
    finally:
        for fd in impostors:
            os.close(fd)


@pytest.mark.slow
def test_a_process_that_has_another_number_inside() -> None:
    needs(os.geteuid() == 0, "this needs root: a PID namespace")
    argv = ["unshare", "--pid", "--fork", "--kill-child", sys.executable, "-c", WRITER]
    process = subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        (child,) = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
        entries = ledger.read(int(child))
        assert entries is not None
        assert [entry.mapped for entry in entries] == [4 << 30]
    finally:
        process.kill()
        process.communicate(timeout=WAIT_S)


@pytest.mark.slow
def test_what_is_no_memfd_is_not_opened(tmp_path: Path) -> None:
    """In a mount namespace of its own a process may give the name to anything, such as a pipe."""
    needs(os.geteuid() == 0, "this needs root: a mount namespace")
    program = """
        mount -t tmpfs none "$0" && cd "$0" && mkfifo "memfd:livedma-ledger (deleted)" &&
        mkdir old && pivot_root . old && exec 3<>"/memfd:livedma-ledger (deleted)" &&
        echo ready && read line
    """
    process = subprocess.Popen(
        ["unshare", "-m", "sh", "-c", program, str(tmp_path)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        assert os.readlink(f"/proc/{process.pid}/fd/3") == ledger._LINK
        assert ledger.read(process.pid) is None
    finally:
        process.kill()
        process.communicate(timeout=WAIT_S)


def test_who_may_not_look_is_told(start: Callable[[str], subprocess.Popen[str]]) -> None:
    if os.geteuid() != 0:
        with pytest.raises(PermissionError):
            ledger.read(1)
        return
    pid = start(WRITER).pid

    def work() -> bool:
        os.setgroups([])
        os.setgid(65534)
        os.setuid(65534)
        try:
            ledger.read(pid)
        except PermissionError:
            return True
        return False

    assert in_child(work)


def test_a_system_that_gives_no_memory(clean: None) -> None:
    """A device does not fail for lack of a ledger, and there is one as soon as there can be."""

    def work() -> bool:
        used = max(int(name) for name in os.listdir("/proc/self/fd"))
        _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        ballast = []
        resource.setrlimit(resource.RLIMIT_NOFILE, (used + 1, hard))
        try:
            while True:
                ballast.append(os.dup(0))
        except OSError:
            pass
        entry = ledger.record("flat")
        entry.update(mapped=4096)
        for fd in ballast:
            os.close(fd)
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
        entry.update(mapped=8192)
        ledger.record("window")
        return [each.kind for each in own()] == ["window"]

    assert in_child(work)
