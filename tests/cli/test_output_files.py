# SPDX-License-Identifier: BSD-2-Clause
"""Files that commands write: never the one that is read, and whole or as they were."""

from __future__ import annotations

import os
import shutil
import stat
import subprocess
import sys
from pathlib import Path

import pytest

import captures
import frames
from livedma.cli import main
from livedma.cli.output import replacing
from livedma.errors import LivedmaError

ACK = frames.roce2(frames.v4(frames.bth(0x11) + b"\x1f\0\0\1"))
COMMAND = [sys.executable, "-m", "livedma", "decode"]


@pytest.fixture
def trace(tmp_path: Path) -> Path:
    path = tmp_path / "trace.pcap"
    shutil.copy(captures.BUNDLED / "rping_rc.pcap", path)
    return path


def spelled(trace: Path, how: str) -> Path:
    """The same file by another name."""
    other = trace.parent / "other"
    if how == "symlink":
        other.symlink_to(trace)
    elif how == "hard link":
        other.hardlink_to(trace)
    elif how == "through a directory":
        (trace.parent / "sub").mkdir()
        return trace.parent / "sub" / ".." / trace.name
    elif how == "linked directory":
        (trace.parent / "link").symlink_to(trace.parent)
        return trace.parent / "link" / trace.name
    return other if other.exists() else trace


NAMES = ["itself", "symlink", "hard link", "through a directory", "linked directory"]


@pytest.mark.parametrize("how", NAMES)
@pytest.mark.parametrize("options", [[], ["--format", "parquet"], ["--summary"]], ids=str)
def test_a_capture_is_not_written_over(
    trace: Path, how: str, options: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    before, name = trace.read_bytes(), spelled(trace, how)
    assert main(["decode", str(trace), "--write", str(name), *options]) == 1
    assert capsys.readouterr().err == (
        f"livedma: {name} is the file that is read: write to another one\n"
    )
    assert trace.read_bytes() == before


def test_standard_streams_count_as_well(trace: Path) -> None:
    before = trace.read_bytes()
    with trace.open("rb") as file:
        done = subprocess.run(
            [*COMMAND, "-", "--write", str(trace)], stdin=file, capture_output=True, check=False
        )
    assert (done.returncode, trace.read_bytes()) == (1, before)
    with trace.open("ab") as file:
        done = subprocess.run(
            [*COMMAND, str(trace)], stdout=file, stderr=subprocess.PIPE, check=False
        )
    assert (done.returncode, trace.read_bytes()) == (1, before)
    assert done.stderr.startswith(b"livedma: standard output is the file that is read")


@pytest.mark.parametrize("form", ["text", "json", "struct", "parquet"])
def test_what_was_there_stays_if_there_is_no_capture(form: str, tmp_path: Path) -> None:
    (tmp_path / "none.pcap").write_text("hello, this is no capture\n" * 10)
    out = tmp_path / "out"
    out.write_text("precious")
    assert main(["decode", str(tmp_path / "none.pcap"), "--format", form, "--write", str(out)]) == 1
    assert out.read_text() == "precious"
    assert {path.name for path in tmp_path.iterdir()} == {"none.pcap", "out"}


def test_whole_packets_of_a_broken_capture_are_written(tmp_path: Path) -> None:
    cut, out = tmp_path / "cut.pcap", tmp_path / "out"
    cut.write_bytes(frames.pcap(ACK, ACK, ACK)[:-1])
    assert main(["decode", str(cut), "--json", "--write", str(out)]) == 1
    assert len(out.read_text().splitlines()) == 2


def test_a_capture_that_cannot_start_leaves_the_file(tmp_path: Path) -> None:
    out = tmp_path / "out"
    out.write_text("precious")
    assert main(["capture", "no-such-iface", "--write", str(out)]) == 1
    assert out.read_text() == "precious"


class TestReplacing:
    def test_only_at_the_end(self, tmp_path: Path) -> None:
        path = tmp_path / "out"
        path.write_text("before")
        path.chmod(0o640)
        with replacing(str(path)) as file:
            file.write(b"after")
            file.flush()
            assert path.read_text() == "before"
        assert path.read_text() == "after"
        assert stat.S_IMODE(path.stat().st_mode) == 0o640
        assert os.listdir(tmp_path) == ["out"]

    def test_not_if_it_failed(self, tmp_path: Path) -> None:
        path = tmp_path / "out"

        def fail() -> None:
            with replacing(str(path)) as file:
                file.write(b"half")
                raise LivedmaError("no more")

        with pytest.raises(LivedmaError):
            fail()
        assert os.listdir(tmp_path) == []

    def test_links_stay_links(self, tmp_path: Path) -> None:
        path, link, hard = tmp_path / "out", tmp_path / "link", tmp_path / "hard"
        path.write_text("before")
        link.symlink_to(path)
        with replacing(str(link)) as file:
            file.write(b"after")
        assert (link.is_symlink(), path.read_text()) == (True, "after")
        hard.hardlink_to(path)
        with replacing(str(path)) as file:
            file.write(b"again")
        assert hard.read_text() == "again"

    def test_a_pipe_is_written_at_once(self, tmp_path: Path) -> None:
        pipe = tmp_path / "pipe"
        os.mkfifo(pipe)
        reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
        with replacing(str(pipe)) as file:
            file.write(b"now")
            file.flush()
            assert os.read(reader, 10) == b"now"
        os.close(reader)
        assert stat.S_ISFIFO(pipe.stat().st_mode)
