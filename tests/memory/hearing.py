# SPDX-License-Identifier: BSD-2-Clause
"""Two listeners to the same memory: what each heard, in the order in which they heard it."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

from livedma.memory import hooks
from mapped import PAGE, map_apart, unmap, view

HOUR = 3600.0  # a period: looks come only when they are asked for


class Hearer(hooks.Listener):
    """Overrides all eight, so that each says which one it was."""

    def __init__(self, name: str, heard: list[tuple[str, str, hooks.Event]]) -> None:
        self.name, self.heard = name, heard

    def release(self, event: hooks.Event) -> None:
        self.heard.append((self.name, "release", event))

    def sync_range(self, event: hooks.Event) -> None:
        self.heard.append((self.name, "sync_range", event))

    def invalidate_range(self, event: hooks.Event) -> None:
        self.heard.append((self.name, "invalidate_range", event))

    def update_range(self, event: hooks.Event) -> None:
        self.heard.append((self.name, "update_range", event))

    def change_protection(self, event: hooks.Event) -> None:
        self.heard.append((self.name, "change_protection", event))

    def sync_page(self, event: hooks.Event) -> None:
        self.heard.append((self.name, "sync_page", event))

    def invalidate_page(self, event: hooks.Event) -> None:
        self.heard.append((self.name, "invalidate_page", event))

    def update_page(self, event: hooks.Event) -> None:
        self.heard.append((self.name, "update_page", event))


def until(condition: Any, seconds: float = 30.0) -> None:
    """Waits until it holds."""
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.001)


class Memory:
    """Pages with two listeners."""

    def __init__(self, base: int, pages: int) -> None:
        self.base, self.pages = base, pages
        self.heard: list[tuple[str, str, hooks.Event]] = []
        self.listening = [
            hooks.listen(view(base, pages * PAGE), Hearer(name, self.heard), period=HOUR)
            for name in ("first", "second")
        ]

    def at(self, page: int) -> int:
        return self.base + page * PAGE

    def told(self) -> list[tuple[str, str, int, int]]:
        """(hook, cause, page, pages) of each event since the last call, which both have heard: one
        after the other, in the order of their registration.
        """
        hooks.look()
        with hooks.listen(view(self.base, PAGE), Hearer("last", [])) as last:
            pass
        assert last.released.wait(30)  # what came before it has been heard
        heard, self.heard[:] = list(self.heard), []
        names = [name for name, _, _ in heard]
        assert names == ["first", "second"] * (len(heard) // 2), heard
        first, second = heard[::2], heard[1::2]
        assert [h[1:] for h in first] == [h[1:] for h in second]
        numbers = [event.number for _, _, event in first]
        assert numbers == sorted(set(numbers))
        assert all(hook == event.hook for _, hook, event in heard)
        return [(h, e.cause, e.offset // PAGE, e.length // PAGE) for _, h, e in first]

    def close(self) -> list[tuple[str, str, str]]:
        """What they heard last."""
        for one in self.listening:
            one.close()
        for one in self.listening:
            assert one.released.wait(30)
        return [(name, hook, event.cause) for name, hook, event in self.heard]


@contextmanager
def heard_memory(pages: int, base: int = 0) -> Iterator[Memory]:
    with ExitStack() as stack:
        if not base:
            base = map_apart(pages)
            stack.callback(unmap, base, pages)
        memory = Memory(base, pages)
        stack.callback(memory.close)
        yield memory
