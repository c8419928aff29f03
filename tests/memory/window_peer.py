# SPDX-License-Identifier: BSD-2-Clause
"""The peer of a window, in a process of its own: reads and writes it flat out, and as it is told.

As a program it is that process; as a module it brings Peer, by which a test has one. They talk by
lines of JSON.
"""

from __future__ import annotations

import functools
import itertools
import json
import random
import struct
import subprocess
import sys
import threading
import time
from typing import Any

from livedma.rdma import Device, WorkRequest, cm

PORT = 7321
WHERE = struct.Struct("!QI")  #: address and key of the window, as private data
MESSAGE = 64 << 10
AT_ONCE = 16
PATIENCE = 20.0


@functools.lru_cache(16)
def pattern(seed: int, length: int) -> bytes:
    return random.Random(seed).randbytes(length)


class Link:
    """A connection with memory for both directions."""

    def __init__(self, device: Device, server: str, size: int) -> None:
        self.connection = cm.connect(device, server, PORT, timeout=PATIENCE)
        self.va, self.rkey = WHERE.unpack_from(self.connection.private_data)
        self.size = size
        self.window = self.connection.pd.window(2 * size, mapped=2 * size)
        self.lease = self.window.take(2 * size)

    def run(self, operation: str, offset: int, length: int, at: int) -> list[float]:
        """All of the range, in messages; when each completed. AssertionError: how one failed."""
        requests = []
        for start in range(0, length, MESSAGE):
            piece = (self.lease.lkey, self.lease.va + at + start, min(MESSAGE, length - start))
            where = {"remote_va": self.va + offset + start, "rkey": self.rkey}
            requests.append(WorkRequest(start, operation, [piece], **where))
        times: list[float] = []
        self.connection.qp.post_sends(requests[:AT_ONCE])
        waiting = requests[AT_ONCE:]
        while len(times) < len(requests):
            for done in self.connection.cq.wait(PATIENCE):
                assert done.status == "SUCCESS", done.status
                times.append(time.monotonic())
                if waiting:
                    self.connection.qp.post_sends([waiting.pop(0)])
        return times

    def exchange(self, offset: int, length: int, seed: int) -> list[float]:
        """Writes what the seed says, reads it again and compares."""
        data = pattern(seed, length)
        self.lease.memory[:length] = data
        times = self.run("WRITE", offset, length, 0)
        times += self.run("READ", offset, length, self.size)
        assert self.lease.memory[self.size : self.size + length] == data, "other bytes"
        return times

    def close(self) -> None:
        self.connection.close()
        self.window.close()


class Stream(threading.Thread):
    """Writes and reads a range until it is told to stop."""

    def __init__(self, link: Link, offset: int, length: int) -> None:
        super().__init__(daemon=True)
        self.link, self.range = link, (offset, length)
        self.stopping, self.trouble = threading.Event(), ""
        self.operations, self.longest_gap_s = 0, 0.0

    def run(self) -> None:
        try:
            while not self.stopping.is_set():
                times = self.link.exchange(*self.range, self.operations % 7)
                gaps = (b - a for a, b in itertools.pairwise(times))
                self.longest_gap_s = max(self.longest_gap_s, *gaps)
                self.operations += len(times)
        except Exception as error:
            self.trouble = f"{type(error).__name__}: {error}"


class Process:
    """What the process can do."""

    def __init__(self, address: str, server: str) -> None:
        self.device, self.server = Device(address), server
        self.link = Link(self.device, server, 4 << 20)

    def start(self, offset: int, length: int) -> None:
        self.stream = Stream(Link(self.device, self.server, length), offset, length)
        self.stream.start()

    def stop(self) -> dict[str, Any]:
        stream = self.stream
        stream.stopping.set()
        stream.join(60)
        return {
            "operations": stream.operations,
            "trouble": stream.trouble,
            "longest_gap_ms": stream.longest_gap_s * 1000,
        }

    def use(self, offset: int, length: int, seed: int) -> int:
        return len(self.link.exchange(offset, length, seed))

    def probe(self, operation: str, offset: int, length: int) -> str:
        """How it ends, on a connection of its own: it may not survive that."""
        link = Link(self.device, self.server, length)
        try:
            link.run(operation, offset, length, 0)
        except AssertionError as error:
            return str(error)
        finally:
            link.close()
        return "SUCCESS"


class Peer:
    """Such a process, from outside."""

    def __init__(self, address: str, server: str) -> None:
        self.process = subprocess.Popen(
            [sys.executable, __file__, address, server],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def call(self, name: str, *arguments: Any) -> Any:
        assert self.process.stdin is not None and self.process.stdout is not None
        print(json.dumps([name, *arguments]), file=self.process.stdin, flush=True)
        line = self.process.stdout.readline()
        assert line, f"the process ended with {self.process.wait(60)}"
        answer = json.loads(line)
        assert "error" not in answer, answer["error"]
        return answer["value"]

    def __enter__(self) -> Peer:
        return self

    def __exit__(self, *_: object) -> None:
        assert self.process.stdin is not None and self.process.stdout is not None
        self.process.stdin.close()
        try:
            self.process.wait(20)
        finally:
            self.process.kill()
            self.process.stdout.close()


def main(address: str, server: str) -> None:
    process: Process | None = None
    for line in sys.stdin:
        name, *arguments = json.loads(line)
        try:
            process = process or Process(address, server)
            answer = {"value": getattr(process, name)(*arguments)}
        except Exception as error:
            answer = {"error": f"{type(error).__name__}: {error}"}
        print(json.dumps(answer), flush=True)
    if process is not None:
        process.device.close()


if __name__ == "__main__":
    main(*sys.argv[1:])
