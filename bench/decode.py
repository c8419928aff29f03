# SPDX-License-Identifier: BSD-2-Clause
"""Decoding files: to columns and to JSON, against tshark and against a minimal C loop; memory."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

from bench.report import Line, per_second, rates

HERE = Path(__file__).parent
TSHARK_FIELDS = (
    "frame.time_epoch", "frame.len", "ip.src", "ip.dst", "udp.srcport", "infiniband.bth.opcode",
    "infiniband.bth.se", "infiniband.bth.m", "infiniband.bth.padcnt", "infiniband.bth.p_key",
    "infiniband.bth.destqp", "infiniband.bth.a", "infiniband.bth.psn", "infiniband.reth.va",
    "infiniband.reth.r_key", "infiniband.reth.dmalen", "infiniband.aeth.syndrome",
    "infiniband.aeth.msn", "infiniband.deth.q_key", "infiniband.deth.srcqp",
)  # fmt: skip


def _run(*argv: str) -> float:
    """Seconds that a command takes; its output goes nowhere."""
    start_s = time.perf_counter()
    subprocess.run(argv, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    return time.perf_counter() - start_s


def _make(directory: Path, packets: int, captures: list[str]) -> str:
    path = directory / f"{packets}.pcap"
    command = [sys.executable, str(HERE / "make_capture.py"), str(path), str(packets), *captures]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    return str(path)


def _limit(directory: Path) -> str:
    binary = directory / "decode_limit"
    source = str(HERE / "decode_limit.c")
    subprocess.run(["gcc", "-O3", "-o", str(binary), source, "-lisal"], check=True)
    return str(binary)


def _limit_rate(binary: str, path: str) -> float:
    text = subprocess.run([binary, path, "1"], check=True, capture_output=True, text=True).stdout
    found = re.search(r"(\d+) packets/s", text)
    assert found, text
    return float(found[1])


def _columns_rate(path: str) -> float:
    from livedma.capture.files import read
    from livedma.wire.columns import columns

    start_s = time.perf_counter()
    with read(path) as file:
        rows = sum(batch.num_rows for batch in columns(file))
    return rows / (time.perf_counter() - start_s)


def _tshark_rate(path: str, packets: int, empty: str, *options: str) -> float:
    """Packets a second, without what it takes to start; so are all whole commands measured."""
    start_s = _run("tshark", "-r", empty, *options)
    return packets / (_run("tshark", "-r", path, *options) - start_s)


def _json_rate(path: str, packets: int, empty: str) -> float:
    start_s = _run("livedma", "decode", empty, "--format", "json")
    return packets / (_run("livedma", "decode", path, "--format", "json") - start_s)


def _peak_mb(*argv: str) -> float:
    """Largest resident memory of a command, by a child that waits for no other."""
    code = (
        "import resource, subprocess, sys\n"
        "null = subprocess.DEVNULL\n"
        "subprocess.run(sys.argv[1:], check=True, stdout=null, stderr=null)\n"
        "print(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss)"
    )
    run = subprocess.run(
        [sys.executable, "-c", code, *argv], check=True, capture_output=True, text=True
    )
    return int(run.stdout) / 1024


def speed(directory: Path, captures: list[str]) -> Iterator[Line]:
    few, many = 200_000, 2_000_000
    small, large = _make(directory, few, captures), _make(directory, many, captures)
    empty = _make(directory, 1, captures)
    limit = _limit(directory)
    fields = [word for field in TSHARK_FIELDS for word in ("-e", field)]
    found = rates(
        {
            "columns": lambda: _columns_rate(large),
            "limit": lambda: _limit_rate(limit, large),
            "json": lambda: _json_rate(small, few, empty),
            "tshark": lambda: _tshark_rate(small, few, empty),
            "fields": lambda: _tshark_rate(small, few, empty, "-T", "fields", *fields),
        }
    )
    os.unlink(large)

    def line(what: str, ours: str, other: str, name: str, bar: float) -> Line:
        against = f"{name} {per_second(found[other])}"
        return Line(what, per_second(found[ours]), against, found[ours] / found[other], bar)

    yield line("decode to columns, ICRC verified", "columns", "tshark", "tshark -r", 40)
    yield line("decode to columns, ICRC verified", "columns", "limit", "C loop over mmap", 0.5)
    yield line("decode to JSON", "json", "fields", "tshark -T fields", 10)


def memory(directory: Path, captures: list[str], packets: int = 5_000_000) -> Iterator[Line]:
    path = _make(directory, packets, captures)
    out = str(directory / "out.parquet")
    for name, options in (
        ("parquet", ("--format", "parquet", "--write", out)),
        ("json", ("--format", "json")),
        ("summary", ("--summary",)),
    ):
        peak = _peak_mb("livedma", "decode", path, *options)
        what = f"memory, {packets:,} packets to {name}"
        yield Line(what, f"{peak:.0f} MB", "300 MB", peak / 300, 1, is_cost=True)
    os.unlink(path)
