# SPDX-License-Identifier: BSD-2-Clause
"""Our server as a process of its own in the host between the guests, and mounts of it in guests."""

from __future__ import annotations

import contextlib
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from livedma.lab.guest import Guest
from livedma.lab.hosts import Host
from livedma.nfs.control import Control, ControlError

PATIENCE_S = 60.0
MOUNT = "/mnt/ours"
ADDRESSES = {4: "10.77.0.254", 6: "fd77::254"}


class Serving:
    """`livedma serve` of a directory; it can be killed and started again."""

    def __init__(self, host: Host, base: Path, *options: str) -> None:
        self.host, self.export = host, base / "export"
        self.export.mkdir(exist_ok=True)
        self._base, self._options = base, options
        self._log = base / "serve.log"
        self.process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Starts it and waits until it serves."""
        listen = [f"--listen={address}" for address in ADDRESSES.values()]
        state = [f"--state={self._base / 'state'}", f"--control={self._base / 'control'}"]
        argv = [sys.executable, "-m", "livedma.cli", "serve", str(self.export), *listen, *state]
        with self._log.open("ab") as log:
            self.process = subprocess.Popen(
                self.host.command(*argv, *self._options), stdout=log, stderr=subprocess.STDOUT
            )
        end_s = time.monotonic() + PATIENCE_S
        while True:
            with contextlib.suppress(ControlError):
                self.ask("server")
                return
            if self.process.poll() is not None or time.monotonic() > end_s:
                raise AssertionError(f"the server does not serve:\n{self.output}")
            time.sleep(0.02)

    @property
    def output(self) -> str:
        """What it printed so far."""
        return self._log.read_text(errors="replace")

    def ask(self, do: str, **parameters: object) -> Any:
        with Control(self._base / "control", timeout=PATIENCE_S) as control:
            return control.ask(do, **parameters)

    def kill(self) -> None:
        """As a crash would."""
        self._end(signal.SIGKILL)

    def stop(self) -> None:
        """As an administrator would."""
        status = self._end(signal.SIGTERM)
        assert status == 0, f"the server ended with {status}:\n{self.output}"

    def _end(self, number: int) -> int | None:
        if self.process is None:
            return 0
        self.process.send_signal(number)
        try:
            status = self.process.wait(PATIENCE_S)
        finally:
            self.process.kill()
            self.process.wait()
            self.process = None
        return status


@contextlib.contextmanager
def serving(host: Host, base: Path, *options: str) -> Iterator[Serving]:
    """A server that is stopped at the end, and has to end well."""
    ret = Serving(host, base, *options)
    ret.start()
    try:
        yield ret
    except BaseException:
        print(ret.output, file=sys.stderr)
        if ret.process is not None:
            ret.kill()
        raise
    ret.stop()


@contextlib.contextmanager
def mounted(
    guest: Guest, *, minor: int = 2, proto: str = "rdma", version: int = 4, options: str = ""
) -> Iterator[str]:
    """The export in a guest; unmounted at the end, which must not hang."""
    port = 20049 if proto == "rdma" else 2049
    name = f"[{ADDRESSES[6]}]" if version == 6 else ADDRESSES[4]
    words = f"vers=4.{minor},proto={proto}{'6' if version == 6 else ''},port={port}"
    words += f",{options}" if options else ""
    guest.run(f"mkdir -p {MOUNT} && mount -t nfs -o {words} {name}:/ {MOUNT}", check=True)
    try:
        yield MOUNT
    except BaseException:
        guest.run(f"umount -f -l {MOUNT}", timeout_s=PATIENCE_S)
        raise
    guest.run(f"umount {MOUNT}", check=True, timeout_s=PATIENCE_S)


def forget(guest: Guest) -> None:
    """The guest's caches: what it reads next comes from the server."""
    guest.run("sync; echo 3 > /proc/sys/vm/drop_caches", check=True, timeout_s=PATIENCE_S)
