# SPDX-License-Identifier: BSD-2-Clause
"""What experiments are made of: two devices in a process, pressure, huge pages, words."""

from __future__ import annotations

import mmap
import multiprocessing
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from livedma.errors import LivedmaError
from livedma.lab.experiment.confinement import Confinement, confinement
from livedma.lab.experiment.design import LeftOut
from livedma.lab.experiment.footprint import Footprint, available_bytes
from livedma.lab.experiment.huge_pages import HUGE_BYTES, reserved
from livedma.lab.experiment.other_load import OtherLoad
from livedma.lab.experiment.rig import Rig
from livedma.lab.experiment.runs import Spread
from livedma.lab.experiment.wording import is_clear, relation
from needs import needs

HUGE = Path("/sys/kernel/mm/hugepages/hugepages-2048kB/nr_hugepages")


class TestRig:
    @pytest.mark.parametrize("connections", [1, 3])
    def test_writes_reach_every_place(self, connections: int) -> None:
        with Rig(connections, depth=8) as rig:
            rig.source[:4096] = b"x" * 4096
            memory = mmap.mmap(-1, 1 << 20)
            with rig.pd.register(memory, "remote_write") as region, rig.serving():
                spent_ns = rig.stream(
                    "WRITE", 4096, 256, va=region.va, rkey=region.rkey, span=1 << 20
                )
            assert spent_ns > 0
            assert memory[:] == b"x" * (1 << 20)
            memory.close()

    def test_what_a_peer_may_not_write_is_an_error(self) -> None:
        with Rig() as rig:
            memory = bytearray(4096)
            with (
                rig.pd.register(memory) as region,
                rig.serving(),
                pytest.raises(LivedmaError, match="a WRITE ended with REM_ACCESS_ERR"),
            ):
                rig.stream("WRITE", 4096, 1, va=region.va, rkey=region.rkey)

    def test_threads_are_free_again_afterwards(self) -> None:
        before = os.sched_getaffinity(0)
        with Rig() as rig, rig.serving():
            pass
        assert os.sched_getaffinity(0) == before


class TestFootprint:
    def test_sees_memory_that_is_touched_and_locked(self) -> None:
        before = Footprint.now()
        memory = mmap.mmap(-1, 16 << 20, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        idle = Footprint.now() - before
        memory[:] = b"x" * len(memory)
        touched = Footprint.now() - before
        assert idle.resident_bytes < 8 << 20
        assert touched.resident_bytes >= 15 << 20
        memory.close()

    def test_available_is_what_the_kernel_says(self) -> None:
        total = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
        assert 0 < available_bytes() <= total


def _fill(group: Confinement, length: int) -> None:
    group.enter()
    memory = mmap.mmap(-1, length, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    for at in range(0, length, 4096):
        memory[at] = 1


class TestConfinement:
    def test_too_much_is_killed_and_enough_is_not(self) -> None:
        needs(os.geteuid() == 0, "control groups need root")
        context = multiprocessing.get_context("forkserver")
        try:
            with confinement(64 << 20) as group:
                ends = []
                for length in (16 << 20, 256 << 20):
                    process = context.Process(target=_fill, args=(group, length))
                    process.start()
                    process.join(60)
                    ends.append(process.exitcode)
        except LeftOut as reason:
            needs(False, str(reason))
        assert ends == [0, -9]

    def test_nothing_is_left(self) -> None:
        needs(os.geteuid() == 0, "control groups need root")
        try:
            with confinement(64 << 20) as group:
                directory = group.directory
                assert directory.exists()
        except LeftOut as reason:
            needs(False, str(reason))
        assert not directory.exists()

    def test_without_privilege_it_is_left_out(self) -> None:
        needs(os.geteuid() == 0, "another user can only be become as root")
        program = (
            "import os\n"
            "from livedma.lab.experiment.confinement import confinement\n"
            "from livedma.lab.experiment.design import LeftOut\n"
            "os.setuid(65534)\n"
            "try:\n"
            "    with confinement(1 << 20): pass\n"
            "except LeftOut as reason: print(reason)\n"
        )
        said = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
        assert "needs root" in said.stdout, said.stderr


def test_huge_pages_are_given_back() -> None:
    needs(os.geteuid() == 0 and HUGE.exists(), "huge pages are set aside by root")
    before = int(HUGE.read_text())
    with reserved(4 * HUGE_BYTES) as free_bytes:
        assert free_bytes >= 4 * HUGE_BYTES
        assert int(HUGE.read_text()) <= before + 4
    assert int(HUGE.read_text()) == before


def test_other_load_is_what_others_do() -> None:
    """Our own work does not count; that of a child which still runs does."""
    own = OtherLoad()
    end_s = time.monotonic() + 0.5
    while time.monotonic() < end_s:
        pass
    alone = own.share()
    with subprocess.Popen([sys.executable, "-c", "while True: pass"]) as busy:
        try:
            other = OtherLoad()
            time.sleep(0.5)
            assert 0 < other.share() <= 1
        finally:
            busy.kill()
    assert 0 <= alone <= 1


@pytest.mark.parametrize(
    ("ratio", "text"),
    [
        (Spread(2.0, 1.8, 2.2, 3), "2x faster (1.8x to 2.2x)"),
        (Spread(2.0, 2.0, 2.0, 1), "2x faster"),
        (Spread(0.5, 0.4, 0.6, 3), "2x slower (1.67x to 2.5x)"),
        (Spread(1.02, 1.01, 1.03, 3), "not clearly different (1.02x; 1.01x to 1.03x)"),
        (Spread(1.2, 0.5, 2.0, 3), "not clearly different (1.2x; 0.5x to 2x)"),
        (None, "not measured"),
    ],
)
def test_relations_are_no_stronger_than_the_data(ratio: Spread | None, text: str) -> None:
    assert relation(ratio, "faster", "slower") == text
    assert is_clear(ratio) == text.startswith("2x")
