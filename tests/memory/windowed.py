# SPDX-License-Identifier: BSD-2-Clause
"""A window of one engine, and a peer that uses it: words for short tests."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from engines import Pair, connect, reconnect
from livedma._native.rdma import Engine
from livedma.memory import Window

PAGE = 4096
RIGHTS = ("remote_write", "remote_read")


class World:
    """b has the window, a is its peer."""

    def __init__(self, size: int = 16 * PAGE, granule: int = PAGE, **options: Any) -> None:
        self.pair: Pair = connect("RC")
        access = options.pop("access", RIGHTS)
        self.window = Window(self.pair.b.engine, size, granule, *access, **options)

    @property
    def engine(self) -> Engine:
        return self.pair.b.engine

    def start(self, operation: str, offset: int, length: int) -> None:
        a = self.pair.a
        va, rkey = self.window.va + offset, self.window.key
        a.qp.post_send(1, operation, [a.at(0, length)], remote_va=va, rkey=rkey)

    def finish(self) -> str:
        self.pair.run()
        ((_, status),) = self.pair.a.statuses()
        if status != "SUCCESS":
            reconnect(self.pair)
        return status

    def until(self, *users: str, offset: int = 0, length: int | None = None) -> None:
        """Lets packets pass until these use the range."""
        while self.window.users(offset, length or self.window.size) != set(users):
            assert self.pair.step()

    def write(self, offset: int, data: bytes) -> str:
        self.pair.a.memory[: len(data)] = data
        self.start("WRITE", offset, len(data))
        return self.finish()

    def read(self, offset: int, length: int) -> bytes | str:
        """The bytes, or how it failed."""
        self.start("READ", offset, length)
        status = self.finish()
        return status if status != "SUCCESS" else self.pair.a.data(0, length)


def mapped_by_us() -> list[str]:
    """Memory of windows in this process, as the system sees it."""
    return [
        line
        for line in Path("/proc/self/maps").read_text().splitlines()
        if "memfd:livedma-window" in line
    ]
