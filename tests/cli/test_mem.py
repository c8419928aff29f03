# SPDX-License-Identifier: BSD-2-Clause
"""livedma mem, as a process: what it says is what processes beside it really do."""

from __future__ import annotations

import json
import os
import pty
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from livedma.cli import main
from needs import needs
from unprivileged import as_nobody

WAIT_S = 30
MIB = 1 << 20
SIZE = 4 * MIB
UNABLE = ("setpriv", "--bounding-set", "-ipc_lock")

#: registers a buffer with io_uring, which pins it; no library is needed for that
PIN = f"""
import ctypes, mmap, struct, sys
libc = ctypes.CDLL(None, use_errno=True)
memory = mmap.mmap(-1, {SIZE}, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
address = ctypes.addressof(ctypes.c_char.from_buffer(memory))
ring = libc.syscall(425, 2, ctypes.create_string_buffer(120))  # io_uring_setup
vector = struct.pack("PN", address, {SIZE})
done = -1 if ring < 0 else libc.syscall(427, ring, 0, vector, 1)  # IORING_REGISTER_BUFFERS
print("ready" if done == 0 else f"errno {{ctypes.get_errno()}}", flush=True)
sys.stdin.read()
"""
LOCK = f"""
import ctypes, mmap, sys
libc = ctypes.CDLL(None, use_errno=True)
memory = mmap.mmap(-1, SIZE := {SIZE}, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
address = ctypes.addressof(ctypes.c_char.from_buffer(memory))
done = libc.mlock(ctypes.c_void_p(address), ctypes.c_size_t(SIZE))
print("ready" if done == 0 else f"errno {{ctypes.get_errno()}}", flush=True)
sys.stdin.read()
"""
MAP = """
import sys
from livedma.memory import ledger
entry = ledger.record("window", granule=2 << 20, reserved=8 << 30)
entry.update(mapped=4 << 30, descriptors=2048, links=4)
ledger.record("on demand").update(mapped=96 << 20, descriptors=24576)
for _ in range(3):
    ledger.record("pinned").update(mapped=8192, descriptors=2)
print("ready", flush=True)
sys.stdin.read()
"""
MAPPED = (4 << 30) + (96 << 20) + 3 * 8192


@contextmanager
def running(program: str, *before: str) -> Iterator[int]:
    """Its PID, while it runs."""
    process = subprocess.Popen(
        [*before, sys.executable, "-c", program],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        assert process.stdout is not None
        said = process.stdout.readline().strip()
        needs(said == "ready", f"the kernel does not allow it here: {said}")
        yield process.pid
    finally:
        process.kill()
        process.communicate(timeout=WAIT_S)


def mem(*options: object, before: Sequence[str] = ()) -> dict[str, Any]:
    done = subprocess.run(
        [*before, "livedma", "mem", *map(str, options), "--json"],
        capture_output=True,
        text=True,
        timeout=WAIT_S,
    )
    assert (done.returncode, done.stderr) == (0, "")
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def text_of(*options: object, before: Sequence[str] = ()) -> str:
    argv = [*before, "livedma", "mem", *map(str, options)]
    return subprocess.run(argv, check=True, capture_output=True, text=True, timeout=WAIT_S).stdout


def only(found: dict[str, Any], pid: int) -> dict[str, Any]:
    (one,) = (process for process in found["processes"] if process["pid"] == pid)
    assert isinstance(one, dict)
    return one


def about(found: dict[str, Any], name: str, pid: int) -> list[dict[str, Any]]:
    return [a for a in found["advice"] if a["name"] == name and pid in a["pids"]]


def test_pinned_is_not_locked() -> None:
    with running(PIN) as pid:
        found = mem(pid)
        one = only(found, pid)
        assert (one["pinned"], one["locked"]) == (SIZE, 0)
        assert not about(found, "locked", pid)
        # counters of CPUs are added up from time to time
        for _ in range(100):
            if mem(pid)["host"]["pinned"] >= SIZE:
                break
            time.sleep(0.1)
        else:
            pytest.fail("the host never counted the pins")
    assert pid not in [process["pid"] for process in mem()["processes"]]


def test_locked_is_not_pinned() -> None:
    with running(LOCK) as pid:
        found = mem()
        one = only(found, pid)
        assert (one["pinned"], one["locked"]) == (0, SIZE)
        assert one["uses_vfio"] is False
        (advice,) = about(found, "locked", pid)
        assert "not fit for DMA by hardware" in advice["text"]
        assert not advice["is_wrong"]


def test_what_a_device_has_mapped() -> None:
    with running(MAP) as pid:
        found = only(mem(), pid)
        window, demand, *pinned = found["entries"]
        assert found["mapped"] == MAPPED
        assert [entry["mapped"] for entry in pinned] == [8192] * 3
        assert (window["descriptors"], window["descriptors_4k"]) == (2048, 1048576)
        assert (demand["kind"], demand["descriptors_2m"]) == ("on demand", 48)
        text = text_of(pid)
        assert (
            "window: 4 GiB of 8 GiB reserved mapped, not pinned, 4 links, 2 MiB granules: "
            "2,048 descriptors (1,048,576 with 4 KiB)" in text
        )
        assert "24,576 descriptors (48 with 2 MiB)" in text
        assert "3 x pinned: 24 KiB mapped, 4 KiB granules: 6 descriptors (1 with 2 MiB)" in text


@pytest.mark.slow
def test_a_killed_process_has_nothing_any_more() -> None:
    for program in (PIN, MAP):
        with running(program) as pid:
            only(mem(), pid)
        assert pid not in [process["pid"] for process in mem()["processes"]]


@pytest.mark.slow
def test_a_limit_that_is_nearly_reached() -> None:
    needs(os.geteuid() == 0, "only a process that has privileges can drop them")
    limited = ("prlimit", f"--memlock={SIZE + 4096}", *UNABLE)
    with running(LOCK, *limited) as pid:
        found = mem(pid)
        assert only(found, pid)["memlock"]["soft"] == SIZE + 4096
        assert only(found, pid)["has_ipc_lock"] is False
        (advice,) = about(found, "limit", pid)
        assert advice["is_wrong"]
        assert advice["fix"] == f"prlimit --pid {pid} --memlock={2 * (SIZE + 4096)}"
    with running(LOCK, "prlimit", f"--memlock={SIZE + 4096}") as pid:
        assert not about(mem(pid), "limit", pid)


@pytest.fixture
def cgroup() -> Iterator[Callable[[int, int], Path]]:
    """Makes a cgroup with a limit and puts a process into it."""
    needs(os.geteuid() == 0, "cgroups need root")
    top = Path("/sys/fs/cgroup")
    is_old = (top / "memory/memory.limit_in_bytes").exists()
    directory = (top / "memory" if is_old else top) / f"livedma-{os.getpid()}"
    limit = directory / ("memory.limit_in_bytes" if is_old else "memory.max")

    def put(pid: int, limit_bytes: int) -> Path:
        directory.mkdir()
        needs(limit.exists(), "there is no controller for memory")
        limit.write_text(str(limit_bytes))
        (directory / "cgroup.procs").write_text(str(pid))
        return limit

    yield put
    if directory.exists():
        directory.rmdir()


@pytest.mark.slow
def test_a_cgroup_that_is_nearly_full(cgroup: Callable[[int, int], Path]) -> None:
    """Memory is charged where it is first used: the program waits until it has been put there."""
    waiting = 'print("ready", flush=True)\nimport sys\nsys.stdin.readline()\n' + LOCK
    argv = [sys.executable, "-c", waiting]
    with subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as one:
        assert one.stdin is not None and one.stdout is not None
        assert one.stdout.readline() == "ready\n"
        limit = cgroup(one.pid, 4 * SIZE)
        one.stdin.write("go on\n")
        one.stdin.flush()
        assert one.stdout.readline() == "ready\n"
        used = only(mem(one.pid), one.pid)["cgroup"]
        assert SIZE <= used["current"] <= used["max"] == 4 * SIZE
        limit.write_text(str(used["current"] - used["reclaimable"] + 65536))
        (advice,) = about(mem(one.pid), "cgroup", one.pid)
        assert advice["is_wrong"]
        subprocess.run(advice["fix"], shell=True, check=True)
        assert not about(mem(one.pid), "cgroup", one.pid)
        one.kill()


def test_the_object_has_its_fields() -> None:
    with running(MAP) as pid:
        found = mem(pid)
    assert set(found) == {
        "time",
        "host",
        "processes",
        "seen",
        "hidden",
        "hidden_ledgers",
        "may_hide_others",
        "motion",
        "advice",
    }
    host = found["host"]
    for name in ("total", "available", "free", "locked", "page_size", "largest_block"):
        assert isinstance(host[name], int)
    for zone in [*host["zones"], host["all_zones"]]:
        assert len(zone["free"]) == len(zone["unusable_index"]) == len(zone["fragmentation_index"])
    for pool in host["huge_pools"]:
        assert set(pool) == {"size", "node", "total", "free", "reserved", "surplus"}
    (one,) = found["processes"]
    assert set(one) == {
        "pid",
        "name",
        "command",
        "uid",
        "pinned",
        "locked",
        "resident",
        "huge",
        "memlock",
        "has_ipc_lock",
        "uses_vfio",
        "cgroup",
        "entries",
        "ledger_trouble",
        "is_ledger_hidden",
        "mapped",
    }
    assert set(one["entries"][0]) == {
        "kind",
        "count",
        "granule",
        "reserved",
        "mapped",
        "descriptors",
        "links",
        "pinned",
        "tenant",
        "descriptors_4k",
        "descriptors_2m",
    }
    assert found["motion"] is None
    for advice in found["advice"]:
        assert set(advice) == {"name", "is_wrong", "text", "fix", "pids"}


def test_every_point_has_a_row() -> None:
    said = text_of()
    rows = ("pinned", "locked", "huge pages", "transparent", "free", "since boot", "overcommit")
    for row in rows:
        assert f"\n  {row:16}" in said
    assert "in blocks of" in said


@pytest.mark.slow
def test_without_root_it_says_what_it_cannot_see() -> None:
    nobody = as_nobody()
    with running(PIN) as pinned, running(MAP) as mapped, running(MAP, *nobody) as own:
        found = mem(before=nobody)
        assert only(found, pinned)["pinned"] == SIZE
        assert mapped not in [process["pid"] for process in found["processes"]]
        assert found["hidden_ledgers"] >= 2
        assert only(found, own)["mapped"] == MAPPED
        said = text_of(before=nobody)
        assert "may have mapped for devices cannot be seen: run it as root" in said


@pytest.mark.slow
@pytest.mark.parametrize("mode", ["noaccess", "invisible"])
def test_a_proc_that_hides(mode: str) -> None:
    needs(os.geteuid() == 0, "mounting /proc needs root")
    cover = f'mount -t proc -o hidepid={mode} none /proc && exec "$0" "$@"'
    before = ["unshare", "-m", "sh", "-c", cover, *as_nobody()]
    with running(PIN) as pid:
        found, said = mem(before=before), text_of(before=before)
    assert pid not in [process["pid"] for process in found["processes"]]
    if mode == "noaccess":
        assert found["hidden"] >= 1
        assert "cannot be seen at all: run it as root" in said
    else:
        assert found["may_hide_others"]
        assert "/proc is mounted with hidepid" in said


def test_watching_writes_an_object_a_line() -> None:
    argv = ["livedma", "mem", "--watch", "0.05", "--json"]
    with subprocess.Popen(argv, stdout=subprocess.PIPE, text=True) as watching:
        assert watching.stdout is not None
        lines = [json.loads(watching.stdout.readline()) for _ in range(3)]
        watching.send_signal(signal.SIGINT)
        watching.communicate(timeout=WAIT_S)
    assert watching.returncode == 0
    assert lines[0]["motion"] is None
    assert all(line["motion"]["seconds"] > 0 for line in lines[1:])


@pytest.mark.slow
def test_watching_ends_with_the_process() -> None:
    with running(MAP) as pid:
        argv = ["livedma", "mem", str(pid), "--watch", "0.05"]
        watching = subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        assert watching.stdout is not None
        assert "mapped 4.1 GiB" in watching.stdout.readline()
    _, said = watching.communicate(timeout=WAIT_S)
    assert watching.returncode == 0
    assert f"there is no process {pid} any more" in said


@pytest.mark.slow
def test_watching_sees_compaction(bpf: None, tracefs: None) -> None:
    argv = ["livedma", "mem", "--watch", "0.2", "--json"]
    with subprocess.Popen(argv, stdout=subprocess.PIPE, text=True) as watching:
        assert watching.stdout is not None
        watching.stdout.readline()
        for _ in range(50):
            Path("/proc/sys/vm/compact_memory").write_text("1")
            motion = json.loads(watching.stdout.readline())["motion"]
            if motion["attempts"]:
                break
        watching.send_signal(signal.SIGINT)
        watching.communicate(timeout=WAIT_S)
    assert (motion["source"], motion["attempts"] > 0) == ("bpf", True)


@pytest.mark.slow
def test_watching_without_root_says_what_is_missing() -> None:
    argv = [*as_nobody(), "livedma", "mem", "--watch", "0.05"]
    with subprocess.Popen(
        argv, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as watching:
        assert watching.stdout is not None
        lines = [watching.stdout.readline() for _ in range(2)]
        watching.send_signal(signal.SIGINT)
        _, said = watching.communicate(timeout=WAIT_S)
    assert said.count("\n") == 1
    assert "BPF needs root (CAP_BPF and CAP_PERFMON)" in said
    assert any("only where a task had to wait" in line for line in lines)


@pytest.mark.slow
def test_a_terminal_is_drawn_again() -> None:
    ours, theirs = pty.openpty()
    watching = subprocess.Popen(["livedma", "mem", "--watch", "0.05"], stdout=theirs)
    os.close(theirs)
    said = b""
    while said.count(b"\x1b[H\x1b[J") < 3:
        said += os.read(ours, 4096)
    watching.send_signal(signal.SIGINT)
    try:
        while os.read(ours, 4096):
            pass
    except OSError:  # that is how a terminal ends
        pass
    os.close(ours)
    assert watching.wait(WAIT_S) == 0
    assert b"migration" in said


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("0", "'0' is no number from 1 on"),
        ("self", "'self' is no number"),
        ("--watch 0", "'0' is no interval"),
        ("--watch nan", "'nan' is no interval"),
        ("--watch 99999", "Put PIDs before --watch"),
    ],
)
def test_wrong_use(line: str, said: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["mem", *shlex.split(line)])
    assert ended.value.code == 2
    assert said in capsys.readouterr().err


def test_a_process_that_is_not_there(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["mem", "4194305"]) == 1
    assert capsys.readouterr().err == "livedma: there is no process 4194305\n"


def test_help_has_an_example() -> None:
    said = subprocess.run(["livedma", "mem", "--help"], capture_output=True, text=True)
    assert "livedma mem --json" in said.stdout
