# SPDX-License-Identifier: BSD-2-Clause
"""Pins: what the kernel counts, what it refuses, children of fork, and the end of a process."""

from __future__ import annotations

import ctypes
import mmap
import os
import resource
import signal
import subprocess
from pathlib import Path

import pytest

from kept import (
    MIB,
    PAGE,
    become_a_user,
    command_for,
    forbid_io_uring,
    in_a_process,
    kept_from_children,
    locked,
    long_memory,
    memory,
    needs_pins,
    pinned,
    pins_of_the_host,
    until,
)
from livedma.errors import LimitError
from livedma.memory import accounting, ledger, pin, tenant
from needs import needs

MAX_MAPPINGS = Path("/proc/sys/vm/max_map_count")


@pytest.fixture(autouse=True)
def _pins() -> None:
    needs_pins()


def recorded() -> list[ledger.Entry]:
    return [entry for entry in ledger.read(os.getpid()) or [] if entry.kind == "pinned"]


def test_pinned_memory_is_counted_by_the_kernel() -> None:
    with memory(MIB) as base:
        before = pinned()
        with pin(base + 5, MIB - 10) as held:
            assert (held.how, held.why) == ("pinned", "")
            assert pinned() == before + MIB
            assert len(kept_from_children(base, base + MIB)) == MIB // PAGE - 2
            assert [(e.mapped, e.descriptors) for e in recorded()] == [(MIB, MIB // PAGE)]
        held.release()
        assert not recorded()
        assert (held.how, held.why) == ("unlocked", "it was released")
        assert pinned() == before


def test_nothing_is_pinned_of_nothing() -> None:
    before = pinned()
    with pin(12345, 0) as held:
        assert (held.how, pinned()) == ("pinned", before)


@pytest.mark.parametrize(("address", "length"), [(-1, 1), (0, -1), ((1 << 64) - 5, 6)])
def test_a_range_is_in_the_address_space(address: int, length: int) -> None:
    with pytest.raises(ValueError, match="address space"):
        pin(address, length)


def test_what_is_no_memory_is_refused_whole() -> None:
    before = accounting.process().charged, pinned(), locked()
    with memory(8 * PAGE) as base:
        gone = base + 4 * PAGE
        assert ctypes.CDLL(None).munmap(ctypes.c_void_p(gone), ctypes.c_size_t(PAGE)) == 0
        with pytest.raises(OSError, match="not all is writable memory"):
            pin(base, 8 * PAGE, "nobody")
        assert (accounting.process().charged, pinned(), locked()) == before
        assert tenant("nobody").charged == 0
        assert not kept_from_children(base, base + 8 * PAGE)


def test_more_regions_than_a_ring_has_places_for() -> None:
    count = 5000
    before = pinned()
    with memory(2 * count * PAGE) as base:
        held = [pin(base + 2 * i * PAGE, 16) for i in range(count)]
        assert pinned() == before + count * PAGE
        assert {one.how for one in held} == {"pinned"}
        for one in held[::2] + held[1::2]:
            one.release()
        assert pinned() == before


def test_a_range_longer_than_the_kernel_pins_at_once() -> None:
    size = (1 << 30) + 4 * PAGE
    before = pinned()
    with long_memory(size) as base:
        with pin(base, size) as held:
            assert (held.how, pinned()) == ("pinned", before + size)
            end = pin(base + size - 6 * PAGE, 6 * PAGE)
        assert (end.how, pinned()) == ("pinned", before + 6 * PAGE)
        end.release()
    assert pinned() == before


def test_a_mapped_file_is_locked_since_it_cannot_be_pinned(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_bytes(bytes(4 * PAGE))
    before = pinned(), locked()
    with file.open("r+b") as opened, mmap.mmap(opened.fileno(), 0) as area:
        view = ctypes.c_char.from_buffer(area)
        address = ctypes.addressof(view)
        with pin(address, 3 * PAGE) as held, pin(address + 2 * PAGE, 2 * PAGE) as more:
            needs(held.how == "locked", f"files in {tmp_path} can be pinned: tmpfs?")
            assert held.why == more.why == "the kernel pins no memory of a mapped file for long"
            assert (pinned(), locked()) == (before[0], before[1] + 4 * PAGE)
            held.release()
            assert (more.how, locked()) == ("locked", before[1] + 2 * PAGE)
        assert locked() == before[1]
        del view


def without_descriptors() -> None:
    resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64))
    kept = []
    try:
        while True:
            kept.append(os.dup(0))
    except OSError:
        pass
    with memory(MIB) as base, pin(base, MIB) as held, pin(base, 5) as part:
        freed = [os.close(fd) for fd in kept]
        assert freed and (held.how, part.how) == ("locked", "locked")
        assert (pinned(), locked()) == (0, MIB)
        held.release()
        print(locked() == PAGE, held.why, part.why, sep="\n")


def without_io_uring() -> None:
    forbid_io_uring()
    with memory(MIB) as base, pin(base, MIB) as one:
        print(
            one.how, locked() == MIB, len(kept_from_children(base, base + MIB)), one.why, sep="\n"
        )


def test_without_io_uring_memory_is_locked() -> None:
    how, is_counted, private, why = in_a_process(without_io_uring).splitlines()
    assert (how, is_counted, private) == ("locked", "True", str(MIB // PAGE))
    assert "io_uring_disabled, or a seccomp filter" in why


def test_without_a_descriptor_memory_is_locked() -> None:
    is_counted, why, why_the_part = in_a_process(without_descriptors).splitlines()
    assert is_counted == "True"
    assert "it was released" in why and "as many as it may" in why_the_part


def at_the_limit() -> None:
    become_a_user(memlock=MIB)
    with memory(2 * MIB) as base:
        with pin(base, MIB // 2) as mine:
            try:
                pin(base, MIB + PAGE)
            except LimitError as error:
                print(error)
            assert accounting.process().charged == pinned() == MIB // 2
            assert locked() == 0
            assert mine.how == "pinned"
        # Not all: the kernel charges for the ring, too.
        with pin(base, MIB - 8 * PAGE) as most:
            print(most.how, pinned() == MIB - 8 * PAGE)


def test_the_limit_says_what_was_asked_what_is_pinned_and_how_to_raise_it() -> None:
    needs(os.geteuid() == 0, "becoming another user needs root")
    message, most = in_a_process(at_the_limit).splitlines()
    assert message.startswith(
        "cannot pin 1028 KiB: 512 KiB are pinned so far, 516 KiB more would be, and "
        "RLIMIT_MEMLOCK is 1 MiB; raise it with `sudo prlimit --pid $$ "
    )
    for remedy in (
        "--memlock=4194304` in the shell, for good by",
        "LimitMEMLOCK=",
        "limits.conf",
        "or lift it with CAP_IPC_LOCK",
    ):
        assert remedy in message
    assert "setcap" not in message  # it would give the right to everybody who runs this Python
    assert most == "pinned True"


def with_a_little_left() -> None:
    become_a_user(memlock=MIB, hard=4 * MIB)
    with memory(2 * MIB) as base:
        try:
            pin(base, 2 * MIB)
        except LimitError as error:
            print(error)


def test_below_the_hard_limit_a_shell_can_raise_it() -> None:
    needs(os.geteuid() == 0, "becoming another user needs root")
    assert "raise it with `ulimit -l 4096`," in in_a_process(with_a_little_left)


def where_others_pinned_all() -> None:
    """The kernel counts what is pinned by user, what is locked by process."""
    become_a_user(memlock=MIB)
    with memory(MIB) as base:
        ready, done = os.pipe(), os.pipe()
        other = os.fork()
        if not other:
            os.close(done[1])
            with pin(base, MIB - 16 * PAGE) as held:
                os.write(ready[1], held.how.encode())
                os.read(done[0], 1)
            os._exit(0)
        assert os.read(ready[0], 100) == b"pinned"
        with pin(base, MIB // 2) as mine:
            print(mine.how, mine.why, locked() == MIB // 2, sep="\n")
        assert ctypes.CDLL(None).mlock(ctypes.c_void_p(base), ctypes.c_size_t(MIB)) == 0
        with memory(MIB) as more, pytest.raises(LimitError) as refused:
            pin(more, MIB // 2)
        print(refused.value)
        assert (pinned(), locked(), accounting.process().charged) == (0, MIB, 0)
        os.write(done[1], b"x")
        os.waitpid(other, 0)


def test_what_others_of_the_user_pinned_leaves_locking() -> None:
    needs(os.geteuid() == 0, "becoming another user needs root")
    how, why, is_counted, refused = in_a_process(where_others_pinned_all).splitlines()
    assert (how, is_counted) == ("locked", "True")
    assert "user's processes together" in why
    assert refused.startswith(
        "cannot pin 512 KiB: the kernel refuses (Cannot allocate memory), nothing is pinned by "
        "this process, and RLIMIT_MEMLOCK is 1 MiB; raise it with `sudo prlimit --pid $$ --memlock="
    )


def with_as_many_mappings_as_may_be() -> None:
    libc = ctypes.CDLL(None)
    pages = 2 * int(MAX_MAPPINGS.read_text())
    with memory(pages * PAGE) as base:
        apart = (base + at * PAGE for at in range(0, pages - 16, 2))
        while not libc.mprotect(ctypes.c_void_p(next(apart)), ctypes.c_size_t(PAGE), 1):
            pass
        with pytest.raises(LimitError) as refused:
            pin(base + (pages - 8) * PAGE, 4 * PAGE, "nobody")
        assert (pinned(), locked(), accounting.process().charged) == (0, 0, 0)
        assert tenant("nobody").charged == 0
        assert not libc.mprotect(ctypes.c_void_p(base), ctypes.c_size_t(pages * PAGE), 3)
        assert not kept_from_children(base, base + pages * PAGE)
    print(refused.value)


def test_what_cannot_be_kept_from_children_is_not_pinned() -> None:
    """Its own pages apart from their neighbours make mappings, of which there may be too many."""
    needs(int(MAX_MAPPINGS.read_text()) <= 100_000, "it takes long to make so many mappings")
    message = in_a_process(with_as_many_mappings_as_may_be)
    assert message.startswith("cannot keep 16 KiB from children") and "vm.max_map_count" in message


def parted_at_the_limit() -> None:
    """The kernel counts twice what is pinned anew before the old pin goes: here it cannot."""
    become_a_user(memlock=MIB)
    with memory(MIB) as base:
        whole = pin(base, MIB - 16 * PAGE)
        part = pin(base + 16 * PAGE, MIB - 64 * PAGE)
        whole.release()
        print(part.how, pinned() == MIB - 64 * PAGE)
        resource.setrlimit(resource.RLIMIT_MEMLOCK, (0, 0))
        piece = pin(base + 20 * PAGE, PAGE)
        part.release()
        print(piece.how, piece.why)
        piece.release()
        print(pinned(), locked(), accounting.process().charged)


def test_parting_a_pin_at_the_limit() -> None:
    needs(os.geteuid() == 0, "becoming another user needs root")
    parted, lowered, nothing = in_a_process(parted_at_the_limit).splitlines()
    assert parted == "pinned True"
    assert lowered.startswith("unlocked the kernel would not lock it again")
    assert nothing == "0 0 0"


def forking() -> None:
    with memory(MIB) as base:
        ctypes.memset(base, 7, MIB)
        held = pin(base + 1, MIB - 1)
        child = os.fork()
        if not child:
            assert accounting.process().charged == pinned() == 0
            assert held.how == "unlocked" and "parent's" in held.why
            rings = [fd for fd in os.listdir("/proc/self/fd") if "io_uring" in _link(fd)]
            assert not rings, rings
            held.release()
            with memory(PAGE) as own, pin(own, PAGE) as mine:
                assert (mine.how, pinned()) == ("pinned", PAGE)
            ctypes.memset(base, 8, PAGE)  # the edge is a copy
            os._exit(0)
        status = os.waitpid(child, 0)[1]
        assert pinned() == MIB and held.how == "pinned"
        assert ctypes.string_at(base, MIB) == b"\7" * MIB
        toucher = os.fork()
        if not toucher:
            ctypes.memset(base + PAGE, 8, 1)
            os._exit(0)
        print(status, os.waitpid(toucher, 0)[1])
        held.release()
        assert pinned() == 0


def _link(fd: str) -> str:
    try:
        return os.readlink(f"/proc/self/fd/{fd}")
    except FileNotFoundError:  # that of the listing itself
        return ""


def test_a_child_has_no_pins_and_takes_none_away() -> None:
    left, touched = map(int, in_a_process(forking).split())
    assert left == 0
    assert os.WIFSIGNALED(touched) and os.WTERMSIG(touched) == signal.SIGSEGV


def holding_64_mib() -> None:
    with memory(64 * MIB) as base, pin(base, 64 * MIB) as held:
        child = os.fork()  # outlives it, and must not keep the ring
        if not child:
            signal.pause()
        print(held.how, child, flush=True)
        signal.pause()


@pytest.mark.alone
def test_a_killed_process_leaves_nothing_pinned() -> None:
    """By the count of the host, which lags a little, and to which others may add meanwhile."""
    half = 32 * MIB // PAGE
    with subprocess.Popen(command_for(holding_64_mib), stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        how, child = process.stdout.readline().split()
        try:
            assert (how, pinned(process.pid)) == (b"pinned", 64 * MIB)
            assert pinned(int(child)) == 0
            held = pins_of_the_host()
            assert held > half
            process.kill()
            process.wait()
            assert os.path.exists(f"/proc/{int(child)}")
            until(lambda: pins_of_the_host() < held - half)
        finally:
            process.kill()
            os.kill(int(child), signal.SIGKILL)


def killing_who_pinned_all() -> None:
    """By the count of a user whom nobody else is."""
    become_a_user(memlock=4 * MIB)
    with memory(3 * MIB) as base:
        ready, never = os.pipe(), os.pipe()
        holder = os.fork()
        if not holder:
            os.close(never[1])
            with pin(base, 3 * MIB) as held:
                heir = os.fork()  # outlives it
                if heir:
                    os.write(ready[1], f"{held.how} {heir}".encode())
                os.read(never[0], 1)
            os._exit(0)
        how, heir = os.read(ready[0], 100).decode().split()
        assert how == "pinned" and pinned(holder) == 3 * MIB
        with pin(base, 3 * MIB) as mine:
            assert mine.how == "locked", "both have it"
        os.kill(holder, signal.SIGKILL)
        os.waitpid(holder, 0)

        def can_be_pinned() -> bool:
            with pin(base, 3 * MIB) as mine:
                return mine.how == "pinned"

        until(can_be_pinned)
        print(os.path.exists(f"/proc/{heir}"))


def test_what_a_killed_process_had_pinned_its_user_may_pin_again() -> None:
    needs(os.geteuid() == 0, "becoming another user needs root")
    assert in_a_process(killing_who_pinned_all) == "True\n"
