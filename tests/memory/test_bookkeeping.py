# SPDX-License-Identifier: BSD-2-Clause
"""The lock around the bookkeeping: what finalizers leave for the thread that holds it."""

from __future__ import annotations

import os
import signal
import threading

from livedma.memory.guard import Guard

PATIENCE_S = 60.0


def test_work_is_done_at_once_if_nobody_holds_it() -> None:
    done: list[str] = []
    Guard().later(lambda: done.append("it"))
    assert done == ["it"]


def test_work_waits_until_its_own_thread_is_out_of_all() -> None:
    guard, done = Guard(), []
    with guard:
        with guard:
            guard.later(lambda: done.append("it"))
        assert not done
    assert done == ["it"]


def test_work_that_leaves_work() -> None:
    guard, done = Guard(), []

    def first() -> None:
        guard.later(lambda: done.append("second"))
        done.append("first")

    guard.later(first)
    with guard:
        guard.later(first)
    assert done == ["first", "second"] * 2


def test_work_is_left_to_the_thread_that_holds_it() -> None:
    guard, held, go, done = Guard(), threading.Event(), threading.Event(), []

    def hold() -> None:
        with guard:
            held.set()
            go.wait(PATIENCE_S)

    thread = threading.Thread(target=hold)
    thread.start()
    held.wait(PATIENCE_S)
    guard.later(lambda: done.append(threading.current_thread()))
    assert not done
    go.set()
    thread.join(PATIENCE_S)
    assert done == [thread]


def test_a_child_does_not_wait_for_who_held_it_in_the_parent() -> None:
    guard, held, go = Guard(), threading.Event(), threading.Event()

    def hold() -> None:
        with guard:
            held.set()
            go.wait(PATIENCE_S)

    thread = threading.Thread(target=hold)
    thread.start()
    held.wait(PATIENCE_S)
    child = os.fork()
    if not child:
        signal.alarm(int(PATIENCE_S))
        with guard:
            os._exit(0)
    go.set()
    thread.join(PATIENCE_S)
    assert os.waitpid(child, 0)[1] == 0
