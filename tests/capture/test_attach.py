# SPDX-License-Identifier: BSD-2-Clause
"""Attaching beside others, following an interface, and leaving nothing behind."""

from __future__ import annotations

import json
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace

import pytest
from taps import Tap

from livedma.capture.live import Capture
from livedma.errors import CaptureError
from livedma.lab.hosts import Host, connect
from livedma.wire.encode import encode, ethernet
from traffic import packet_socket, udp_flow, udp_socket
from unprivileged import as_nobody
from xdp import TinyXdp, attached_id, attached_tcx

pytestmark = pytest.mark.slow


def command(host: Host, *args: str) -> list[str]:
    return host.command(sys.executable, "-m", "livedma.cli", "capture", host.iface, *args)


@contextmanager
def running(host: Host, *args: str) -> Iterator[subprocess.Popen[str]]:
    """The command, once it says that it captures."""
    process = subprocess.Popen(
        command(host, *args), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    assert process.stderr is not None
    for line in process.stderr:
        if "Ctrl-C" in line:
            break
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


def send_some(src: Host, dst: Host, first: int = 0, count: int = 10) -> None:
    with udp_socket(src) as sock:
        udp_flow(src, dst).send(sock, count, first=first)


@pytest.mark.parametrize("sig", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT])
def test_nothing_stays_behind(hosts: tuple[Host, Host], sig: signal.Signals) -> None:
    src, dst = hosts
    with running(dst, "--hook", "xdp", "--format", "json") as process:
        assert attached_id(dst)
        assert attached_tcx(dst) == 1
        send_some(src, dst)
        process.send_signal(sig)
        out, err = process.communicate(timeout=60)
    if sig != signal.SIGKILL:
        assert process.returncode == 0
        assert [json.loads(line)["psn"] for line in out.splitlines()] == list(range(10))
        assert "10 RoCE packets, no bad ICRC, 0 lost to a full ring" in err
    deadline = time.monotonic() + 60
    while attached_id(dst) + attached_tcx(dst) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert attached_id(dst) == 0
    assert attached_tcx(dst) == 0


@pytest.mark.parametrize("by_link", [False, True])
def test_a_foreign_program_is_named_and_left_alone(hosts: tuple[Host, Host], by_link: bool) -> None:
    _, dst = hosts
    with TinyXdp(dst, name="stranger", link=by_link):
        foreign = attached_id(dst)
        done = subprocess.run(
            command(dst, "--hook", "xdp"), capture_output=True, text=True, check=False
        )
        assert done.returncode == 1
        assert f"XDP program {foreign} (stranger) is attached" in done.stderr
        assert "--hook tc" in done.stderr
        assert ("--replace" in done.stderr) != by_link
        assert done.stderr.count("\n") == 1
        assert attached_id(dst) == foreign
        if by_link:
            done = subprocess.run(
                command(dst, "--hook", "xdp", "--replace"),
                capture_output=True,
                text=True,
                check=False,
            )
            assert done.returncode == 1
            assert "held by a BPF link" in done.stderr
            assert attached_id(dst) == foreign


def test_tc_captures_beside_a_foreign_program(
    hosts: tuple[Host, Host], tap: Callable[..., Tap]
) -> None:
    src, dst = hosts
    with TinyXdp(dst, name="stranger"):
        rx = tap(dst, "rx", "tc")
        send_some(src, dst)
        assert len(rx.read(10)) == 10


def test_replace_puts_the_other_program_back(hosts: tuple[Host, Host]) -> None:
    src, dst = hosts
    with TinyXdp(dst, name="stranger"):
        foreign = attached_id(dst)
        with dst.inside(), Capture("eth0", hook="xdp", replace=True, count=10) as capture:
            assert attached_id(dst) not in (0, foreign)
            send_some(src, dst)
            assert sum(len(batch) for batch in capture) == 10
        assert attached_id(dst) == foreign
    assert attached_id(dst) == 0


def test_an_interface_that_goes_comes_back_and_is_replaced(hosts: tuple[Host, Host]) -> None:
    src, dst = hosts
    said: list[str] = []
    psns: list[int] = []

    def until(words: str, seconds: float = 60) -> None:
        end_s = time.monotonic() + seconds
        while not any(words in sentence for sentence in said):
            assert time.monotonic() < end_s, f"{words!r} not said: {said}"
            psns.extend(packet.psn for packet in next(batches))

    def read(expected: int) -> None:
        end_s = time.monotonic() + 60
        while len(psns) < expected:
            assert time.monotonic() < end_s
            psns.extend(packet.psn for packet in next(batches))

    with dst.inside(), Capture("eth0", direction="rx", hook="xdp", say=said.append) as capture:
        batches = iter(capture)
        send_some(src, dst, 0)
        read(10)
        dst.set_link(state="down")
        until("eth0 is down")
        dst.set_link(state="up")
        until("eth0 is up")
        dst.remove_link()
        until("eth0 is gone: waiting")
        connect(src, dst)
        until("eth0 is back: capturing again")
        send_some(src, dst, 10)
        read(20)
        dst.remove_link()
        connect(src, dst)
        until("was replaced by another")
        send_some(src, dst, 20)
        read(30)
        said.clear()
        dst.run("ip", "link", "set", "eth0", "down")
        dst.run("ip", "link", "set", "eth0", "name", "other0")
        until("eth0 is gone")
        assert attached_id(replace(dst, iface="other0")) == 0
    assert psns == list(range(30))


def test_kernels_without_tcx(hosts: tuple[Host, Host]) -> None:
    """They take a filter and a qdisc, which go at the end."""
    src, dst = hosts
    with dst.inside(), Capture("eth0", hook="tc", without_links=True, count=20) as capture:
        assert capture.modes == "rx by clsact, tx by clsact"
        assert capture.outlives_kill
        send_some(src, dst)
        send_some(dst, src)
        assert sum(len(batch) for batch in capture) == 20
    shown = dst.run("tc", "qdisc", "show", "dev", "eth0", capture_output=True).stdout
    assert "clsact" not in shown


def test_tc_is_chosen_where_xdp_would_cost_offloads(hosts: tuple[Host, Host]) -> None:
    said: list[str] = []
    with hosts[1].inside(), Capture("eth0", say=said.append) as capture:
        assert capture.modes == "rx by tcx, tx by tcx"
    assert "offloads" in said[0]


def test_without_root_one_sentence_and_the_command(bpf: None) -> None:
    livedma = shutil.which("livedma")
    command = [livedma, "capture", "lo", "--count", "1"]
    done = subprocess.run([*as_nobody(), *command], capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert done.stderr == f"livedma: loading BPF programs needs root: sudo {' '.join(command)}\n"


def test_there_is_no_such_interface(bpf: None) -> None:
    with pytest.raises(CaptureError, match="no such interface"):
        Capture("nosuch0")
    with pytest.raises(CaptureError, match="no interface name"):
        Capture("a/b")


def test_close_is_idempotent_and_use_after_it_is_refused(
    hosts: tuple[Host, Host], tap: Callable[..., Tap]
) -> None:
    session = tap(hosts[1]).session
    session.close()
    session.close()
    with pytest.raises(ValueError, match="closed"):
        session.counters()


def test_count_is_exact(hosts: tuple[Host, Host]) -> None:
    src, dst = hosts
    macs = {"src": src.mac.hex(":"), "dst": dst.mac.hex(":")}
    frame = ethernet(encode("RC_SEND_ONLY", src=src.ipv4, dst=dst.ipv4, payload=b"abcd"), **macs)
    with dst.inside(), Capture("eth0", count=7) as capture:
        with packet_socket(src) as sock:
            for _ in range(100):
                sock.send(frame)
        assert sum(len(batch) for batch in capture) == 7


def test_seconds_end_it(hosts: tuple[Host, Host]) -> None:
    start_s = time.monotonic()
    with hosts[1].inside(), Capture("eth0", seconds=0.5) as capture:
        assert sum(len(batch) for batch in capture) == 0
    assert 0.4 < time.monotonic() - start_s < 5


def test_packets_are_timed_by_the_wall_clock(
    hosts: tuple[Host, Host], tap: Callable[..., Tap]
) -> None:
    src, dst = hosts
    rx = tap(dst)
    before_ns = time.time_ns()
    send_some(src, dst)
    seen = rx.read(10)
    slack_ns = 5_000_000
    assert before_ns - slack_ns < seen[0].time_ns < time.time_ns() + slack_ns
