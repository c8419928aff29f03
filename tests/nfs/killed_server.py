# SPDX-License-Identifier: BSD-2-Clause
"""`livedma serve` in a process that is killed, for clients that have to outlive that."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

__all__ = ["PORTS", "Killed"]

PORTS = {"rdma": 20049, "tcp": 20490}


class Killed:
    """Serves `directory`/export with the state in `directory`/state; ready once it is made."""

    def __init__(self, directory: Path, address: str) -> None:
        where = ["--listen", address, "--tcp", str(PORTS["tcp"]), "--state", directory / "state"]
        options = ["--squash", "none", "--control", directory / "control", "--monitor", "server"]
        command = [sys.executable, "-m", "livedma.cli", "serve", directory / "export"]
        self.process = subprocess.Popen(
            [*command, *where, *options], stderr=subprocess.PIPE, text=True
        )
        assert self.process.stderr is not None
        for line in self.process.stderr:
            if "control socket" in line:
                return
        raise AssertionError("the server did not start")

    def kill(self) -> None:
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()
        assert self.process.stderr is not None
        self.process.stderr.close()
