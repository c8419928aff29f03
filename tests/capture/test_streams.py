# SPDX-License-Identifier: BSD-2-Clause
"""Captures that come through pipes: in pieces, slowly, or not yet."""

import os
import subprocess
import sys
import threading
import time
from itertools import pairwise
from pathlib import Path
from typing import Any

import capture_bytes as cb
from hypothesis import given, settings
from hypothesis import strategies as st
from test_files import FRAMES, VARIANTS, rows

from livedma._native.files import FileReader
from livedma._native.wire import Batch
from livedma.capture.files import read


@settings(max_examples=150, deadline=None)
@given(st.data())
def test_pieces_of_any_size_give_what_the_whole_gives(data: st.DataObject) -> None:
    """Through a pipe, written in pieces; the file may be damaged."""
    whole = bytearray(VARIANTS[data.draw(st.sampled_from(sorted(VARIANTS)))])
    for _ in range(data.draw(st.integers(0, 3))):
        whole[data.draw(st.integers(0, len(whole) - 1))] = data.draw(st.integers(0, 255))
    cuts = sorted(data.draw(st.lists(st.integers(0, len(whole)), max_size=6)))
    capacity = data.draw(st.integers(1, 5))

    def outcome(pieces: list[bytes]) -> tuple[list[dict[str, Any]], str | None]:
        out, into = os.pipe()
        reader, batch, found = FileReader(out), Batch(capacity), []

        def write() -> None:
            for piece in pieces:
                os.write(into, piece)
                time.sleep(0.0002)
            os.close(into)

        writer = threading.Thread(target=write)
        writer.start()
        while reader.next_batch(batch):
            found += rows(batch)
        writer.join()
        os.close(out)
        for row in found:
            del row["n"]
        return found, reader.error

    ends = [0, *cuts, len(whole)]
    pieces = [bytes(whole[a:b]) for a, b in pairwise(ends) if a < b]
    assert outcome(pieces) == outcome([bytes(whole)])


def test_standard_input(tmp_path: Path) -> None:
    program = (
        "from livedma.capture.files import read\n"
        "with read('-') as file:\n"
        "    print(file.name, sum(len(batch) for batch in file), file.format)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], input=cb.pcapng(FRAMES), capture_output=True, check=True
    )
    assert done.stdout == b"standard input 4 pcapng\n"


def test_a_slow_fifo_delivers_packets_as_they_come(tmp_path: Path) -> None:
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)
    go_on = threading.Semaphore(0)

    def write() -> None:
        with fifo.open("wb", buffering=0) as out:
            out.write(cb.pcap_header())
            for frame in FRAMES:
                record = cb.pcap_record(frame)
                out.write(record[:20])
                time.sleep(0.01)
                out.write(record[20:])
                assert go_on.acquire(timeout=60)

    writer = threading.Thread(target=write)
    writer.start()
    with read(fifo) as file:
        counts = []
        for batch in file:
            counts.append(len(batch))
            go_on.release()
    writer.join()
    assert counts == [1] * len(FRAMES)


def test_a_nonblocking_pipe_is_waited_for() -> None:
    out, into = os.pipe()
    os.set_blocking(out, False)
    writer = threading.Timer(0.05, lambda: (os.write(into, cb.pcap(FRAMES)), os.close(into)))
    writer.start()
    reader, batch = FileReader(out), Batch(16)
    assert reader.next_batch(batch)
    assert len(batch) == 4
    assert not reader.next_batch(batch)
    writer.join()
    os.close(out)
