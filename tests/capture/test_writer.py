# SPDX-License-Identifier: BSD-2-Clause
"""The pcapng writer: what it writes reads back the same, here and in Wireshark's tools."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest
from test_files import FRAMES, read_all, rows

from livedma._native.pcapng import PcapngWriter
from livedma._native.wire import Batch
from livedma.capture.files import read

FIELDS = [
    "-eframe.time_epoch",
    "-eframe.packet_flags_direction",
    "-einfiniband.bth.psn",
]


def fill(direction: int = 0, length: int | None = None) -> Batch:
    batch = Batch(64, 1 << 16)
    for frame in FRAMES:
        assert batch.add(1, frame.time_ns + 789, direction, frame.data, length or len(frame.data))
    return batch


def write(path: Path, *batches: Batch, received: int = 9, dropped: int = 3) -> None:
    with path.open("wb") as out:
        writer = PcapngWriter(out.fileno(), [("eth0", 1, 262144)])
        for batch in batches:
            writer.write(batch)
        writer.close([received], [dropped])
        writer.close()


def test_reads_back_the_same(tmp_path: Path) -> None:
    path = tmp_path / "out.pcapng"
    first, second = fill(direction=1), fill(direction=2, length=2000)
    wanted = rows(first) + rows(second)
    for row in wanted:
        del row["n"]
    write(path, first, second)
    assert read_all(path) == wanted
    with read(path) as file:
        assert sum(len(batch) for batch in file) == 8
        (interface,) = file.interfaces
        assert (interface.name, interface.link, interface.received) == ("eth0", 1, 9)
        assert file.drops == 3


def test_a_batch_larger_than_the_buffer(tmp_path: Path) -> None:
    path = tmp_path / "out.pcapng"
    batch = Batch(3000, 4 << 20)
    while batch.add(1, FRAMES[3].time_ns, 0, FRAMES[3].data, len(FRAMES[3].data)):
        pass
    assert len(batch) == 3000
    write(path, batch)
    assert len(read_all(path)) == 3000


@pytest.mark.skipif(shutil.which("capinfos") is None, reason="capinfos (tshark) is not installed")
def test_wireshark_accepts_it(tmp_path: Path) -> None:
    path = tmp_path / "out.pcapng"
    write(path, fill(direction=1), fill(direction=2))
    info = subprocess.run(
        ["capinfos", "-M", path], capture_output=True, text=True, check=True
    ).stdout
    for wanted in (
        "pcapng",
        "Number of packets:   8",
        "File timestamp precision:  nanoseconds (9)",
        "Capture application: livedma",
        "Name = eth0",
    ):
        assert wanted in info
    shown = subprocess.run(
        ["tshark", "-n", "-r", path, "-T", "fields", *FIELDS],
        capture_output=True,
        text=True,
        check=True,
    )
    assert "malformed" not in shown.stderr.lower()
    lines = [line.split("\t") for line in shown.stdout.splitlines()]
    assert [line[0] for line in lines[:4]] == [
        f"{(f.time_ns + 789) // 10**9}.{(f.time_ns + 789) % 10**9:09d}" for f in FRAMES
    ]
    assert [int(line[1], 0) for line in lines] == [1] * 4 + [2] * 4
    assert [int(line[2]) for line in lines] == [1, 2, 2, 3] * 2


def test_what_cannot_be_written(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="at least one interface"):
        PcapngWriter(1, [])
    out, into = os.pipe()
    writer = PcapngWriter(into, [("eth0", 1, 0)])
    with pytest.raises(IndexError):
        writer.write(fill(), 1)
    os.close(out)
    with pytest.raises(BrokenPipeError):
        writer.write(fill())
