# SPDX-License-Identifier: BSD-2-Clause
"""The command as processes: servers that are ready when they say so, and what clients print."""

from __future__ import annotations

import itertools
import os
import queue
import signal
import subprocess
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

PATIENCE_S = 120.0
_numbers = itertools.count(1)


def loopback_address() -> str:
    """One that nobody else uses, also not another run of these tests at the same time."""
    pid = os.getpid()
    return f"127.{1 + pid % 250}.{pid // 250 % 250}.{next(_numbers) * 4 % 250 + 1}"


class Server:
    """A command that waits for clients."""

    def __init__(self, argv: Sequence[str]) -> None:
        self.process = subprocess.Popen(
            argv, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
        self.said: list[str] = []
        self._lines: queue.Queue[str | None] = queue.Queue()
        self._out: list[str] = []
        self._readers = [
            threading.Thread(target=read, daemon=True) for read in (self._read_out, self._read)
        ]
        for reader in self._readers:
            reader.start()

    def _read_out(self) -> None:
        assert self.process.stdout is not None
        self._out.extend(self.process.stdout)

    def _read(self) -> None:
        assert self.process.stderr is not None
        for line in self.process.stderr:
            self.said.append(line)
            self._lines.put(line)
        self._lines.put(None)

    def wait_for(self, text: str) -> None:
        """Until it says so, on standard error."""
        while (line := self._lines.get(timeout=PATIENCE_S)) is not None:
            if text in line:
                return
        raise AssertionError(f"it never said {text!r}, but {self.said}")

    def interrupt(self) -> None:
        self.process.send_signal(signal.SIGINT)

    def wait(self) -> tuple[int, str, str]:
        """Exit status, output, and all that it said."""
        status = self.process.wait(PATIENCE_S)
        for reader in self._readers:
            reader.join(PATIENCE_S)
        return status, "".join(self._out), "".join(self.said)


@contextmanager
def serving(*argv: str) -> Iterator[Server]:
    """A server that is ready for clients; killed at the end, if it still runs."""
    server = Server(argv)
    try:
        server.wait_for("waiting at")
        yield server
    finally:
        server.process.kill()
        server.wait()
        for stream in (server.process.stdout, server.process.stderr):
            assert stream is not None
            stream.close()


def run(*argv: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(argv, capture_output=True, text=True, timeout=PATIENCE_S)
