# SPDX-License-Identifier: BSD-2-Clause
"""A peer in a process of its own, at the address given: it writes until it is told to stop.

It says the number of its queue pair and is told where to connect and write. Round by round it fills
SIZE bytes there with pattern(round); at the first line that comes it stops, and says the last
round. For each line more, it reads the SIZE bytes behind those and says their digest.
"""

from __future__ import annotations

import hashlib
import itertools
import select
import struct
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

from pairs import End
from told import Told

from livedma.rdma import Device

SIZE = 128 << 10
PATIENCE_S = 30.0


def pattern(number: int) -> bytes:
    return struct.pack("<Q", number) * (SIZE // 8)


class Writer:
    """The process, from a test's side."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process
        self.number = int(self._hear())

    def _hear(self) -> str:
        assert self._process.stdout is not None
        assert select.select([self._process.stdout], [], [], PATIENCE_S)[0], "it says nothing"
        return self._process.stdout.readline().strip()

    def ask(self, line: object) -> str:
        self.tell(line)
        return self._hear()

    def tell(self, line: object) -> None:
        assert self._process.stdin is not None
        print(line, file=self._process.stdin, flush=True)


@contextmanager
def writer(address: str) -> Iterator[Writer]:
    with subprocess.Popen(
        [sys.executable, __file__, address],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        bufsize=1,
    ) as process:
        try:
            yield Writer(process)
        finally:
            process.kill()


def main() -> None:
    with Device(sys.argv[1]) as device:
        end = End(device, size=2 * SIZE)
        print(end.qp.number, flush=True)
        told = Told()
        address, number, va, rkey = told.line().split()
        end.connect_to(address, int(number))
        for number in itertools.count(1):
            end.memory[:SIZE] = pattern(number)
            end.qp.post_send(1, "WRITE", [end.region[:SIZE]], remote_va=int(va), rkey=int(rkey))
            assert end.complete()[0].status == "SUCCESS"
            if told.has_more():
                break
        told.line()
        print(number, flush=True)
        while told.line():
            there = {"remote_va": int(va) + SIZE, "rkey": int(rkey)}
            end.qp.post_send(2, "READ", [end.region[SIZE:]], **there)
            assert end.complete()[0].status == "SUCCESS"
            print(hashlib.sha256(end.memory[SIZE:]).hexdigest(), flush=True)


if __name__ == "__main__":
    main()
