# SPDX-License-Identifier: BSD-2-Clause
"""livedma capture --device as people use it: between processes, without privilege."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

import pytest
from tapping import ADDRESSES

import captures
from livedma.capture.files import read
from needs import needs
from unprivileged import NOBODY, as_nobody

TRAFFIC = Path(__file__).with_name("traffic_process.py")

pytestmark = pytest.mark.slow


def as_user(uid: int | None) -> list[str]:
    """What to put before a command so that another user runs it; None: this one."""
    if uid is None:
        return []
    prefix = [*as_nobody(uid=uid), "--no-new-privs"]
    probe = [*prefix, sys.executable, "-c", "import livedma.rdma"]
    found = subprocess.run(probe, cwd="/", check=False, capture_output=True)
    needs(found.returncode == 0, f"user {uid} cannot reach this Python: {found.stderr.decode()}")
    return prefix


class Traffic:
    """Two devices in another process."""

    def __init__(self, uid: int | None) -> None:
        self.process = subprocess.Popen(
            [*as_user(uid), sys.executable, str(TRAFFIC), *ADDRESSES],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        assert self._answer() == "ready\n"

    def _answer(self) -> str:
        assert self.process.stdout is not None
        return self.process.stdout.readline()

    def exchange(self) -> dict[str, int]:
        """Some traffic; the counters of the first device after it."""
        assert self.process.stdin is not None
        self.process.stdin.write("go\n")
        self.process.stdin.flush()
        counters: dict[str, int] = json.loads(self._answer())
        return counters

    def end(self) -> None:
        self.process.communicate(timeout=20)


@contextmanager
def traffic(uid: int | None = None) -> Iterator[Traffic]:
    running = Traffic(uid)
    try:
        yield running
    finally:
        running.process.kill()
        running.process.communicate()


@contextmanager
def capturing(*args: str, uid: int | None = None) -> Iterator[subprocess.Popen[bytes]]:
    """The command, which has said how it goes."""
    argv = [*as_user(uid), sys.executable, "-m", "livedma.cli", "capture", "--device", *args]
    process = subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.PIPE, cwd="/")
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


def heard(stream: IO[bytes] | None, words: str) -> str:
    """Reads lines up to one with these words."""
    assert stream is not None
    said = ""
    for line in stream:
        said += line.decode()
        if words in line.decode():
            return said
    raise AssertionError(f"{words!r} was not said, but: {said}")


def finished(process: subprocess.Popen[bytes]) -> tuple[bytes, str]:
    out, said = process.communicate(timeout=20)
    assert process.returncode == 0, said.decode()
    return out, said.decode()


@pytest.mark.parametrize("uid", [None, NOBODY], ids=["same", "nobody"])
def test_started_before_the_device_it_has_every_packet_and_ends_with_it(
    uid: int | None, tmp_path: Path
) -> None:
    with capturing(ADDRESSES[0], "--format", "pcapng", uid=uid) as process:
        heard(process.stderr, "waiting for it; Ctrl-C")
        with traffic(uid) as running:
            counters = running.exchange()
            running.end()
        out, said = finished(process)
    path = tmp_path / "device.pcapng"
    path.write_bytes(out)
    expected = counters["sent_pkts"] + counters["rcvd_pkts"]
    assert f"the device at {ADDRESSES[0]} has closed" in said
    assert f"{expected:,} RoCE packets, no bad ICRC, 0 lost to a full ring" in said
    with read(path) as file:
        packets = [packet.to_dict() for batch in file for packet in batch]
        assert [interface.name for interface in file.interfaces] == [ADDRESSES[0]]
        assert file.interfaces[0].received == expected
    assert sum(packet["direction"] == "tx" for packet in packets) == counters["sent_pkts"]
    assert sum(packet["direction"] == "rx" for packet in packets) == counters["rcvd_pkts"]


def test_other_tools_find_it_flawless(tmp_path: Path) -> None:
    path = tmp_path / "device.pcapng"
    with traffic() as running:
        args = (ADDRESSES[0], "--format", "pcapng", "--write", str(path))
        with capturing(*args) as process:
            heard(process.stderr, "tapped; Ctrl-C")
            running.exchange()
            process.send_signal(signal.SIGINT)
            finished(process)
    done = subprocess.run(
        [sys.executable, "-m", "livedma.cli", "decode", str(path), "--summary", "--json"],
        capture_output=True,
        text=True,
        check=True,
    )
    summary = json.loads(done.stdout)
    (connection,) = summary["connections"]
    assert connection["verdict"] == "nothing lost"
    rows = captures.tshark(path, "frame.interface_name", "ip.checksum.status", "infiniband.bth.psn")
    assert len(rows) == summary["packets"]
    assert all(row["frame.interface_name"] == [ADDRESSES[0]] for row in rows.values())
    assert all(row["infiniband.bth.psn"] for row in rows.values())


@pytest.mark.parametrize("kind", ["text", "struct", "json"])
def test_formats_and_counts(kind: str) -> None:
    with traffic() as running:
        args = (ADDRESSES[0], "--format", kind, "--count", "20", "--direction", "tx")
        with capturing(*args, "--op", "write") as process:
            heard(process.stderr, "tapped; Ctrl-C")
            running.exchange()
            out, said = finished(process)
    assert "20 RoCE packets, no bad ICRC" in said
    if kind == "json":
        names = [json.loads(line)["opcode_name"] for line in out.splitlines()]
        assert names == ["RC_RDMA_WRITE_FIRST", *["RC_RDMA_WRITE_MIDDLE"] * 19]
    else:
        assert out.count(b"WRITE") >= 20


def test_a_device_that_is_killed_ends_the_capture_with_what_there_was() -> None:
    with traffic() as running, capturing(ADDRESSES[0], "--format", "json") as process:
        heard(process.stderr, "tapped; Ctrl-C")
        counters = running.exchange()
        running.process.kill()
        out, said = finished(process)
    assert "has closed" in said
    assert len(out.splitlines()) == counters["sent_pkts"] + counters["rcvd_pkts"]


def test_losses_are_said() -> None:
    args = (ADDRESSES[0], "--ring", "4KiB", "--format", "json")
    with traffic() as running, capturing(*args) as process:
        heard(process.stderr, "tapped; Ctrl-C")
        process.send_signal(signal.SIGSTOP)
        counters = running.exchange()
        process.send_signal(signal.SIGCONT)
        process.send_signal(signal.SIGINT)
        out, said = finished(process)
    packets = len(out.splitlines())
    lost = counters["sent_pkts"] + counters["rcvd_pkts"] - packets
    assert lost > 0
    assert f"{packets:,} RoCE packets, no bad ICRC, {lost:,} lost to a full ring" in said


def test_a_killed_reader_leaves_the_device_as_it_was() -> None:
    with traffic() as running:
        for _ in range(6):  # more than there is room for at once
            with capturing(ADDRESSES[0]) as process:
                heard(process.stderr, "tapped; Ctrl-C")
                running.exchange()
                process.kill()
                process.wait()


def test_waiting_has_an_end() -> None:
    with capturing(ADDRESSES[0], "--seconds", "0.3") as process:
        _, said = finished(process)
    assert "waiting for it" in said
    assert "0 RoCE packets" in said


@pytest.mark.parametrize(("owner", "reader"), [(None, NOBODY), (NOBODY - 1, NOBODY)])
def test_packets_are_for_the_devices_own_user(owner: int | None, reader: int) -> None:
    with traffic(owner) as running, capturing(ADDRESSES[0], uid=reader) as process:
        _, said = process.communicate(timeout=20)
        assert process.returncode == 1
        assert "it is another user's" in said.decode()
        running.exchange()


def test_root_may_see_everybodys() -> None:
    with traffic(NOBODY) as running, capturing(ADDRESSES[0], "--format", "json") as process:
        heard(process.stderr, "tapped; Ctrl-C")
        counters = running.exchange()
        running.end()
        out, _ = finished(process)
    assert len(out.splitlines()) == counters["sent_pkts"] + counters["rcvd_pkts"]


@pytest.mark.parametrize(
    ("args", "code", "words"),
    [
        ([], 2, "either an interface or --device"),
        (["lo", "--device", "127.0.0.1"], 2, "either an interface or --device"),
        (["--device", "127.0.0.1", "--hook", "tc"], 2, "are for interfaces"),
        (["--device", "127.0.0.1", "--op", "sned"], 2, "is no operation"),
        (["--device", "nowhere"], 1, "is no address"),
        (["--device", "fe80::1"], 1, "write fe80::1%IFACE"),
        (["--device", "fe80::1%nowhere"], 1, "there is no interface nowhere"),
    ],
)
def test_wrong_use(args: list[str], code: int, words: str) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "livedma.cli", "capture", *args],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == code
    assert words in done.stderr
