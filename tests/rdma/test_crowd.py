# SPDX-License-Identifier: BSD-2-Clause
"""A thousand connections on one device, a hundred of them busy."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

CONNECTIONS, BUSY = 1000, 100
pytestmark = pytest.mark.slow


class Side:
    def __init__(self, *arguments: str) -> None:
        self.process = subprocess.Popen(
            [sys.executable, str(Path(__file__).with_name("crowd.py")), *arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            # Python's own arenas keep what was freed, which is not what is asked here.
            env={**os.environ, "PYTHONMALLOC": "malloc"},
        )
        self.answer()

    def answer(self) -> Any:
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        assert line, "the process ended"
        return json.loads(line)

    def tell(self, *command: object) -> Any:
        assert self.process.stdin is not None
        print(*command, file=self.process.stdin, flush=True)
        return self.answer()

    def end(self) -> None:
        self.process.kill()
        self.process.communicate()


@pytest.fixture
def sides() -> Iterator[tuple[Side, Side]]:
    server = Side("server", "127.0.0.1")
    client = Side("client", "127.0.0.2", "127.0.0.1")
    yield server, client
    client.end()
    server.end()


def test_a_thousand_connections_share_a_device(sides: tuple[Side, Side]) -> None:
    server, client = sides
    client.tell("connect", 10)  # what is made once, is made now
    client.tell("work", 10, 1000)
    before = server.tell("report")
    client.tell("connect", CONNECTIONS)
    idle = server.tell("report")
    assert idle["connections"] == CONNECTIONS + 10
    assert (idle["resident"] - before["resident"]) / CONNECTIONS < 16 << 10
    done = client.tell("work", BUSY, 10_000)["done"]
    assert min(done) >= sum(done) / BUSY / 2
    client.tell("close")
    after = server.tell("close")
    assert after["resident"] < before["resident"] * 1.05
