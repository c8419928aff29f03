# SPDX-License-Identifier: BSD-2-Clause
"""Computes how many more sessions a connection takes before they wait for each other: pure.

A session needs as many buffers as calls of it arrive while one is held (Little's law). The most
that was needed for each busy session gives the fewest sessions that there is room for; the average
gives the most, since peaks of several sessions need not come together. Buffers and credits are
known, so the room is in both; a store or a CPU that is soon full is not foreseen.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from livedma.monitor.snapshot import Connection, Inside

__all__ = ["UNKNOWN", "SessionRoom", "Use", "room_of"]

UNKNOWN = "room for more sessions is not known yet: no session has been busy"
_SLOW = "no room for more sessions: it is slow already"
_SAMPLES_LEAST = 5
_EIGHTHS = 9 / 8  # of a credit's memory go with each buffer: an eighth more credits than buffers


@dataclass(frozen=True, slots=True)
class Use:
    """Holds what a connection used at one moment: its busy sessions, the buffers that their calls
    held or waited for, and the calls under way.
    """

    sessions: int
    buffers: int
    calls: int


@dataclass(frozen=True, slots=True)
class SessionRoom:
    """Says how many more sessions like those of the last seconds a connection takes: `least` to
    `most` with the memory and credits that it has, `end_least` to `end_most` once all its window
    is mapped. None: not known. `sentence` says it for people, `slow_sentence` of a connection that
    is slow already.
    """

    least: int | None
    most: int | None
    end_least: int | None
    end_most: int | None
    sentence: str
    slow_sentence: str = _SLOW


def room_of(connection: Connection, inside: Inside, uses: Sequence[Use]) -> SessionRoom:
    """Computes the room from what was used lately, the newest last."""
    busy = [use for use in uses if use.sessions and use.buffers]
    if len(busy) < _SAMPLES_LEAST:
        return SessionRoom(None, None, None, None, UNKNOWN)
    sessions = uses[-1].sessions
    last_buffers, last_credits = _at_the_end(inside)
    now = _room(busy, sessions, inside.buffers, connection.credits_granted)
    end = _room(busy, sessions, last_buffers, max(last_credits, connection.credits_granted))
    end = max(end[0], now[0]), max(end[1], now[1])
    ending = "" if end == now else f"; {_range(end)} at the window's end"
    sentence = _sentence(now, busy, inside, connection)
    return SessionRoom(*now, *end, sentence + ending, _SLOW + ending)


def _room(busy: Sequence[Use], sessions: int, buffers: int, credits_: int) -> tuple[int, int]:
    """Returns the fewest and the most sessions that these buffers and credits have room for, beside
    those that are busy.
    """

    def fits(have: int, of_one: Sequence[float]) -> tuple[float, float]:
        return have / max(of_one), have * len(of_one) / sum(of_one)

    by_buffers = fits(buffers, [use.buffers / use.sessions for use in busy])
    by_credits = fits(credits_, [max(use.calls, 1) / use.sessions for use in busy])
    least, most = (min(both) for both in zip(by_buffers, by_credits, strict=True))
    return max(int(least) - sessions, 0), max(int(most) - sessions, 0)


def _at_the_end(inside: Inside) -> tuple[int, int]:
    """Returns the buffers and credits that there are once all the window is mapped."""
    data = inside.buffers * inside.buffer_bytes
    others = inside.mapped_bytes - inside.kept_back_bytes - data
    of_credit = max(others, 0) / max(inside.credits, 1)
    more = int(inside.room_bytes / (inside.buffer_bytes + _EIGHTHS * of_credit))
    return inside.buffers + more, inside.credits_max


def _sentence(
    now: tuple[int, int], busy: Sequence[Use], inside: Inside, connection: Connection
) -> str:
    buffers, calls = max(use.buffers for use in busy), max(use.calls for use in busy)
    granted = connection.credits_granted
    if buffers * granted >= calls * inside.buffers:
        busiest = f"{min(buffers, inside.buffers)} of {inside.buffers} buffers"
    else:
        busiest = f"{min(calls, granted)} of {granted} credits"
    if not now[1]:
        return f"no room for more sessions like these ({busiest} at the busiest)"
    noun = "session" if now == (1, 1) else "sessions"
    return f"room for {_range(now)} more {noun} like these ({busiest} at the busiest)"


def _range(found: tuple[int, int]) -> str:
    least, most = found
    return str(least) if least == most else f"{least} to {most}"
