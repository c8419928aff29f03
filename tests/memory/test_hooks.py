# SPDX-License-Identifier: BSD-2-Clause
"""Hooks: what really happens to memory is heard by all who listen, in the order promised."""

from __future__ import annotations

import ctypes
import gc
import os
import subprocess
import sys
import textwrap
import threading
from contextlib import ExitStack
from pathlib import Path

import pytest
from hearing import HOUR, Hearer, heard_memory, until

from livedma.errors import LivedmaError
from livedma.memory import hooks
from mapped import (
    NONE,
    PAGE,
    READ,
    WRITE,
    advise,
    map_apart,
    map_at,
    move,
    protect,
    put,
    unmap,
    view,
)
from unprivileged import as_nobody

FREE = 8  # MADV_FREE


def test_what_is_told_at_once() -> None:
    with heard_memory(16) as m:
        put(m.base, bytes(16 * PAGE))
        assert m.told() == [("update_range", "brought_in", 0, 16)]
        advise(m.at(2), 3)
        assert m.told() == [("invalidate_range", "removed", 2, 3)]
        advise(m.at(8), 1, FREE)
        assert ("invalidate_page", "removed", 8, 1) in m.told()
        unmap(m.at(4), 2)
        assert m.told() == [("invalidate_range", "unmapped", 4, 2)]
        map_at(m.at(4), 1)
        assert m.told() == [("update_page", "mapped", 4, 1)]
        there = move(m.at(10), 2)
        told = m.told()
        assert told[0] == ("invalidate_range", "remapped", 10, 2)
        assert set(told[1:]) <= {("invalidate_range", "unmapped", 10, 2)}
        put(there, b"nobody hears of that" * 100)
        assert m.told() == []
        unmap(there, 2)
        child = os.fork()
        if not child:
            advise(m.at(0), 1)  # nor of what happens to the child's memory
            os._exit(0)
        os.waitpid(child, 0)
        until(lambda: len(m.heard) >= 2)
        assert ("change_protection", "forked", 0, 16) in m.told()
        assert m.close() == [("first", "release", "closed"), ("second", "release", "closed")]


def test_where_it_went_and_what_it_may() -> None:
    with heard_memory(8) as m:
        there = move(m.at(1), 2)
        hooks.look()
        until(lambda: len(m.heard) >= 2)
        event = m.heard[0][2]
        assert (event.cause, event.to, event.offset) == ("remapped", there, PAGE)
        unmap(there, 2)
        m.told()
        for rights, name in ((READ, "r--"), (NONE, "---"), (READ | WRITE, "rw-")):
            protect(m.at(4), 2, rights)
            hooks.look()
            until(lambda: len(m.heard) >= 2)
            assert m.heard[1][2].protection == name
            assert m.told() == [("change_protection", "protected", 4, 2)]


def test_pages_come_and_a_new_mapping_is_watched() -> None:
    with heard_memory(8) as m:
        put(m.at(3), b"x")
        assert m.told() == [("update_page", "brought_in", 3, 1)]
        unmap(m.at(3), 1)
        assert m.told() == [("invalidate_page", "unmapped", 3, 1)]
        map_at(m.at(3), 1)
        assert m.told() == [("update_page", "mapped", 3, 1)]
        advise(m.at(3), 1)
        assert m.told() == [("invalidate_page", "removed", 3, 1)]


def test_a_part_of_the_pages_is_cut_to_the_buffer() -> None:
    base, heard = map_apart(4), []
    with hooks.listen(view(base + 100, PAGE), Hearer("it", heard), period=None) as one:
        advise(base, 4)
    assert one.released.wait(30)
    assert [(h, e.offset, e.length) for _, h, e in heard] == [
        ("invalidate_range", 0, PAGE),
        ("release", 0, PAGE),
    ]
    unmap(base, 4)


def test_pages_go_to_ranges_where_no_hook_is_for_pages() -> None:
    class Some(hooks.Listener):
        def __init__(self) -> None:
            self.heard: list[str] = []

        def invalidate_range(self, event: hooks.Event) -> None:
            self.heard.append(event.hook)

    base, some = map_apart(2), Some()
    with hooks.listen(view(base, 2 * PAGE), some, period=None) as one:
        advise(base, 1)
        advise(base, 2)
    assert one.released.wait(30) and some.heard == ["invalidate_page", "invalidate_range"]
    unmap(base, 2)


class Stuck(Hearer):
    """Hears one event, and then nothing until it may go on."""

    def __init__(self, heard: list[tuple[str, str, hooks.Event]]) -> None:
        super().__init__("stuck", heard)
        self.has_begun, self.may_go_on = threading.Event(), threading.Event()

    def invalidate_page(self, event: hooks.Event) -> None:
        super().invalidate_page(event)
        self.has_begun.set()
        assert self.may_go_on.wait(60)


@pytest.mark.parametrize(("capacity", "lost"), [(10_000, 0), (10, 89)])
def test_a_slow_listener_holds_up_nobody(capacity: int, lost: int) -> None:
    """It loses nothing that the queue has room for; what it loses it is told of at once."""
    base, heard, others = map_apart(1), [], []
    stuck = Stuck(heard)
    queue = hooks.Queue(capacity)
    with (
        hooks.listen(view(base, PAGE), Hearer("other", others), period=None) as other,
        hooks.listen(view(base, PAGE), stuck, period=None, queue=queue) as one,
        ExitStack() as stack,
    ):
        stack.callback(stuck.may_go_on.set)
        advise(base, 1)
        assert stuck.has_begun.wait(30)
        for _ in range(99):
            advise(base, 1)
        hooks.look()
        until(lambda: len(others) == 100)  # which is in time
        assert one.lost == lost and not other.lost
        stuck.may_go_on.set()
        until(lambda: len(heard) == (12 if lost else 100))
        advise(base, 1)
    assert one.released.wait(30) and other.released.wait(30)
    causes = [event.cause for _, _, event in heard]
    if lost:
        event = heard[11][2]
        assert (event.hook, event.cause, event.lost) == ("invalidate_range", "lost", lost)
        assert (event.offset, event.length) == (0, PAGE) and event.number == others[99][2].number
        assert causes == ["removed"] * 11 + ["lost", "removed", "closed"]
    else:
        assert causes == ["removed"] * 101 + ["closed"]
        assert [e.number for _, _, e in heard[:-1]] == [e.number for _, _, e in others[:-1]]
    unmap(base, 1)


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_a_listener_that_fails_harms_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    class Broken(hooks.Listener):
        def invalidate_range(self, event: hooks.Event) -> None:
            raise RuntimeError(event.cause)

    failures: list[str] = []
    monkeypatch.setattr(threading, "excepthook", lambda args: failures.append(str(args.exc_value)))
    base, heard = map_apart(1), []
    with (
        hooks.listen(view(base, PAGE), Broken(), period=None) as broken,
        hooks.listen(view(base, PAGE), Hearer("it", heard), period=None) as one,
    ):
        advise(base, 1)
        advise(base, 1)
    assert broken.released.wait(30) and one.released.wait(30)
    assert failures == ["removed"] * 2 and len(heard) == 3
    unmap(base, 1)


def test_a_listener_ends_itself() -> None:
    class Short(hooks.Listener):
        listening: hooks.Listening

        def invalidate_range(self, event: hooks.Event) -> None:
            self.listening.close()
            advise(base, 1)  # may do as it likes

    base, short = map_apart(1), Short()
    short.listening = hooks.listen(view(base, PAGE), short, period=None)
    advise(base, 1)
    assert short.listening.released.wait(30)
    short.listening.close()
    unmap(base, 1)


def test_refusals() -> None:
    with pytest.raises(LivedmaError, match="cannot watch this memory"):
        hooks.listen(view(PAGE, 4 * PAGE), hooks.Listener())
    with pytest.raises(OSError, match="Invalid"):
        hooks.Queue(0)
    with pytest.raises(TypeError):
        hooks.listen(17, hooks.Listener())  # type: ignore[arg-type]


def test_the_last_listener_leaves_nothing() -> None:
    def threads() -> set[str]:
        names = {thread.name for thread in threading.enumerate()}
        for path in Path("/proc/self/task").glob("*/comm"):
            try:
                names.add(path.read_text().strip())
            except OSError:
                continue  # it has ended meanwhile
        return names & {"ldma-hooks", "ldma-watcher", "ldma-filler", "ldma-looker"}

    gc.collect()  # queues that tests before have forgotten
    until(lambda: not threads())
    base, queue = map_apart(4), hooks.Queue()
    before = len(os.listdir("/proc/self/fd"))
    for _ in range(3):
        with hooks.listen(view(base, PAGE), hooks.Listener(), period=HOUR, queue=queue):
            until(lambda: len(threads()) == 4)
        until(lambda: not threads() and len(os.listdir("/proc/self/fd")) <= before)
    unmap(base, 4)


SCRIPT = """
import os, sys
from livedma.memory import hooks
from mapped import *

def say(*words):  # at once: threads and processes write to the same pipe
    os.write(1, (" ".join(map(str, words)) + "\\n").encode())

class Last(hooks.Listener):
    def __init__(self, name): self.name = name
    def invalidate_range(self, event): say(self.name, event.cause)
    def change_protection(self, event): say(self.name, event.cause, event.protection)
    def release(self, event): say(self.name, event.cause)

base = map_apart(4)
listening = [hooks.listen(view(base, 4 * PAGE), Last(name), period={period}) for name in "ab"]
{then}
"""


def run(then: str, command: tuple[str, ...] = (), period: str = "None") -> list[str]:
    code = SCRIPT.format(then=textwrap.dedent(then), period=period)
    paths = f"import sys; sys.path[:0] = {[str(Path(__file__).parents[1])]!r}\n"
    done = subprocess.run(
        [*command, sys.executable, "-c", paths + code],
        stdout=subprocess.PIPE, text=True, check=True, timeout=60,
    )  # fmt: skip
    return done.stdout.split("\n")[:-1]


def test_an_exit_is_told_after_all_else() -> None:
    assert run("advise(base, 1)\nsys.exit(0)") == ["a removed", "b removed", "a exited", "b exited"]


def test_a_child_has_listeners_of_its_own() -> None:
    told = run(
        """
        child = os.fork()
        if not child:
            for one in listening:
                one.close()
            with hooks.listen(view(base, 4 * PAGE), Last("c"), period=None) as own:
                advise(base, 1)
            assert own.released.wait(30)
            sys.exit(0)
        assert os.waitpid(child, 0)[1] == 0
        for one in listening:
            one.close()
            assert one.released.wait(30)
        """
    )
    assert [line for line in told if line[0] == "c"] == ["c removed", "c closed"]
    assert sorted(line for line in told if line[0] != "c" and "forked" not in line) == [
        "a closed",
        "b closed",
    ]


def test_it_needs_no_privilege() -> None:
    told = run(
        """
        protect(base, 2, READ)
        hooks.look()
        advise(base, 2)
        """,
        tuple(as_nobody()),
        "3600.0",
    )
    assert told[:4] == ["a protected r--", "b protected r--", "a removed", "b removed"]


C_LISTENER = """
#include <stdint.h>
struct event { uint64_t number, start, end, to, lost; uint32_t hook, cause, protection, reserved; };
struct hooks { void (*hook[8])(void *arg, const struct event *event); };
static void hear(void *arg, const struct event *event)
{
    uint64_t *counts = arg;
    __atomic_add_fetch(&counts[event->hook], 1, __ATOMIC_RELEASE);
}
struct hooks all = {{hear, hear, hear, hear, hear, hear, hear, hear}};
uint64_t counts[8];
"""


def test_a_listener_in_c(tmp_path: Path) -> None:
    source, library = tmp_path / "listener.c", tmp_path / "listener.so"
    source.write_text(C_LISTENER)
    subprocess.run(["cc", "-shared", "-fPIC", "-o", library, source], check=True, timeout=60)
    its = ctypes.CDLL(str(library))
    api = ctypes.pythonapi
    api.PyCapsule_New.restype = ctypes.py_object
    api.PyCapsule_New.argtypes = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p]
    api.PyCapsule_SetContext.argtypes = [ctypes.py_object, ctypes.c_void_p]
    name = ctypes.create_string_buffer(hooks.CAPSULE.encode())  # lives as long as the capsule
    capsule = api.PyCapsule_New(
        ctypes.addressof(ctypes.c_char.in_dll(its, "all")), ctypes.addressof(name), None
    )
    counts = (ctypes.c_uint64 * 8).in_dll(its, "counts")
    api.PyCapsule_SetContext(capsule, ctypes.addressof(counts))
    base = map_apart(4)
    with hooks.listen(view(base, 4 * PAGE), capsule, period=HOUR) as one:
        advise(base, 1)
        advise(base, 2)
        protect(base, 1, READ)
        hooks.look()
        protect(base, 1, READ | WRITE)
    heard = dict(zip(hooks.HOOKS, counts, strict=True))
    assert heard["release"] == heard["invalidate_page"] == heard["invalidate_range"] == 1
    assert heard["change_protection"] == 1 and one.released.is_set()
    unmap(base, 4)
    wrong = api.PyCapsule_New(ctypes.addressof(name), None, None)
    with pytest.raises(ValueError, match="incorrect name"):
        hooks.listen(bytearray(PAGE), wrong)
