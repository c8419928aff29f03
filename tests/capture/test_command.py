# SPDX-License-Identifier: BSD-2-Clause
"""livedma capture as people use it."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from livedma.capture.files import read
from livedma.lab.hosts import Host
from traffic import receiver_socket, udp_flow, udp_socket

pytestmark = pytest.mark.slow


def capture(
    hosts: tuple[Host, Host], *args: str, count: int = 20, is_stopped: bool = False
) -> subprocess.CompletedProcess[bytes]:
    """Runs the command on the second host while the first sends to it, until all has arrived.

    is_stopped: the command gets no time to read while packets arrive.
    """
    src, dst = hosts
    argv = dst.command(sys.executable, "-m", "livedma.cli", "capture", "eth0", *args)
    with (
        subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process,
        udp_socket(src) as sender,
        receiver_socket(dst) as receiver,
    ):
        assert process.stderr is not None
        said = b""
        for line in process.stderr:
            said += line
            if b"Ctrl-C" in line:
                break
        if is_stopped:
            process.send_signal(signal.SIGSTOP)
        flow = udp_flow(src, dst)
        flow.send(sender, count)
        # What has come to a socket has passed the hooks.
        assert flow.receive(receiver, count, idle_ms=10_000)["packets"] == count
        process.send_signal(signal.SIGCONT)
        if "--count" not in args:
            process.send_signal(signal.SIGINT)
        out, rest = process.communicate(timeout=30)
    return subprocess.CompletedProcess(argv, process.returncode, out, said + rest)


@pytest.mark.parametrize("kind", ["text", "struct", "json"])
def test_formats_for_people_and_programs(hosts: tuple[Host, Host], kind: str) -> None:
    done = capture(hosts, "--format", kind, "--count", "20")
    assert done.returncode == 0
    assert b"20 RoCE packets, no bad ICRC, 0 lost to a full ring" in done.stderr
    if kind == "json":
        assert [json.loads(line)["psn"] for line in done.stdout.splitlines()] == list(range(20))
    else:
        assert done.stdout.count(b"10.80.0.1") >= 20 or b"bth" in done.stdout.lower()


def test_pcapng_to_a_file(hosts: tuple[Host, Host], tmp_path: Path) -> None:
    path = tmp_path / "t.pcapng"
    done = capture(hosts, "--format", "pcapng", "--write", str(path))
    assert (done.returncode, done.stdout) == (0, b"")
    with read(path) as file:
        assert [packet.psn for batch in file for packet in batch] == list(range(20))
        assert file.drops == 0
        assert [interface.name for interface in file.interfaces] == ["eth0"]
        assert file.interfaces[0].received == 20


def test_parquet_to_a_file(hosts: tuple[Host, Host], tmp_path: Path) -> None:
    parquet = pytest.importorskip("pyarrow.parquet")
    path = tmp_path / "t.parquet"
    done = capture(hosts, "--format", "parquet", "--write", str(path))
    assert done.returncode == 0
    assert parquet.read_table(path)["psn"].to_pylist() == list(range(20))


def test_losses_are_said_and_written(hosts: tuple[Host, Host], tmp_path: Path) -> None:
    path = tmp_path / "t.pcapng"
    args = ("--ring", "4KiB", "--direction", "rx", "--format", "pcapng", "--write", str(path))
    done = capture(hosts, *args, count=30_000, is_stopped=True)
    assert done.returncode == 0
    last = done.stderr.decode().splitlines()[-1]
    packets, lost = (int(part.split()[0].replace(",", "")) for part in last.split(", ")[::2])
    assert lost > 0
    assert packets + lost == 30_000
    with read(path) as file:
        assert sum(len(batch) for batch in file) == packets
        assert file.drops == lost


@pytest.mark.parametrize(
    ("args", "words"),
    [
        (["--op", "sned"], "is no operation"),
        (["--host", "nowhere"], "is no address"),
        (["--snaplen", "10"], "--snaplen takes"),
        (["--sample", "0"], "is no ratio"),
        (["--ring", "3MiB"], "power of two"),
        (["--count", "0"], "no positive number"),
        (["--seconds", "-1"], "no positive number"),
    ],
)
def test_wrong_use(args: list[str], words: str) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "livedma.cli", "capture", "lo", *args],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 2
    assert words in done.stderr


def test_a_reader_that_has_had_enough_ends_it(hosts: tuple[Host, Host]) -> None:
    src, dst = hosts
    argv = dst.command(sys.executable, "-m", "livedma.cli", "capture", "eth0", "--format", "json")
    process = subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert process.stdout is not None
    assert process.stderr is not None
    while b"Ctrl-C" not in process.stderr.readline():
        pass
    flow = udp_flow(src, dst)
    with udp_socket(src) as sock:
        flow.send(sock, 5)
        assert process.stdout.readline()
        process.stdout.close()
        end_s = time.monotonic() + 60
        while process.poll() is None and time.monotonic() < end_s:
            flow.send(sock, 5)
            time.sleep(0.05)
    process.kill()
    process.stderr.close()
    assert process.wait() == 0
