# SPDX-License-Identifier: BSD-2-Clause
"""The controller extends the window under the kernel's client: it follows, and nothing breaks.

The store takes half a second for each access and the window is small, so DMA memory is what limits
a guest, however slow it is: 16 buffers are 32 operations a second, and the 64 slots of the kernel's
client are 128.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from looking import only, traced, wait_for
from serving import PATIENCE_S, Serving, mounted, serving

from livedma.lab.guest import Guest, Lab
from livedma.monitor.snapshot import Connection, Inside, Snapshot
from scale import at_scale

pytestmark = [pytest.mark.slow, pytest.mark.alone]

DELAY_S, BLOCK = 0.5, 16384
JOBS, JOB_BYTES = 4, 2 << 20
JOB = (
    f"fio --name=job --directory={{at}} --numjobs={JOBS} --ioengine=libaio --iodepth=32 --direct=1 "
    f"--bs={BLOCK} --size={JOB_BYTES} --time_based --runtime=600 --rw=randrw --verify=crc32c "
    "--verify_fatal=1 --verify_backlog=64"
)
SECONDS = at_scale(20, 4)


@pytest.fixture
def server(wide: Lab, tmp_path: Path) -> Iterator[Serving]:
    """Static at first, so that there is something to compare with."""
    window = ["--window=2MiB", "--mapped=1/4", f"--buffer={BLOCK}", "--credits=32"]
    options = [*window, f"--store-delay={DELAY_S}s", "--policy=static", "--squash=none"]
    with serving(wide.host, tmp_path, *options) as ret:
        for number in range(JOBS):  # through the slow store it would take long
            (ret.export / f"job.{number}.0").write_bytes(bytes(JOB_BYTES))
        yield ret


@contextmanager
def busy(guest: Guest, at: str) -> Iterator[None]:
    """fio, which finds what it wrote and must not have stopped by itself when the block ends."""
    with guest.command(JOB.format(at=at)) as job:
        yield
        assert job.status is None, job.text
        job.kill(2)
        done = job.wait(PATIENCE_S)
        assert "err= 0" in done.stdout and "verify" not in done.stderr, done


def look(server: Serving) -> tuple[Connection, Inside]:
    (connection,) = Snapshot.from_json(server.ask("snapshot")).connections
    assert connection.inside is not None
    return connection, connection.inside


def rate(server: Serving) -> float:
    """Calls a second that were answered in some seconds."""
    begun_s, begun = time.monotonic(), only(server, "connections")["calls"]
    time.sleep(SECONDS)
    return (only(server, "connections")["calls"] - begun) / (time.monotonic() - begun_s)


def events(server: Serving, kind: str) -> list[dict[str, Any]]:
    return [one for one in server.ask("decisions")["events"] if one["kind"] == kind]


def test_the_controller_extends_the_window(wide: Lab, server: Serving) -> None:
    with (
        mounted(wide.a) as at,
        traced(wide.a, "rpcrdma/xprtrdma_reply") as values,
        busy(wide.a, at),
    ):
        wait_for(lambda: look(server)[1].buffers_wanted, "calls that wait for DMA memory")
        first, session = only(server, "connections"), only(server, "sessions")
        first_credits = max(values("credits")[-20:])
        before = rate(server)
        assert not events(server, "done")

        server.ask("policy", name="extend")
        wait_for(lambda: look(server)[1].buffers >= 64, "a buffer for each slot of the client")
        wait_for(lambda: events(server, "check"), "a check of what was done")
        after = rate(server)

        assert after > 2 * before, (before, after)
        wait_for(lambda: min(values("credits")[-20:]) > first_credits, "more credits")
        last = only(server, "connections")
        assert last["number"] == first["number"], "there was a reconnect"
        assert last["mapped"] > 2 * first["mapped"]
        assert only(server, "sessions")["id"] == session["id"]
        assert not events(server, "undo") and not events(server, "failed"), server.output
