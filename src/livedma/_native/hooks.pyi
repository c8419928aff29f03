# SPDX-License-Identifier: BSD-2-Clause
from typing import Any

HOOKS: tuple[str, ...]
CAUSES: tuple[str, ...]
CAPSULE: str

def look() -> None:
    """Looks at the pages of all listeners with a period, now. When it returns, everything has been
    told that it found or that the kernel had reported before, but for forks.
    """

def tell_exit() -> None:
    """Tells all listeners their release."""

class EventQueue:
    """Holds events until a thread takes them. Contracts are in memory/hook_queue.h."""

    def __init__(self, capacity: int) -> None: ...
    def take(self) -> list[tuple[int, int, str, str, int, int, int, int, int]]:
        """Returns up to 64 events, the oldest first: (tag, number, hook, cause, start, end, to,
        protection, lost).
        """
    def wait(self) -> None:
        """Waits for an event."""

class MemoryListener:
    """Listens to the pages of a buffer: events go to the queue under the tag, or to the capsule's
    hooks.
    """

    def __init__(
        self,
        buffer: Any,
        period_ns: int,
        *,
        queue: EventQueue | None = None,
        tag: int = 0,
        capsule: Any = None,
    ) -> None: ...
    @property
    def address(self) -> int:
        """Says where the buffer is."""
    @property
    def length(self) -> int:
        """Says how long it is, in bytes."""
    @property
    def lost(self) -> int:
        """Counts the events that found no room in the queue."""
    def close(self) -> None:
        """Ends listening, after a release. Calling it again has no effect."""
    def detach(self) -> None:
        """Ends its part of the queue, once the release has been taken."""
