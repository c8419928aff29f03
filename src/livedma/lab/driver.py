# SPDX-License-Identifier: BSD-2-Clause
"""Drives a load (`livedma load --driven`): it sends orders, and returns the result of each."""

from __future__ import annotations

import json
import queue
import subprocess
import threading
from collections.abc import Sequence
from typing import Any

from livedma.errors import LabError
from livedma.lab.performers import Process

__all__ = ["Driver"]

_READY_S = 60.0
_END_S = 60.0


class Driver(Process):
    """Drives a connected load. Raises LabError when it fails."""

    def __init__(self, command: Sequence[str]) -> None:
        super().__init__(command, "the load", stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        self._lines: queue.SimpleQueue[str | None] = queue.SimpleQueue()
        self._reader = threading.Thread(target=self._read, name=self.name, daemon=True)
        self._reader.start()
        try:
            self._next(_READY_S)
        except BaseException:
            self.close()
            raise

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            self._lines.put(line)
        self._lines.put(None)

    def ask(self, order: str, timeout_s: float = 60.0) -> dict[str, Any]:
        """Gives an order and returns its result."""
        self.order(order)
        return self.answer(timeout_s)

    def order(self, order: str) -> None:
        """Gives an order without waiting; `answer` returns its result."""
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(f"{order}\n")
            self._process.stdin.flush()
        except OSError:
            raise LabError(f"the load had ended before {order!r}") from None

    def answer(self, timeout_s: float) -> dict[str, Any]:
        found = self._next(timeout_s)
        if "error" in found:
            raise LabError(f"the load says: {found['error']}")
        return found

    def _next(self, timeout_s: float) -> dict[str, Any]:
        try:
            line = self._lines.get(timeout=timeout_s)
        except queue.Empty:
            raise LabError(f"the load said nothing for {timeout_s:g} s") from None
        if line is None:
            raise LabError(f"the load has ended with {self._process.wait(_END_S)}")
        found: dict[str, Any] = json.loads(line)
        return found

    def finish(self) -> dict[str, Any]:
        """Ends the orders, and with them the load; returns its total."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        total = self._next(_END_S)
        self._process.wait(_END_S)
        return total

    def close(self) -> None:
        super().close()
        self._reader.join(_END_S)
        for stream in (self._process.stdin, self._process.stdout):
            assert stream is not None
            stream.close()
