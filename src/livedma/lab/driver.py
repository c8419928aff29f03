"""A load that is driven: `livedma load --driven` in a process of its own, and orders to it."""

from __future__ import annotations

import json
import queue
import subprocess
import threading
from typing import Any

from livedma.errors import LabError

__all__ = ["Driver"]

_END_S = 30.0


class Driver:
    """Speaks to a load whose standard input and output are pipes. Does not end it by itself."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process
        self._lines: queue.SimpleQueue[str | None] = queue.SimpleQueue()
        threading.Thread(target=self._read, name="load's answers", daemon=True).start()

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            self._lines.put(line)
        self._lines.put(None)

    def wait_ready(self, timeout_s: float = 30.0) -> None:
        """Until it is connected."""
        self._next(timeout_s)

    def ask(self, order: str, timeout_s: float = 60.0) -> dict[str, Any]:
        """What came of an order. Raises LabError."""
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(f"{order}\n")
            self._process.stdin.flush()
        except OSError:
            raise LabError(f"the load has ended before {order!r}{self._why()}") from None
        found = self._next(timeout_s)
        if "error" in found:
            raise LabError(f"{order!r}: {found['error']}")
        return found

    def _next(self, timeout_s: float) -> dict[str, Any]:
        try:
            line = self._lines.get(timeout=timeout_s)
        except queue.Empty:
            raise LabError(f"the load says nothing for {timeout_s:g} s") from None
        if line is None:
            raise LabError(f"the load has ended{self._why()}")
        found: dict[str, Any] = json.loads(line)
        return found

    def _why(self) -> str:
        return f" with {code}" if (code := self._process.poll()) is not None else ""

    def finish(self) -> dict[str, Any]:
        """Ends the orders; the total."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        total = self._next(_END_S)
        self._process.wait(_END_S)
        return total
