# SPDX-License-Identifier: BSD-2-Clause
"""Speaks to QEMU's monitor, which stops, saves, loads and runs a guest."""

from __future__ import annotations

import json
import shlex
import socket
import time
from pathlib import Path
from typing import Any

from livedma.errors import LabError

__all__ = ["Monitor"]

_ANSWER_LIMIT_S = 30.0


class Monitor:
    """Connects to one guest's monitor; QEMU serves one connection at a time."""

    def __init__(self, path: Path) -> None:
        self._name = path.stem
        self._socket = socket.socket(socket.AF_UNIX)
        self._socket.settimeout(_ANSWER_LIMIT_S)
        try:
            self._socket.connect(str(path))
        except OSError as error:
            self._socket.close()
            raise LabError(f"guest {self._name} is not running: {error.strerror}") from None
        self._file = self._socket.makefile("rb")
        self._read()  # the greeting
        self.ask("qmp_capabilities")

    def __enter__(self) -> Monitor:
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()
        self._socket.close()

    def _read(self) -> dict[str, Any]:
        try:
            line = self._file.readline()
        except OSError as error:
            raise LabError(f"guest {self._name}'s monitor does not answer: {error}") from None
        if not line:
            raise LabError(f"guest {self._name} ended")
        message: dict[str, Any] = json.loads(line)
        return message

    def ask(self, command: str, **arguments: Any) -> Any:
        message = {"execute": command, "arguments": arguments}
        self._socket.sendall(json.dumps(message).encode() + b"\n")
        while True:
            answer = self._read()  # or an event, which is skipped
            if "error" in answer:
                reason = answer["error"]["desc"]
                raise LabError(f"guest {self._name}: {command}: {reason}")
            if "return" in answer:
                return answer["return"]

    def save(self, path: Path, timeout_s: float = 120.0) -> None:
        """Writes the memory of a stopped guest to a file."""
        self.ask("migrate-set-parameters", **{"max-bandwidth": 1 << 40})
        self.ask("migrate", uri=f"exec:zstd -q -1 -f -o {shlex.quote(str(path))}")
        self._wait_migrated(timeout_s)

    def load(self, path: Path, timeout_s: float = 120.0) -> None:
        """Fills the memory of a guest that waits for it; it stays stopped."""
        self.ask("migrate-incoming", uri=f"exec:zstd -q -d -c {shlex.quote(str(path))}")
        self._wait_migrated(timeout_s)

    def _wait_migrated(self, timeout_s: float) -> None:
        end_s = time.monotonic() + timeout_s
        while (state := self.ask("query-migrate").get("status")) != "completed":
            if state in ("failed", "cancelled"):
                raise LabError(f"guest {self._name}: its memory could not be saved or loaded")
            if time.monotonic() > end_s:
                raise LabError(f"guest {self._name}: its memory took longer than {timeout_s:g} s")
            time.sleep(0.05)
