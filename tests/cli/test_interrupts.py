# SPDX-License-Identifier: BSD-2-Clause
"""Signals to a measurement: the first ends it in order, the second at once."""

from __future__ import annotations

import signal
import subprocess
import sys

import pytest

_TWICE = """
import asyncio, os, signal, sys
from livedma.cli import interrupts

interrupts.SAME_S = float(sys.argv[1])
number = signal.Signals[sys.argv[2]]

async def run():
    stopped, it = asyncio.Event(), interrupts.Interrupts()
    with it.calling(stopped.set):
        os.kill(os.getpid(), number)
        await stopped.wait()
        os.kill(os.getpid(), number)
        await asyncio.sleep(0)
        print(it.words)

asyncio.run(run())
"""


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.parametrize("same_s", [3600, 0])
def test_a_second_one_that_comes_at_once_is_the_first(number: signal.Signals, same_s: int) -> None:
    """timeout(1) sends it to its child, and then to the group of both."""
    done = subprocess.run(
        [sys.executable, "-c", _TWICE, str(same_s), number.name],
        capture_output=True,
        text=True,
        timeout=60,
    )
    expected = (0, f"interrupted by {number.name}\n", "") if same_s else (-number, "", "")
    assert (done.returncode, done.stdout, done.stderr) == expected
