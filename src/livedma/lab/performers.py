# SPDX-License-Identifier: BSD-2-Clause
"""Runs the processes of a stage: a controlled server, and a load that reports as it runs."""

from __future__ import annotations

import itertools
import json
import subprocess
import threading
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Self

from livedma.errors import LabError
from livedma.nfs.control import Control, ControlError

__all__ = ["Load", "Process", "Server"]

_START_S = 60.0
_LOOK_S = 0.02
_END_S = 20.0
_READY = "control socket"  # in the last line of a server before it serves


class Process:
    """Runs a process that ends, killed if need be, when it is closed. Ctrl-C does not reach it."""

    def __init__(self, command: Sequence[str], name: str, **streams: Any) -> None:
        self.name = name
        try:
            self._process = subprocess.Popen(
                command,
                start_new_session=True,
                text=True,
                **{"stdin": subprocess.DEVNULL, **streams},
            )
        except OSError as error:
            raise LabError(f"{name} cannot be started: {error}") from None

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def is_running(self) -> bool:
        return self._process.poll() is None

    def close(self) -> None:
        if self.is_running:
            self._process.terminate()
        try:
            self._process.wait(_END_S)
        finally:
            self._process.kill()
            self._process.wait()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class Server(Process):
    """Runs `livedma serve`; it exists once that serves. Raises LabError with its last words if it
    does not start."""

    def __init__(
        self, command: Sequence[str], *, control: Path, log: Path, handed_down: Sequence[int] = ()
    ) -> None:
        """Starts the server. handed_down: descriptors that it inherits, with the same numbers."""
        self.control_path, self._log = control, log
        with log.open("w") as stderr:
            super().__init__(
                command,
                "the server",
                stdout=subprocess.DEVNULL,
                stderr=stderr,
                pass_fds=handed_down,
            )
        try:
            self.control = self._reached()  #: its control socket
        except BaseException:
            super().close()
            raise

    def _reached(self) -> Control:
        end_s = time.monotonic() + _START_S
        while time.monotonic() < end_s:
            is_running = self.is_running
            # The socket exists before all its methods do.
            if _READY in self.log:
                return Control(self.control_path)
            if not is_running:
                raise LabError(f"the server has ended: {_last_words(self.log)}")
            time.sleep(_LOOK_S)
        raise LabError(f"the server did not answer in {_START_S:g} s")

    def ask(self, do: str, **parameters: object) -> Any:
        """Asks through its control socket; LabError with its last words if it has ended."""
        try:
            return self.control.ask(do, **parameters)
        except ControlError:
            if self.is_running:
                raise
            raise LabError(f"the server has ended: {_last_words(self.log)}") from None

    @property
    def log(self) -> str:
        """Returns what it has said so far."""
        return self._log.read_text(errors="replace")

    def close(self) -> None:
        self.control.close()
        super().close()


class Load(Process):
    """Runs `livedma load --json`. Each interval is a dict as the program prints it."""

    def __init__(self, command: Sequence[str]) -> None:
        super().__init__(command, "the load", stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        self._news = threading.Condition()
        self._intervals: list[dict[str, Any]] = []
        self._total: dict[str, Any] | None = None
        self._began_s: float | None = None
        self._words = ""
        self._open = 2  # streams that may still bring something
        for target in (self._read_lines, self._read_words):
            threading.Thread(target=target, name=self.name, daemon=True).start()

    def _read_lines(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            now_s = time.monotonic()
            found = json.loads(line)
            with self._news:
                if "plan" in found:
                    self._total = found
                else:
                    self._intervals.append(found)
                    if self._began_s is None:
                        self._began_s = now_s - found["at_s"]
                self._news.notify_all()
        self._ended()

    def _read_words(self) -> None:
        assert self._process.stderr is not None
        words = self._process.stderr.read()
        with self._news:
            self._words = words
        self._ended()

    def _ended(self) -> None:
        with self._news:
            self._open -= 1
            self._news.notify_all()

    @property
    def began_s(self) -> float | None:
        """Returns when it began to measure (monotonic clock); None before its first interval."""
        return self._began_s

    @property
    def is_over(self) -> bool:
        """Returns whether it has ended, and all its output was read."""
        return self._open == 0

    @property
    def intervals(self) -> list[dict[str, Any]]:
        """Returns the intervals so far."""
        with self._news:
            return list(self._intervals)

    def __iter__(self) -> Iterator[dict[str, Any]]:
        """Yields each interval as it comes, from the first on, until the load is over."""
        for seen in itertools.count():
            with self._news:
                while len(self._intervals) == seen:
                    if not self._open:
                        return
                    self._news.wait()
                interval = self._intervals[seen]
            yield interval

    def result(self, timeout_s: float | None = None) -> dict[str, Any]:
        """Returns what it prints at the end. Raises LabError if it has measured nothing."""
        with self._news:
            if not self._news.wait_for(lambda: not self._open, timeout_s):
                raise LabError(f"the load did not end in {timeout_s:g} s")
        if self._total is None:
            raise LabError(f"the load failed: {_last_words(self._words)}")
        return self._total

    def close(self) -> None:
        super().close()
        with self._news:
            self._news.wait_for(lambda: not self._open, _END_S)
        for stream in (self._process.stdout, self._process.stderr):
            if stream is not None:
                stream.close()


def _last_words(text: str) -> str:
    lines = text.strip().splitlines()
    return lines[-1].removeprefix("livedma: ") if lines else "without a word"
