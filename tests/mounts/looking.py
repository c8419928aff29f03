# SPDX-License-Identifier: BSD-2-Clause
"""What a mount and its server can be seen to do, and waiting until they do it."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from serving import PATIENCE_S, Serving

from livedma.lab.guest import Guest

TRACING = "/sys/kernel/tracing"


@contextmanager
def traced(guest: Guest, *events: str) -> Iterator[Callable[[str], list[int]]]:
    """Kernel tracepoints; the yielded function gives the numbers of a field in the newest lines."""
    for event in events:
        guest.run(f"echo 1 > {TRACING}/events/{event}/enable", check=True)

    def values(field: str) -> list[int]:
        lines = guest.run(f"tail -n 200 {TRACING}/trace", check=True).stdout
        return [int(value) for value in re.findall(rf"\b{field}=(\d+)", lines)]

    try:
        yield values
    finally:
        for event in events:
            guest.run(f"echo 0 > {TRACING}/events/{event}/enable")
        guest.run(f"echo > {TRACING}/trace")


def wait_for(condition: Callable[[], object], what: str) -> None:
    end_s = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < end_s, f"never: {what}"
        time.sleep(0.1)


def only(server: Serving, what: str) -> dict[str, int]:
    found = server.ask(what)
    assert len(found) == 1, f"{len(found)} {what}:\n{server.output}"
    return dict(found[0])
