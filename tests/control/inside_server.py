# SPDX-License-Identifier: BSD-2-Clause
"""Runs a server and its load in one process, for tests that look at the server meanwhile."""

from __future__ import annotations

import asyncio
import os
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from livedma.nfs.load import Plan, Result, Runner
from livedma.nfs.server.config import Config
from livedma.nfs.server.service import NfsService, ServiceOptions
from livedma.rdma import Device
from livedma.rpc.rdma_server import Options
from needs import needs

# No other test run uses them at the same time.
_NET = f"127.{1 + os.getpid() // 250 % 250}.{1 + os.getpid() % 250}"
SERVER, CLIENT = f"{_NET}.50", f"{_NET}.51"
PORT, TCP_PORT = 20049, 20491
PATIENCE_S = 60.0


def wait_until(condition: Callable[[], object]) -> None:
    end = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < end, "it did not happen in time"
        time.sleep(0.01)


@contextmanager
def serving(
    directory: Path, rdma: Options | None = None, *, tcp: bool = False, **config: object
) -> Iterator[NfsService]:
    needs(os.geteuid() == 0, "a server that acts for several users needs root")
    (directory / "export").mkdir()
    options = ServiceOptions(
        addresses=[SERVER],
        tcp_port=TCP_PORT if tcp else None,
        rdma_port=PORT,
        state=directory / "state",
        config=Config(squash="none", **config),  # type: ignore[arg-type]
        rdma=rdma or Options(),
    )
    with NfsService(directory / "export", options) as service:
        yield service


class Load(threading.Thread):
    """Runs a plan; `result` is there at its end. A context manager, which waits for that."""

    def __init__(self, plan: Plan) -> None:
        super().__init__(daemon=True)
        self._plan = plan
        self._result: Result | None = None

    @property
    def result(self) -> Result:
        assert self._result is not None, "the load has failed"
        return self._result

    def run(self) -> None:
        async def with_device(device: Device) -> Result:
            async with asyncio.timeout(PATIENCE_S):
                return await Runner(self._plan, SERVER, PORT, device=device).run()

        with Device(CLIENT) as device:
            self._result = asyncio.run(with_device(device))

    def __enter__(self) -> Load:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.join(PATIENCE_S)
        assert not self.is_alive()
