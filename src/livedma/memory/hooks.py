# SPDX-License-Identifier: BSD-2-Clause
"""Tells listeners what happens to memory of this process: it goes, comes, moves, is protected.

Contracts are in docs/memory.md, "Hooks".
"""

from __future__ import annotations

import atexit
import itertools
import mmap
import os
import sys
import threading
import weakref
from typing import Any, Final, NamedTuple

from livedma._native import hooks as native
from livedma.memory.paging import explained

__all__ = [
    "CAPSULE",
    "CAUSES",
    "HOOKS",
    "Event",
    "Listener",
    "Listening",
    "Queue",
    "listen",
    "look",
]

HOOKS: Final = native.HOOKS
CAUSES: Final = native.CAUSES
CAPSULE: Final = native.CAPSULE  # the name of capsules with hooks in C
CAPACITY: Final = 16384  # events of a queue
_EXIT_SECONDS: Final = 5.0  # for listeners to hear of the end

look = native.look


class Event(NamedTuple):
    """Says what has happened to some of the pages."""

    number: int  # counts the events of the process, of all listeners
    hook: str
    cause: str
    offset: int  # within the buffer
    length: int
    protection: str | None  # of cause "protected": such as "r-x"
    to: int | None  # the address where mremap took the pages
    lost: int  # of cause "lost": how many events found no room


class Listener:
    """Hears what happens to memory. A subclass overrides the hooks that it needs."""

    def release(self, event: Event) -> None:
        """Hears that nothing comes after this: it was closed, or the process exits."""

    def sync_range(self, event: Event) -> None:
        """Hears that what was written there has been taken or is on its disk: it is clean."""

    def invalidate_range(self, event: Event) -> None:
        """Hears that the pages are gone, or about to go."""

    def update_range(self, event: Event) -> None:
        """Hears that pages are there, maybe others than before."""

    def change_protection(self, event: Event) -> None:
        """Hears that the rights to the pages have changed."""

    def sync_page(self, event: Event) -> None:
        self.sync_range(event)

    def invalidate_page(self, event: Event) -> None:
        self.invalidate_range(event)

    def update_page(self, event: Event) -> None:
        self.update_range(event)


class Listening:
    """Is what `listen` returns: a listener listens until this is closed."""

    def __init__(self, listener: Any, is_inline: bool = False) -> None:
        self.listener = listener
        self._is_inline = is_inline
        self.released = threading.Event()  # set once the listener has heard its release
        self._native: native.MemoryListener | None = None

    def _begin(self, *args: Any, **named: Any) -> None:
        try:
            self._native = native.MemoryListener(*args, **named)
        except OSError as error:
            raise explained(error, otherwise="") from None

    @property
    def lost(self) -> int:
        """The number of events that found no room in the queue."""
        return self._native.lost if self._native is not None else 0

    def close(self) -> None:
        """Ends listening. The release comes after all events, so maybe after this returns. Calling
        it again has no effect.
        """
        if self._native is not None:
            self._native.close()
            if self._is_inline:
                self.released.set()

    def __enter__(self) -> Listening:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _rights(protection: int) -> str:
    bits = ((mmap.PROT_READ, "r"), (mmap.PROT_WRITE, "w"), (mmap.PROT_EXEC, "x"))
    return "".join(name if protection & bit else "-" for bit, name in bits)


class Queue:
    """Brings events to listeners, in their order, on a thread that runs while somebody listens."""

    def __init__(self, capacity: int = CAPACITY) -> None:
        self._native = native.EventQueue(capacity)
        self._lock = threading.Lock()
        self._listening: dict[int, Listening] = {}
        self._thread: threading.Thread | None = None
        self._pid = os.getpid()
        _queues.add(self)

    def _add(self, buffer: Any, listener: Listener, period_ns: int) -> Listening:
        if self._pid != os.getpid():
            raise ValueError("the queue is another process's")
        tag, one = next(_tags), Listening(listener)
        with self._lock:
            self._listening[tag] = one
            try:
                one._begin(buffer, period_ns, queue=self._native, tag=tag)
            except BaseException:
                del self._listening[tag]
                raise
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="ldma-hooks", daemon=True)
                self._thread.start()
        return one

    def _run(self) -> None:
        while True:
            events = self._native.take()
            for event in events:
                if self._deliver(*event):
                    return
            if not events:
                self._native.wait()

    def _deliver(
        self, tag: int, number: int, hook: str, cause: str, start: int, end: int, to: int,
        protection: int, lost: int,
    ) -> bool:  # fmt: skip
        """Returns whether it was the last release."""
        with self._lock:  # by now it has begun, or could not
            one = self._listening.get(tag)
        memory = one._native if one is not None else None
        if one is None or memory is None:
            return False
        offset = max(start - memory.address, 0)
        length = min(end - memory.address, memory.length) - offset
        rights = _rights(protection) if cause == "protected" else None
        event = Event(number, hook, cause, offset, length, rights, to or None, lost)
        try:
            getattr(one.listener, hook)(event)
        except Exception:
            arguments = (*sys.exc_info(), threading.current_thread())
            threading.excepthook(threading.ExceptHookArgs(arguments))
        return hook == "release" and self._forget(tag)

    def _forget(self, tag: int) -> bool:
        with self._lock:
            one = self._listening.pop(tag)
            if one._native is not None:
                one._native.detach()
            is_over = not self._listening
            if is_over:
                self._thread = None
        one.released.set()
        return is_over

    def _join(self) -> None:
        thread = self._thread
        if self._listening and thread is not None and thread is not threading.current_thread():
            thread.join(_EXIT_SECONDS)


_tags = itertools.count(1)
_queues: weakref.WeakSet[Queue] = weakref.WeakSet()
_shared: Queue | None = None
_shared_lock = threading.Lock()


def listen(
    buffer: Any, listener: Any, *, period: float | None = 1.0, queue: Queue | None = None
) -> Listening:
    """Tells the listener what happens to the pages of the buffer, until the result is closed.

    The listener is a Listener, or a capsule with hooks in C. Every `period` seconds the pages are
    looked at for what the kernel does not report; with None, the listener hears only what it does.
    """
    period_ns = 0 if period is None else max(round(period * 1e9), 1)
    if type(listener).__name__ == "PyCapsule":
        one = Listening(listener, is_inline=True)
        one._begin(buffer, period_ns, capsule=listener)
        return one
    return (queue or _process_queue())._add(buffer, listener, period_ns)


def _process_queue() -> Queue:
    global _shared
    with _shared_lock:
        if _shared is None or _shared._pid != os.getpid():
            _shared = Queue()
        return _shared


@atexit.register
def _tell_exit() -> None:
    native.tell_exit()
    for queue in list(_queues):
        queue._join()
