# SPDX-License-Identifier: BSD-2-Clause
"""Credits and slots change while the kernel's client works: it follows, and nothing breaks."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from looking import only, traced, wait_for
from serving import PATIENCE_S, Serving, mounted, serving

from livedma.lab.channel import Command
from livedma.lab.guest import Guest, Lab
from scale import at_scale

pytestmark = pytest.mark.slow

JOBS, JOB_BYTES = 4, 2 << 20
JOB = (
    f"fio --name=job --directory={{at}} --numjobs={JOBS} --ioengine=libaio --iodepth=32 --direct=1 "
    f"--bs=4k --size={JOB_BYTES} --time_based --runtime=600 --rw=randrw --verify=crc32c "
    "--verify_fatal=1 --verify_backlog=64"
)


@pytest.fixture
def server(wide: Lab, tmp_path: Path) -> Iterator[Serving]:
    """Nobody but the test pulls a lever."""
    with serving(wide.host, tmp_path, "--squash=none", "--policy=static") as ret:
        yield ret


BUFFER_BYTES = 64 << 10  # of `livedma serve`


@contextmanager
def busy(guest: Guest, at: str, server: Serving) -> Iterator[Command]:
    """fio, which must not have stopped by itself when the block ends."""

    def calls() -> int:
        return only(server, "connections")["calls"]

    with guest.command(JOB.format(at=at)) as job:
        for number in range(JOBS):  # its files are there; from here on it is what it measures
            size = f"$(stat -c %s {at}/job.{number}.0 2>/dev/null)"
            guest.wait_until(f'test "{size}" = {JOB_BYTES}', PATIENCE_S)
        begun = calls()
        wait_for(lambda: calls() > begun + 500, "fio at work")
        yield job
        ended = calls()
        wait_for(lambda: calls() > ended + 500, "fio still at work")
        assert job.status is None, job.text
        job.kill(2)
        done = job.wait(PATIENCE_S)
        assert "err= 0" in done.stdout and "verify" not in done.stderr, done


def wait_for_all(values: Callable[[], list[int]], wanted: int, what: str) -> None:
    """Until the newest of the values are all as wanted."""
    wait_for(lambda: values()[-20:] == [wanted] * 20, f"{what} {wanted}")


def test_credits_rise_and_fall(wide: Lab, server: Serving) -> None:
    with mounted(wide.a) as at, busy(wide.a, at, server):
        before = only(server, "connections")
        with traced(wide.a, "rpcrdma/xprtrdma_reply") as values:
            for wanted in (96, 16, 128, 64)[: at_scale(4, 2)]:
                server.ask("set_credits", connection=before["number"], credits=wanted)
                wait_for_all(lambda: values("credits"), wanted, "credits")
        after = only(server, "connections")
        assert after["number"] == before["number"], "there was a reconnect"
        assert after["calls"] > before["calls"]


def test_slots_rise_and_fall(wide: Lab, server: Serving) -> None:
    with mounted(wide.a) as at, busy(wide.a, at, server):
        connection, session = only(server, "connections"), only(server, "sessions")
        with traced(wide.a, "nfs4/nfs4_sequence_done") as values:

            def busiest() -> int:
                return max(values("slot_nr")[-20:], default=1 << 32)

            for slots in (96, 8, 32, 2, 64)[: at_scale(5, 2)]:
                server.ask("set_slots", session=session["id"], slots=slots)
                wait_for_all(lambda: values("target_highest_slotid"), slots - 1, "target")
                wait_for(lambda most=slots: busiest() < most, f"{slots} slots")  # type: ignore[misc]
        assert only(server, "sessions")["id"] == session["id"]
        assert only(server, "connections")["number"] == connection["number"], "a reconnect"


def test_the_window_grows_under_load(wide: Lab, server: Serving) -> None:
    with mounted(wide.a) as at, busy(wide.a, at, server):
        before = only(server, "connections")

        def change(how: str, length: int) -> None:
            server.ask(how, connection=before["number"], bytes=length)
            assert only(server, "connections")["number"] == before["number"], "a reconnect"

        def data_bytes() -> int:  # credits grow with data, and their Receives are mapped, too
            return only(server, "connections")["buffers"] * BUFFER_BYTES

        def wait_until_mapped(length: int) -> None:
            def is_mapped() -> bool:  # memory comes and goes in whole shards
                return abs(data_bytes() - length) < 16 * BUFFER_BYTES

            wait_for(is_mapped, f"{length} mapped for data")

        begun = data_bytes()
        for _ in range(3):
            change("extend", 4 << 20)
            wait_until_mapped(begun + (4 << 20))
            change("shrink", 4 << 20)
            wait_until_mapped(begun)
        change("shrink", 12 << 20)
        wait_until_mapped(begun - (12 << 20))
        change("extend", 24 << 20)
        wait_until_mapped(begun + (12 << 20))
