# SPDX-License-Identifier: BSD-2-Clause
"""What doctor prints for people."""

from __future__ import annotations

import os
import pty
import subprocess

import pytest

from livedma.cli.doctor_page import page, verdict
from livedma.doctor import GROUPS, Finding, Report

FREE = Finding(
    "address",
    "fine",
    "10.0.0.1 (eth0)",
    facts={"address": "10.0.0.1", "is_free": True, "is_rdma_port_free": True},
    group="network",
)
TAKEN = Finding(
    "address",
    "costs",
    "10.0.0.2 (eth0): UDP port 4791 is in use",
    "no device here meanwhile",
    "",
    {"address": "10.0.0.2", "is_free": False, "is_rdma_port_free": None},
    group="network",
    look="ps -fp 7",
)


COSTLY = Finding("x", "costs", "slow", "time", "sysctl -w x=1", group="limits")


def test_lines_fit_80_columns_but_for_commands() -> None:
    text = subprocess.run(["livedma", "doctor"], capture_output=True, text=True).stdout
    lines = text.splitlines()
    assert "\x1b" not in text
    for line in lines:
        assert len(line) <= 80 or line.strip().startswith(("fix ", "keep ", "look ")), line
    titles = [line for line in lines if line in GROUPS]
    assert titles == list(GROUPS)
    assert lines[-1].startswith("livedma serve can")
    states = {line.split()[0] for line in lines if line.startswith("  ") and line[2] != " "}
    assert states <= {"fine", "costs", "stops", "unknown"}


def test_commands_stay_whole() -> None:
    long = "sysctl -w " + " ".join(f"net.core.setting{i}=1" for i in range(10))
    costs = Finding("x", "costs", "word " * 30, "cost " * 30, long, keep=long, group="limits")
    lines = page(Report([costs, FREE])).splitlines()
    assert [line.split(maxsplit=1)[1] for line in lines if "setting9" in line] == [long, long]


def test_what_is_fine_can_be_left_out() -> None:
    text = page(Report([FREE, TAKEN]), costs_only=True)
    assert "10.0.0.2" in text and "10.0.0.1 (eth0)" not in text
    assert "1 fine, 1 cost something." in text


@pytest.mark.parametrize(
    ("findings", "says"),
    [
        ([FREE], "livedma serve can run here: 10.0.0.1."),
        ([FREE, TAKEN], "livedma serve can run here, not at every address: --listen 10.0.0.1"),
        (
            [TAKEN],
            "livedma serve cannot run here: its ports are taken at each address.",
        ),
        (
            [Finding("address", "stops", "none")],
            "livedma serve cannot run here: there is no address.",
        ),
    ],
)
def test_verdicts(findings: list[Finding], says: str) -> None:
    report = Report(findings)
    assert verdict(report) == says
    assert page(report).splitlines()[-1] == says
    assert report.can_run == ("can run" in says)


@pytest.mark.parametrize(
    ("findings", "says"),
    [
        ([FREE], "Next: livedma serve DIR, or livedma demo."),
        (
            [FREE, COSTLY],
            "Next: each 'fix' is a command to copy; 'keep' makes it last; 'look' only shows.",
        ),
        ([TAKEN], "Next: ps -fp 7, and look again."),
    ],
)
def test_what_to_do_next(findings: list[Finding], says: str) -> None:
    assert page(Report(findings)).splitlines()[-2] == says


def on_a_terminal(**environment: str) -> str:
    """What a terminal of 80 columns gets."""
    ours, theirs = pty.openpty()
    argv = ["livedma", "doctor"]
    usual = {**os.environ, "COLUMNS": "80", "TERM": "xterm"}
    with subprocess.Popen(argv, stdout=theirs, env={**usual, **environment}):
        os.close(theirs)
        said = b""
        while True:
            try:
                said += os.read(ours, 65536)
            except OSError:  # the other end is closed
                break
    os.close(ours)
    return said.decode()


@pytest.mark.slow
def test_colours_are_for_terminals_that_want_them() -> None:
    assert "\x1b[1mkernel\x1b[0m" in on_a_terminal(NO_COLOR="")
    assert "\x1b" not in on_a_terminal(NO_COLOR="1")
