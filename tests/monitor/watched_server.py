# SPDX-License-Identifier: BSD-2-Clause
"""Our server inside a host, what it says of each session in the end, and loads on it."""

from __future__ import annotations

import json
import subprocess
import threading
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from livedma.lab.hosts import Host
from livedma.monitor import Monitor
from livedma.monitor.snapshot import Losses
from livedma.nfs.server.config import Config
from livedma.nfs.server.service import NfsService, ServiceOptions

LIMIT_S = 300


@dataclass(frozen=True)
class Done:
    """What a session did."""

    operations: int
    read_bytes: int
    written_bytes: int


@contextmanager
def serving(host: Host, directory: Path, address: str) -> Iterator[dict[str, Done]]:
    """Serves; the figures of sessions that have ended, by their ids. They pass no Python."""
    ended: dict[str, Done] = {}
    (directory / "export").mkdir()
    service_options = ServiceOptions(
        addresses=[address], tcp_port=None, state=directory / "state", config=Config(squash="none")
    )
    with host.inside(), NfsService(directory / "export", service_options) as service:

        def on_gone(session: Any) -> None:
            counters = session.facts().counters
            ended[session.id.hex()] = Done(
                counters["executed"], counters["read_bytes"], counters["written_bytes"]
            )

        service.server.sessions.on_gone.insert(0, on_gone)
        yield ended


@dataclass
class Watch:
    """Adds snapshots up while a load runs."""

    monitor: Monitor
    sessions: dict[str, Done] = field(default_factory=dict)
    total: Counter[str] = field(default_factory=Counter)
    losses: Losses = field(default_factory=Losses)
    most_in_flight: int = 0

    def look(self) -> None:
        seen = self.monitor.snapshot()
        self.losses = seen.losses
        for one in seen.sessions:
            was = self.sessions.get(one.id, Done(0, 0, 0))
            self.sessions[one.id] = Done(
                was.operations + one.operations,
                was.read_bytes + one.read_bytes,
                was.written_bytes + one.written_bytes,
            )
        for connection in seen.connections:
            self.most_in_flight = max(self.most_in_flight, connection.in_flight)
            for name in ("operations", "read_bytes", "written_bytes", "unanswered"):
                self.total[name] += getattr(connection, name)
            self.total["retransmissions"] += connection.retransmissions
            self.total["naks"] += connection.naks

    def during(self, argv: Sequence[str]) -> Any:
        """Runs a command, looks ten times a second, and returns what it printed last."""
        with subprocess.Popen(argv, stdout=subprocess.PIPE, text=True) as process:
            lines: list[str] = []
            assert process.stdout is not None
            reader = threading.Thread(target=lambda: lines.extend(process.stdout or ()))
            reader.start()
            end_s = time.monotonic() + LIMIT_S
            try:
                while process.poll() is None and time.monotonic() < end_s:
                    time.sleep(0.1)
                    self.look()
            finally:
                process.kill()
                reader.join()
        self.look()
        assert process.returncode == 0
        return json.loads(lines[-1])


def load(host: Host, address: str, *options: str) -> list[str]:
    return host.command("livedma", "load", address, "--json", *options)
