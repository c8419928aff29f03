"""How a part of a window leaves: who may still use it, and for how long that is waited for."""

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
    """The device waits for one step at most: nobody uses the part yet, or any more."""
    step = _AT_ONCE * granule
    for start in range(part.offset, part.end, step):
        change(start, min(step, part.end - start))


def await_leases(window: Window, part: Part, changed: threading.Condition, end_s: float) -> None:
    """Until the program has given all back; InUseError: not in time."""
    look_s = _FIRST_LOOK_S
    with changed:
        while part.leases or part.views:
            if window.closed:
                raise ValueError("the window is freed")
            left_s = end_s - time.monotonic()
            if left_s <= 0:
                held = f"{part.leases} leases and {part.views} views"
                raise InUseError(f"the {part!r} stays: {held} were not given back in time")
            changed.wait(min(left_s, look_s))  # views go without a word
            look_s = min(2 * look_s, _LAST_LOOK_S)


def await_messages(window: Window, part: Part, end_s: float) -> bool:
    """Until what was posted there is done, with all rights; then, with no new ones, what peers
    have begun. Whether a peer was still at it in the end. InUseError: something posted was.
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
    """Who is still there when none of the unwanted is, or time is up."""
    look_s = _FIRST_LOOK_S
    while True:
        users = window.users(part.offset, part.length)
        if users.isdisjoint(unwanted) or time.monotonic() >= end_s:
            return users
        time.sleep(look_s)
        look_s = min(2 * look_s, _LAST_LOOK_S)
