# SPDX-License-Identifier: BSD-2-Clause
"""The kernel's client cannot be asked to move: its connection is cut between two calls, and it
comes back to a larger one, while fio verifies what it reads. Nothing fails or is done twice.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from looking import only, wait_for
from serving import PATIENCE_S, Serving, mounted, serving

from livedma.lab.guest import Lab
from scale import at_scale

pytestmark = pytest.mark.slow

MIGRATIONS = at_scale(20, 4)
MIB = 1 << 20
JOBS, JOB_BYTES = 4, 2 << 20
JOB = (
    f"fio --name=job --directory={{at}} --numjobs={JOBS} --ioengine=libaio --iodepth=32 --direct=1 "
    f"--bs=4k --size={JOB_BYTES} --time_based --runtime=600 --rw=randrw --verify=crc32c "
    "--verify_fatal=1 --verify_backlog=64"
)
# A mkdir that is executed twice is EEXIST, a rename ENOENT.
ONCE = """
import os, sys
at, step = sys.argv[1], 0
os.mkdir(f"{at}/chain0")
while not os.path.exists("/tmp/enough"):
    os.mkdir(f"{at}/step{step}")
    os.rename(f"{at}/chain{step}", f"{at}/chain{step + 1}")
    step += 1
    if step % 10 == 0:
        print("step", step, flush=True)
print("end", step, flush=True)
"""


def told(server: Serving, number: int) -> dict[str, Any] | None:
    """What became of a connection's migration, once it is over."""
    for event in reversed(server.ask("decisions")["events"]):
        if event["connection"] == number and event["kind"] in ("done", "failed"):
            return dict(event)
    return None


def migrated(server: Serving, number: int, length: int, granted: int) -> dict[str, Any]:
    server.ask("migrate", connection=number, bytes=length, credits=granted)
    wait_for(lambda: told(server, number), f"connection {number} moved")
    found = told(server, number)
    assert found is not None and found["kind"] == "done", server.output
    return found


def has_moved_on(server: Serving) -> Callable[[], bool]:
    begun = only(server, "connections")["calls"]
    return lambda: only(server, "connections")["calls"] > begun + 300


def test_it_is_migrated_again_and_again(wide: Lab, tmp_path: Path) -> None:
    guest = wide.a
    pauses, lines = [], []
    options = ("--squash=none", "--policy=static", "--window=8MiB", "--mapped=1/2")
    with serving(wide.host, tmp_path, *options) as server, mounted(guest) as at:
        guest.run("rm -f /tmp/enough", check=True)
        guest.put(ONCE.encode(), "/tmp/once.py")
        with (
            guest.command(JOB.format(at=at)) as job,
            guest.command(f"python3 /tmp/once.py {at}") as once,
        ):
            for number in range(JOBS):  # its files are there; from here on it verifies
                size = f"$(stat -c %s {at}/job.{number}.0 2>/dev/null)"
                guest.wait_until(f'test "{size}" = {JOB_BYTES}', PATIENCE_S)
            session = only(server, "sessions")["id"]
            for turn in range(MIGRATIONS):
                wait_for(has_moved_on(server), "fio at work")
                before = only(server, "connections")["number"]
                length, granted = (10 + turn % 3) * MIB, 80 + turn
                event = migrated(server, before, length, granted)
                after = only(server, "connections")
                assert event["data"]["successor"] == after["number"] != before
                assert after["credits"] == granted and after["mapped"] > length - MIB
                pauses.append(event["data"]["pause_s"])
                lines.append(event["line"])
            wait_for(has_moved_on(server), "fio still at work")
            assert only(server, "sessions")["id"] == session, "a session was made anew"
            assert job.status is None, job.text
            guest.run("touch /tmp/enough", check=True)
            once.wait_for("end", PATIENCE_S)
            assert once.wait(PATIENCE_S).returncode == 0, once.text
            job.kill(2)
            done = job.wait(PATIENCE_S)
            assert "err= 0" in done.stdout and "verify" not in done.stderr, done
        (steps,) = re.findall(r"end (\d+)", once.text)
        names = {one.name for one in server.export.iterdir()}
        assert {f"step{step}" for step in range(int(steps))} <= names
        assert f"chain{steps}" in names
        assert len([name for name in names if name.startswith(("step", "chain"))]) == int(steps) + 1
    print(f"##### {MIGRATIONS} migrations, longest pause {max(pauses) * 1e3:.0f} ms", flush=True)
    print("#####", *lines, sep="\n      ", flush=True)
