# SPDX-License-Identifier: BSD-2-Clause
"""Runs commands in a guest, through the virtio-serial ports that its agent serves (guest/agent.py).

Each port carries one command at a time. Several processes may use a guest at once: a lock file for
each port says whether it is taken.
"""

from __future__ import annotations

import base64
import contextlib
import fcntl
import json
import re
import secrets
import signal
import socket
import subprocess
import time
from pathlib import Path
from typing import IO, Any

from livedma.errors import LabError

__all__ = ["PORTS", "Command", "port_path"]

PORTS = 6  #: how many commands can run in a guest at once
_FREE_PORT_LIMIT_S = 60.0
_PIECE_BYTES = 8192  # of input in one message: a line that the agent reads at once
_DEATH = re.compile(r"(?:BUG: |Oops: |general protection|Kernel panic|RIP: ).*")


def port_path(directory: Path, guest: str, number: int) -> Path:
    return directory / f"{guest}.port{number}"


def _last_words(directory: Path, guest: str) -> str:
    """Returns what a guest's dying kernel said, as the end of a sentence, or nothing."""
    try:
        console = (directory / f"{guest}.console").read_text(errors="replace")
    except OSError:
        return ""
    words = [line.strip() for line in _DEATH.findall(console)[:3]]
    return f"; its kernel said: {' / '.join(words)}" if words else ""


def _free_port(directory: Path, guest: str) -> tuple[socket.socket, IO[str]]:
    """Returns a connection to a port that is not in use, and the lock that keeps others off it."""
    end_s = time.monotonic() + _FREE_PORT_LIMIT_S
    while time.monotonic() < end_s:
        for number in range(PORTS):
            path = port_path(directory, guest, number)
            try:
                lock = path.with_suffix(path.suffix + ".lock").open("w")
            except OSError:
                raise LabError(f"guest {guest} is not running: livedma lab up") from None
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                lock.close()
                continue
            connection = socket.socket(socket.AF_UNIX)
            try:
                connection.connect(str(path))
            except OSError:
                connection.close()
                lock.close()
                said = _last_words(directory, guest)
                raise LabError(f"guest {guest} is not running: livedma lab up{said}") from None
            return connection, lock
        time.sleep(0.1)
    raise LabError(f"guest {guest} runs {PORTS} commands already: wait for one to end")


class Command:
    """Runs a command in a guest; closing it ends the command there, too.

    terminal: rows and columns if it is to have a terminal. takes_input: write() is its input, until
    end_input(); a command with neither has an empty input.
    """

    def __init__(
        self,
        directory: Path,
        guest: str,
        command: str,
        *,
        terminal: tuple[int, int] | None = None,
        term: str = "dumb",
        takes_input: bool = False,
    ) -> None:
        self.guest, self.command = guest, command
        self._directory = directory
        self.status: int | None = None
        self.output, self.errors = b"", b""  #: what it has written so far
        self._pending = b""
        self._id = secrets.token_hex(6)
        self._socket, self._lock = _free_port(directory, guest)
        self._send(command=command, terminal=terminal, term=term, input=takes_input)

    def __enter__(self) -> Command:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        is_open = self._socket.fileno() >= 0
        if is_open and self.status is None:
            with contextlib.suppress(LabError):  # the agent may take a while to see the end
                self.kill(signal.SIGKILL)
        self._socket.close()
        self._lock.close()

    def fileno(self) -> int:
        """Returns a descriptor for select: readable when there may be output."""
        return self._socket.fileno()

    def _send(self, **message: Any) -> None:
        self._socket.settimeout(10)
        try:
            # The first newline ends a line that a killed host may have left unfinished.
            self._socket.sendall(b"\n" + json.dumps({"id": self._id, **message}).encode() + b"\n")
        except OSError as error:
            said = _last_words(self._directory, self.guest)
            raise LabError(f"guest {self.guest} does not listen: {error}{said}") from None

    def write(self, data: bytes) -> None:
        for start in range(0, len(data), _PIECE_BYTES):
            piece = data[start : start + _PIECE_BYTES]
            self._send(**{"in": base64.b64encode(piece).decode()})

    def end_input(self) -> None:
        """Ends the command's input behind what was written so far."""
        self._send(end=True)

    def resize(self, rows: int, columns: int) -> None:
        self._send(size=(rows, columns))

    def kill(self, number: int = signal.SIGTERM) -> None:
        self._send(kill=int(number))

    def read(self, timeout_s: float) -> tuple[bytes, bytes]:
        """Returns all new output and errors; empty if none came in time, or it has ended.

        Nothing stays in this buffer, where a select() on this command would not see it.
        """
        end_s = time.monotonic() + timeout_s
        while self.status is None:
            output, errors = self._take_all()
            if output or errors or self.status is not None:
                return output, errors
            left_s = end_s - time.monotonic()
            if left_s <= 0:
                break
            self._socket.settimeout(left_s)
            try:
                data = self._socket.recv(65536)
            except TimeoutError:
                break
            except OSError:
                data = b""
            if not data:
                said = _last_words(self._directory, self.guest)
                raise LabError(f"guest {self.guest} ended while it ran: {self.command}{said}")
            self._pending += data
        return b"", b""

    def _take_all(self) -> tuple[bytes, bytes]:
        output, errors = b"", b""
        while b"\n" in self._pending:
            line, self._pending = self._pending.split(b"\n", 1)
            more, more_errors = self._take(line)
            output += more
            errors += more_errors
        return output, errors

    def _take(self, line: bytes) -> tuple[bytes, bytes]:
        # An answer to a command before this one may still be on its way: it has another id.
        with contextlib.suppress(ValueError):
            message = json.loads(line)
            if message.get("id") == self._id:
                if "status" in message:
                    self.status = message["status"]
                output, errors = (base64.b64decode(message.get(key, "")) for key in ("out", "err"))
                self.output += output
                self.errors += errors
                return output, errors
        return b"", b""

    def wait(self, timeout_s: float = 60.0) -> subprocess.CompletedProcess[str]:
        """Waits for the end; kills the command and raises LabError if it does not come in time."""
        end_s = time.monotonic() + timeout_s
        while self.status is None:
            self.read(end_s - time.monotonic())
            if self.status is None and time.monotonic() >= end_s:
                self.close()
                raise LabError(
                    f"guest {self.guest}: not done after {timeout_s:g} s: {self.command}"
                    f"; the end of its output: {self.text[-500:]!r}"
                )
        output, errors = (data.decode(errors="replace") for data in (self.output, self.errors))
        return subprocess.CompletedProcess(self.command, self.status, output, errors)

    def wait_for(self, text: str, timeout_s: float = 30.0) -> None:
        """Waits until the output or the errors contain the text."""
        end_s = time.monotonic() + timeout_s
        while text not in self.text:
            self.read(end_s - time.monotonic())
            if text not in self.text and (self.status is not None or time.monotonic() >= end_s):
                raise LabError(
                    f"guest {self.guest}: no {text!r} from {self.command}"
                    f"; the end of its output: {self.text[-500:]!r}"
                )

    @property
    def text(self) -> str:
        """Returns all that it has written so far: output, then errors."""
        return (self.output + self.errors).decode(errors="replace")
