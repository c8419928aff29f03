# SPDX-License-Identifier: BSD-2-Clause
"""A part of a window leaves when its users are done with it; these functions wait for that."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

from livedma._native.window import Window
from livedma.errors import InUseError
from livedma.memory.parts import Part

_FIRST_LOOK_S, _LAST_LOOK_S = 100e-6, 5e-3
_AT_ONCE = 8192  # granules that change under one hold of the device


def in_steps(change: Callable[[int, int], None], part: Part, granule: int) -> None:
    """Changes a part of a window in steps, so that the device waits for one step at most. The part
    need not change all at once: it is not used yet, or no longer.
    """
    step = _AT_ONCE * granule
    for start in range(part.offset, part.end, step):
        change(start, min(step, part.end - start))


def await_leases(window: Window, part: Part, changed: threading.Condition, end_s: float) -> None:
    """Waits until the program has given back all leases and views of a part. Raises InUseError if
    it has not by `end_s`.
    """
    look_s = _FIRST_LOOK_S
    with changed:
        while part.leases or part.views:
            if window.closed:
                raise ValueError("the window is freed")
            left_s = end_s - time.monotonic()
            if left_s <= 0:
                held = f"{part.leases} leases and {part.views} views"
                raise InUseError(f"the {part!r} stays: {held} were not given back in time")
            changed.wait(min(left_s, look_s))  # a view that goes does not notify
            look_s = min(2 * look_s, _LAST_LOOK_S)


def await_messages(window: Window, part: Part, end_s: float) -> bool:
    """Waits until what the program has posted in a part is done, while peers keep their rights.
    Then drains the part and waits for the messages that peers have begun. Returns whether a peer
    was still using the part at `end_s`. Raises InUseError if something posted still used it.
    """
    users = _await_no(("host",), window, part, end_s)
    if "host" not in users:
        in_steps(window.drain, part, window.granule)
        users = _await_no(("host", "peer"), window, part, end_s)
    if "host" in users:
        in_steps(window.reopen, part, window.granule)
        raise InUseError(f"the {part!r} stays: what was posted there was not done in time")
    return bool(users)


def _await_no(
    unwanted: tuple[str, ...], window: Window, part: Part, end_s: float
) -> frozenset[str]:
    """Waits until none of the unwanted users is left, or until `end_s`. Returns all users that are
    left then.
    """
    look_s = _FIRST_LOOK_S
    while True:
        users = window.users(part.offset, part.length)
        if users.isdisjoint(unwanted) or time.monotonic() >= end_s:
            return users
        time.sleep(look_s)
        look_s = min(2 * look_s, _LAST_LOOK_S)
