# SPDX-License-Identifier: BSD-2-Clause
"""The kernel's device as the peer of a window of ours that grows and shrinks."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

import pytest
import scenarios
from counting import no_errors
from endpoints import ALL, Attributes, Piece, Rxe, Work, digest_of, pattern
from ours import Ours
from scenarios import SIZE, Link, linked

from livedma.memory import Window

pytestmark = pytest.mark.slow

PART = 64 << 10
ROUNDS = 12
RIGHTS = ("remote_write", "remote_read", "remote_atomic")
FENCED = ("signaled", "fence")


class WindowMemory:
    """As much of a window as is mapped at the start, in the words of a scenario."""

    def __init__(self, window: Window) -> None:
        self.window = window
        self.key, self.va = window.key, window.va

    def at(self, offset: int, length: int) -> Piece:
        return (self.key, self.va + offset, length)

    def fill(self, offset: int, length: int, seed: int) -> None:
        self.write(offset, pattern(length, seed))

    def write(self, offset: int, data: bytes) -> None:
        """From part to part, if need be: the program's views are within one."""
        for part in self.window.parts:
            first, last = max(offset, part.offset), min(offset + len(data), part.end)
            if first < last:
                self.window.view(first, last - first)[:] = data[first - offset : last - offset]

    def read(self, offset: int, length: int) -> bytes:
        pieces = []
        for part in self.window.parts:
            first, last = max(offset, part.offset), min(offset + length, part.end)
            if first < last:
                pieces.append(bytes(self.window.view(first, last - first)))
        return b"".join(pieces)

    def digest(self, offset: int, length: int) -> str:
        return digest_of(self.read(offset, length))

    def close(self) -> None:
        self.window.close()


class Windowed(Ours):
    """Our device, whose memory is a window with room for twice as much."""

    def memory(self, length: int, access: Sequence[str] = ALL) -> WindowMemory:  # type: ignore[override]
        window = self._pd.window(2 * length, *RIGHTS, part=PART)
        for _ in range(length // PART):
            window.extend()
        return WindowMemory(window)


@contextmanager
def windowed(kernel: Rxe, ours: Ours, version: int) -> Iterator[tuple[Link, Window]]:
    """The kernel asks."""
    with linked(kernel, Windowed(ours.device), "RC", version, Attributes(4096)) as link:
        assert isinstance(link.b.memory, WindowMemory)
        yield link, link.b.memory.window


@pytest.mark.parametrize(
    "scenario",
    [scenarios.write, scenarios.read, scenarios.atomics, scenarios.send, scenarios.pipelined],
    ids=lambda s: s.__name__,
)
def test_a_window_is_memory_like_any_other(
    kernel: Rxe, ours: Ours, version: int, scenario: Callable[[Link], None]
) -> None:
    with no_errors(kernel, ours), windowed(kernel, ours, version) as (link, _):
        scenario(link)


def test_it_grows_and_shrinks_under_the_kernel(kernel: Rxe, ours: Ours, version: int) -> None:
    """On one connection: every byte is right, nothing fails, and nobody has to connect again."""
    with no_errors(kernel, ours), windowed(kernel, ours, version) as (link, window):
        kept = window.take(PART)
        for number in range(ROUNDS):
            link.a.memory.fill(0, 2 * PART, number)
            steady = [
                Work(i, "WRITE", [link.a.at(i * 4096, 4096)], **link.remote(i * 4096))
                for i in range(16)
            ]
            link.a.qp.send(steady)  # these are under way while the window changes
            part = window.extend()
            assert part.offset == SIZE
            new = link.remote(part.offset)
            link.a.qp.send(
                [
                    Work(100, "WRITE", [link.a.at(PART, PART)], **new),
                    Work(101, "READ", [link.a.at(2 * PART, PART)], **new, flags=FENCED),
                ]
            )
            done = link.sent(18)
            assert [(one.wr_id, one.status) for one in done] == [
                (wr_id, "SUCCESS") for wr_id in (*range(16), 100, 101)
            ]
            sent = pattern(2 * PART, number)
            assert bytes(kept.memory) == sent[:PART]
            assert window.view(part.offset, PART) == sent[PART:]
            assert link.a.memory.digest(2 * PART, PART) == digest_of(sent[PART:])
            link.a.qp.send(steady)
            assert window.shrink(PART) == PART
            assert [one.status for one in link.sent(16)] == ["SUCCESS"] * 16
        assert (link.a.qp.state, link.b.qp.state) == ("RTS", "RTS")
        assert (window.statistics().cut, window.statistics().shrinks) == (0, ROUNDS)


@pytest.mark.parametrize("operation", ["WRITE", "READ"])
def test_what_was_taken_away_is_refused(
    kernel: Rxe, ours: Ours, version: int, operation: str
) -> None:
    with windowed(kernel, ours, version) as (link, window):
        part = window.extend()
        work = Work(1, operation, [link.a.at(0, 4096)], **link.remote(part.offset))
        link.a.qp.send([work])
        assert [one.status for one in link.sent()] == ["SUCCESS"]
        assert window.shrink(PART) == PART
        link.a.qp.send([work])
        assert [one.status for one in link.sent()] == ["REM_ACCESS_ERR"]
        assert link.a.qp.state == "ERR"
