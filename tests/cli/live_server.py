# SPDX-License-Identifier: BSD-2-Clause
"""`livedma serve` in a process of its own, with a file that says how."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from livedma.nfs.control import Control

__all__ = ["LIMIT_S", "LiveServer", "live_server", "wait_for"]

LIMIT_S = 60.0


def wait_for(condition: Callable[[], Any], said: Callable[[], str]) -> Any:
    end_s = time.monotonic() + LIMIT_S
    while not (found := condition()):
        assert time.monotonic() < end_s, said()
        time.sleep(0.02)
    return found


@dataclass
class LiveServer:
    """Its process, its file, and the port it has for TCP."""

    process: subprocess.Popen[bytes]
    directory: Path
    port: int

    @property
    def control(self) -> Path:
        return self.directory / "control"

    @property
    def export(self) -> Path:
        return self.directory / "export"

    @property
    def said(self) -> str:
        return (self.directory / "log").read_text(errors="replace")

    def ask(self, do: str, **parameters: object) -> Any:
        with Control(self.control) as control:
            return control.ask(do, **parameters)

    def events(self, *kinds: str) -> list[dict[str, Any]]:
        return [one for one in self.ask("decisions")["events"] if one["kind"] in kinds]

    def write(self, **options: object) -> None:
        write(self.directory, **options)

    def signal(self, number: signal.Signals) -> None:
        self.process.send_signal(number)

    def ends_by(self, number: signal.Signals) -> bool:
        """Whether it has, once it got this."""
        self.process.send_signal(number)
        return self.process.poll() is not None

    def wait(self) -> int:
        return self.process.wait(LIMIT_S)


def write(directory: Path, **options: object) -> None:
    """Makes these the contents of its file."""
    lines = [f"{key.replace('_', '-')} = {json.dumps(value)}" for key, value in options.items()]
    (directory / "livedma.toml").write_text("\n".join(lines) + "\n")


@contextmanager
def live_server(
    directory: Path, *words: str, environment: dict[str, str] | None = None, **options: object
) -> Iterator[LiveServer]:
    """options: in its file; words: on its command line. It is killed at the end."""
    (directory / "export").mkdir()
    (directory / "export").chmod(0o777)  # its clients' root is nobody
    with socket.create_server(("127.0.0.1", 0)) as free:
        port: int = free.getsockname()[1]
    write(directory, **options)
    where = ["--tcp", str(port), "--state", str(directory / "state")]
    where += ["--control", str(directory / "control")]
    if options:
        where += ["--config", str(directory / "livedma.toml")]
    command = [sys.executable, "-m", "livedma.cli", "serve", str(directory / "export")]
    with (directory / "log").open("wb") as log:
        process = subprocess.Popen(
            [*command, *where, *words], stderr=log, env={**os.environ, **(environment or {})}
        )
    ret = LiveServer(process, directory, port)
    try:
        wait_for(
            lambda: "control socket" in ret.said or process.poll() is not None, lambda: ret.said
        )
        assert process.poll() is None, ret.said
        yield ret
    finally:
        process.kill()
        process.wait()
