# SPDX-License-Identifier: BSD-2-Clause
"""The peer of a storm, in a process of its own: writes tagged words and reads them back.

Reads lines from its standard input: `connect ADDRESS QP VA RKEY`, answered by its queue pair's
number; `go`, after which it works until it is refused or told to stop (a line comes). It answers
with the number of round trips and why it ended, and with what was wrong if anything was.
"""

from __future__ import annotations

import random
import sys

import numpy as np
from pairs import End
from told import Told

from livedma.rdma import Device

BYTES = 6 * 4096


class Peer:
    """It has the words from base to base + words to itself."""

    def __init__(self, address: str, base: int, words: int, seed: int) -> None:
        self.device = Device(address)
        self.end = End(self.device, size=2 * BYTES)
        self.base, self.words = base, words
        self.random = random.Random(seed)
        self.generation = 0
        self.told = Told()
        view = memoryview(self.end.memory)
        self.out = np.frombuffer(view[:BYTES], np.uint64)
        self.back = np.frombuffer(view[BYTES:], np.uint64)

    def connect(self, address: str, number: int, va: int, rkey: int) -> int:
        self.end.qp.close()
        self.end.cq.poll(4096)
        self.end.qp = self.end.pd.queue_pair("RC", self.end.cq)
        self.va, self.rkey = va, rkey
        self.peer = (address, number)
        return self.end.qp.number

    def ready(self) -> None:
        self.end.connect_to(*self.peer, min_rnr_timer=1)

    def ask(self, operation: str, local: int, first: int, count: int) -> str:
        self.end.qp.post_send(
            1, operation, [self.end.region[local : local + 8 * count]],
            remote_va=self.va + 8 * first, rkey=self.rkey,
        )  # fmt: skip
        (done,) = self.end.complete()
        return done.status

    def round_trip(self) -> tuple[str, str]:
        """(status, what is wrong)."""
        count = self.random.randrange(1, BYTES // 8)
        first = self.base + self.random.randrange(self.words - count)
        self.generation += 1
        where = np.arange(first, first + count, dtype=np.uint64) << np.uint64(32)
        self.out[:count] = where | np.uint64(self.generation)
        for operation, local in (("WRITE", 0), ("READ", BYTES)):
            status = self.ask(operation, local, first, count)
            if status != "SUCCESS":
                return status, ""
        seen = self.back[:count]
        generations = seen & np.uint64(0xFFFFFFFF)
        is_ours = (seen ^ generations) == where
        is_known = is_ours & (generations > 0) & (generations <= self.generation)
        strange = seen[~(is_known | (seen == 0))]
        wrong = f"{len(strange)} strange words, one is {strange[0]:#x}" if len(strange) else ""
        return status, wrong

    def work(self) -> str:
        done = 0
        while not self.told.has_more():
            status, wrong = self.round_trip()
            if wrong or status != "SUCCESS":
                return f"{done} {status} {wrong}"
            done += 1
        return f"{done} SUCCESS"


def main() -> None:
    peer = Peer(sys.argv[1], *map(int, sys.argv[2:]))
    while line := peer.told.line():
        verb, *rest = line.split()
        if verb == "connect":
            print(peer.connect(rest[0], *map(int, rest[1:])), flush=True)
        elif verb == "go":
            peer.ready()
            print(peer.work(), flush=True)
    peer.device.close()
