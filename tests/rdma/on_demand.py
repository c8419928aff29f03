# SPDX-License-Identifier: BSD-2-Clause
"""A region on demand on a real device, and a peer that uses it: words for short tests."""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import contextmanager

from loopback import HERE, THERE
from pairs import RIGHTS, End

from livedma.rdma import Device
from mapped import PAGE, map_apart, unmap, view

PAGES = 64


class World:
    """b has a region on demand over pages that a, its peer, uses."""

    def __init__(self, a: End, b: End, pages: int = PAGES) -> None:
        self.a, self.b, self.pages = a, b, pages
        self.base = map_apart(pages)
        self.region = b.pd.register(view(self.base, pages * PAGE), *RIGHTS, mode="on demand")

    def at(self, page: int) -> int:
        return self.base + page * PAGE

    def _ask(self, operation: str, offset: int, length: int) -> str:
        self.a.qp.post_send(
            1, operation, [self.a.region[:length]], remote_va=self.region.va + offset,
            rkey=self.region.rkey,
        )  # fmt: skip
        (done,) = self.a.complete()
        if done.status != "SUCCESS":
            self.reconnect()
        return done.status

    def write(self, offset: int, data: bytes) -> str:
        self.a.memory[: len(data)] = data
        return self._ask("WRITE", offset, len(data))

    def read(self, offset: int, length: int) -> bytes:
        self.a.memory[:length] = bytes(length)
        assert self._ask("READ", offset, length) == "SUCCESS"
        return bytes(self.a.memory[:length])

    def read_status(self, offset: int, length: int) -> str:
        return self._ask("READ", offset, length)

    def reconnect(self) -> None:
        for end in (self.a, self.b):
            end.cq.poll(100)
            end.qp.close()
            end.qp = end.pd.queue_pair("RC", end.cq)
        self.a.connect(self.b, min_rnr_timer=1)
        self.b.connect(self.a, min_rnr_timer=1)

    @property
    def naks(self) -> int:
        return self.b.device.counters["page_naks"]


@contextmanager
def world(pages: int = PAGES) -> Iterator[World]:
    with Device(HERE) as here, Device(THERE) as there:
        a, b = End(here), End(there)
        a.connect(b, min_rnr_timer=1)
        b.connect(a, min_rnr_timer=1)
        one = World(a, b, pages)
        try:
            yield one
        finally:
            one.region.close()
            unmap(one.base, pages)  # what is mapped there by now


def noise(length: int, seed: int = 1) -> bytes:
    return random.Random(seed).randbytes(length)
