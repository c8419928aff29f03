# SPDX-License-Identifier: BSD-2-Clause
"""Runs in a guest: commands come in through virtio-serial ports, output and exit status go back.

Each port carries one command at a time, as lines of JSON. To the guest: {"id", "command",
"terminal": null or [rows, columns], "term"} starts one; then {"id", "in": base64}, {"id", "size":
[rows, columns]}, {"id", "kill": signal}. From the guest: {"id", "out" or "err": base64} as often as
there is output, and at last {"id", "status"}. A command whose host goes away is killed, with its
process group; one that comes before the other has ended takes its place.
"""

from __future__ import annotations

import base64
import contextlib
import fcntl
import glob
import json
import os
import pty
import select
import signal
import struct
import subprocess
import termios
import threading
import time
from collections import deque
from collections.abc import Iterator
from typing import Any

CHUNK = 16384
SETTLE_S = 5.0  # within which the kernel of a starved guest has learnt that a host is there
LOOK_S = 0.05


class Gone(Exception):
    """The host closed its end, or has begun something else."""


class Port:
    """Sends and receives lines of JSON over one virtio-serial port. Nothing here waits for a host
    that is away."""

    def __init__(self, path: str) -> None:
        self.fd = os.open(path, os.O_RDWR | os.O_NONBLOCK)
        self.is_busy = False
        self._pending = b""
        self._inbox: deque[dict[str, Any]] = deque()
        self._settled_s = 0.0

    @property
    def _is_settling(self) -> bool:
        """Whether a host has just sent a command. That it connected comes by another queue than
        what it sends, and maybe later: until then its port looks unused.
        """
        return time.monotonic() < self._settled_s

    def _read(self) -> None:
        try:
            data = os.read(self.fd, CHUNK)
        except BlockingIOError:
            return
        if not data:
            if self._is_settling:
                time.sleep(LOOK_S)
                return
            self._pending = b""
            self._inbox.clear()
            raise Gone
        *lines, self._pending = (self._pending + data).split(b"\n")
        for line in lines:
            with contextlib.suppress(ValueError):  # the rest of a line whose sender was killed
                message = json.loads(line)
                if isinstance(message, dict):
                    self._inbox.append(message)

    def request(self) -> dict[str, Any] | None:
        """Returns the next request for a command, if there is one; what belongs to older ones is
        lost."""
        if not self._inbox:
            self._read()
        while self._inbox:
            message = self._inbox.popleft()
            if "command" in message:
                self._settled_s = time.monotonic() + SETTLE_S
                return message
        return None

    @property
    def has_messages(self) -> bool:
        """Whether something came together with the request."""
        return bool(self._inbox)

    def messages(self) -> Iterator[dict[str, Any]]:
        """Yields what has come in for the command that runs; raises Gone when it is to end."""
        self._read()
        while self._inbox:
            if "command" in self._inbox[0]:
                raise Gone
            yield self._inbox.popleft()

    def send(self, **message: object) -> None:
        data = json.dumps(message).encode() + b"\n"
        poll = select.poll()
        poll.register(self.fd, select.POLLOUT)
        while data:
            if any(events & select.POLLHUP for _, events in poll.poll()):
                if not self._is_settling:
                    raise Gone
                time.sleep(LOOK_S)
                continue
            with contextlib.suppress(BlockingIOError):
                data = data[os.write(self.fd, data) :]


def resize(terminal: int, size: list[int]) -> None:
    fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("4H", *size, 0, 0))


class Command:
    """Runs one command of a port, in a session of its own, on pipes or on a terminal."""

    def __init__(self, port: Port, request: dict[str, Any]) -> None:
        self.port, self.id = port, request["id"]
        size = request.get("terminal")
        self.terminal: int | None = None
        self.input: int | None = None
        self._to_write = b""  # what the command has not read yet
        self._is_input_complete = False
        if size:
            self.terminal, inside = pty.openpty()
            self.input = os.dup(self.terminal)
            resize(self.terminal, size)
            self.outputs = {self.terminal: "out"}
            streams = [inside, inside, inside]
        else:
            out, err = os.pipe(), os.pipe()
            self.outputs = {out[0]: "out", err[0]: "err"}
            if request.get("input"):
                given, self.input = os.pipe()
            else:
                given = os.open("/dev/null", os.O_RDONLY)
            streams = [given, out[1], err[1]]
        if self.input is not None:
            os.set_blocking(self.input, False)
        take_terminal = (lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0)) if size else None
        environment = dict(os.environ, TERM=request.get("term", "dumb"))
        self.process = subprocess.Popen(
            ["bash", "-c", request["command"]],
            stdin=streams[0],
            stdout=streams[1],
            stderr=streams[2],
            cwd="/root",
            env=environment,
            start_new_session=True,
            preexec_fn=take_terminal,
        )
        for stream in set(streams):
            os.close(stream)

    def kill(self, number: int = signal.SIGKILL) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, number)

    def _take(self, message: dict[str, Any]) -> None:
        if message.get("id") != self.id:
            return
        if self.input is not None:
            self._to_write += base64.b64decode(message.get("in", ""))
            self._is_input_complete |= message.get("end", False)
        if "size" in message and self.terminal is not None:
            resize(self.terminal, message["size"])
        if "kill" in message:
            self.kill(message["kill"])

    def _feed(self) -> None:
        """Writes as much of the input as the command takes now; it may have closed it as well."""
        if self.input is None:
            return
        try:
            with contextlib.suppress(BlockingIOError):
                while self._to_write:
                    self._to_write = self._to_write[os.write(self.input, self._to_write) :]
            is_done = self._is_input_complete and not self._to_write
        except OSError:
            is_done = True
        if is_done:
            os.close(self.input)
            self.input = None

    def _forward(self, output: int) -> bool:
        """Passes one piece of output on; False at its end."""
        try:
            data = os.read(output, CHUNK)
        except OSError:  # EIO: no process has the terminal open any more
            data = b""
        if data:
            piece = {self.outputs[output]: base64.b64encode(data).decode()}
            self.port.send(id=self.id, **piece)
        return bool(data)

    def serve(self) -> None:
        """Serves until the command has ended, even if children keep its output open."""
        try:
            poll = select.poll()
            is_open = dict.fromkeys(self.outputs, True)
            for fd in (self.port.fd, *self.outputs):
                poll.register(fd, select.POLLIN)
            while True:
                has_ended = self.process.poll() is not None
                ready = dict(poll.poll(0 if has_ended else 10 if self._to_write else 50))
                if ready.pop(self.port.fd, 0) or self.port.has_messages:
                    for message in self.port.messages():
                        self._take(message)
                self._feed()
                for output in ready:
                    if not self._forward(output):
                        poll.unregister(output)
                        is_open[output] = False
                if has_ended and not (ready and any(is_open.values())):
                    break
            status = self.process.returncode
            self.port.send(id=self.id, status=128 - status if status < 0 else status)
        except Gone:
            self.kill()
            self.process.wait()
        finally:
            for stream in (*self.outputs, *([] if self.input is None else [self.input])):
                os.close(stream)


def serve(port: Port, request: dict[str, Any]) -> None:
    try:
        Command(port, request).serve()
    finally:
        port.is_busy = False


def main() -> None:
    ports = [Port(path) for path in glob.glob("/dev/vport*")]
    # A port without a host is always ready to read its end: looking now and then costs less.
    while True:
        for port in ports:
            with contextlib.suppress(Gone):
                request = None if port.is_busy else port.request()
                if request is not None:
                    port.is_busy = True
                    threading.Thread(target=serve, args=(port, request)).start()
        time.sleep(LOOK_S)


if __name__ == "__main__":
    main()
