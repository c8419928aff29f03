# SPDX-License-Identifier: BSD-2-Clause
"""Feeds views of servers (`livedma top`) with frames that come from a source outside of them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator

from livedma.control.events import Event
from livedma.control.show.frame import Frame
from livedma.monitor.source import Source
from livedma.ui.watch.views import View, Views

__all__ = ["watched"]

_INTERVAL_S = 0.5


async def watched(
    source: Source, interval_s: float = _INTERVAL_S
) -> AsyncGenerator[Frame | Event, None]:
    """Attaches the source, and yields a frame each interval. What cannot be seen is told as an
    event when it changes. The caller closes the source. Raises LivedmaError.
    """
    await asyncio.to_thread(source.attach)  # loading BPF programs is slow
    views = Views(source)
    number = told = 0
    said: tuple[str, ...] = ()
    loop = asyncio.get_running_loop()
    due_s = loop.time()
    while True:
        due_s = max(due_s + interval_s, loop.time())
        await asyncio.sleep(due_s - loop.time())
        view = views.next()
        for sentence in view.unseen:
            if sentence not in said:
                told += 1
                yield _event(told, view, f"not seen: {sentence}")
        said = view.unseen
        number += 1
        yield Frame(
            number=number,
            server=view.where,
            started_s=views.began_s,
            watching=view.snapshot.source,
            policy="",
            dry_run=False,
            snapshot=view.snapshot,
            diagnoses=view.diagnoses,
            windows=(),
            last_event=told,
        )


def _event(number: int, view: View, text: str) -> Event:
    return Event(number, view.snapshot.at_s, view.snapshot.wall_s, "source", None, text)
