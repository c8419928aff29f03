# SPDX-License-Identifier: BSD-2-Clause
"""livedma load against a server of our own, over RDMA and TCP; and how it is used wrongly."""

from __future__ import annotations

import json
import os
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from livedma.cli import main
from livedma.nfs.load import Pattern, Plan, PlanError, Work
from livedma.nfs.server.config import Config
from livedma.nfs.server.service import NfsService, ServiceOptions
from livedma.rpc.names import TransportKind
from needs import needs

pytestmark = pytest.mark.slow

_NET = f"127.{1 + os.getpid() // 250 % 250}.{1 + os.getpid() % 250}"
SERVER = f"{_NET}.40"
PORTS = {"rdma": 20049, "tcp": 20490}
SHORT = ("--seconds", "0.3")


@pytest.fixture(scope="module")
def export(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """What a server exports."""
    needs(os.geteuid() == 0, "a server that acts for several users needs root")
    directory = tmp_path_factory.mktemp("export")
    service_options = ServiceOptions(
        addresses=[SERVER],
        tcp_port=PORTS["tcp"],
        rdma_port=PORTS["rdma"],
        state=tmp_path_factory.mktemp("state"),
        config=Config(squash="none"),
    )
    with NfsService(directory, service_options):
        yield directory


def load(*options: str, proto: str = "rdma") -> int:
    return main(["load", SERVER, "--proto", proto, "--port", str(PORTS[proto]), *SHORT, *options])


def total(text: str) -> Any:
    return json.loads(text.splitlines()[-1])


@pytest.mark.parametrize("proto", PORTS)
@pytest.mark.parametrize("rw", ["read", "write", "mix"])
def test_many_sessions_and_every_byte_right(
    export: Path, capsys: pytest.CaptureFixture[str], proto: str, rw: str
) -> None:
    sizes = ("--sessions", "6", "--connections", "2", "--size", "8KiB", "--rw", rw)
    assert load(*sizes, "--json", proto=proto) == 0
    found = total(capsys.readouterr().out)
    assert (found["errors"], found["wrong_data"], found["unanswered"]) == (0, 0, 0)
    assert (found["reads"] > 0, found["writes"] > 0) == (rw != "write", rw != "read")
    assert found["bytes"] == 8192 * found["operations"]
    assert len(found["sessions"]) == 6
    assert sum(one["operations"] for one in found["sessions"]) == found["operations"]
    assert len({one["id"] for one in found["sessions"]}) == 6
    assert all(len(bytes.fromhex(one["id"])) == 16 for one in found["sessions"])
    assert sum(one["bytes"] for one in found["sessions"]) == found["bytes"]
    for one in found["sessions"]:
        assert one["bytes"] == one["bytes_read"] + one["bytes_written"]
        assert one["bytes_read"] == 8192 * one["reads"]
        assert one["bytes_filled"] == 8192 * one["filled"] == (0 if rw == "write" else 1 << 20)
    latency = found["latency_us"]
    assert 0 < latency["p50"] <= latency["p90"] <= latency["p99"] <= latency["p99.9"]
    assert latency["p99.9"] <= latency["max"]
    assert not list(export.iterdir())  # it leaves nothing behind


def test_a_table_for_people(export: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert load("--sessions", "2", "--size", "4KiB") == 0
    heading, columns, *rows = capsys.readouterr().out.splitlines()
    assert heading.startswith(f"{SERVER}: 2 sessions x 4 on 1 connection (rdma); read 4 KiB")
    assert " ".join(columns.split()) == "time sessions ops/s MB/s p50 p99 max errors waited"
    assert {row.split()[0] for row in rows[-6:]} == {
        "operations",
        "latency",
        "sessions",
        "credits",
        "client",
        "errors",
    }
    assert rows[-1].split() == ["errors", "none"]


def test_a_ramp_at_a_rate(export: Path, capsys: pytest.CaptureFixture[str]) -> None:
    options = ("--sessions", "3", "--ramp", "100/s", "--rate", "300", "--seconds", "1")
    assert load(*options, "--json", "--size", "4KiB") == 0
    lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert lines[-1]["plan"]["ramp"] == 100
    assert lines[-1]["operations"] > 0
    assert all("at_s" in line for line in lines[:-1])


def test_slots_that_wait_for_credits(export: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The server grants 64 calls; there are 160 slots."""
    assert load("--sessions", "40", "--size", "4KiB", "--json") == 0
    found = total(capsys.readouterr().out)
    assert found["waited_for_credits"] > 0
    assert found["waited_for_credits_us"] > 0


def test_a_directory_that_cannot_be_had(export: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert load("--dir", "/nowhere") == 1
    said = capsys.readouterr().err
    assert "NOENT" in said
    assert "--dir" in said


@pytest.mark.parametrize("proto", PORTS)
def test_nobody_there(export: Path, capsys: pytest.CaptureFixture[str], proto: str) -> None:
    with socket.socket() as plug:  # a port that is nobody's
        plug.bind((SERVER, 0))
        port = plug.getsockname()[1]
        assert main(["load", SERVER, "--proto", proto, "--port", str(port)]) == 1
    said = capsys.readouterr().err
    assert said.startswith("livedma: ")
    assert len(said.splitlines()) == 1
    assert "see if an NFS server listens" in said


@pytest.mark.parametrize(
    "wrong",
    [
        ["--size", "1001"],
        ["--sessions", "0"],
        ["--sessions", "2", "--connections", "3"],
        ["--file-size", "4KiB"],
        ["--ramp", "0/s"],
        ["--rate", "many"],
        ["--rw", "append"],
        ["--proto", "tcp", "--source", "127.0.0.1"],
    ],
)
def test_wrong_use(wrong: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["load", SERVER, *wrong])
    assert ended.value.code == 2
    assert "livedma load: " in capsys.readouterr().err


def test_help_has_an_example(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["load", "--help"])
    assert ended.value.code == 0
    assert "livedma load 10.0.0.1 --sessions 16" in capsys.readouterr().out


def test_a_plan_knows_what_it_needs() -> None:
    plan = Plan(sessions=64, depth=4, connections=2, rate=3200)
    assert plan.calls == 136
    assert plan.interval_ns == 20_000_000
    assert Plan(sessions=10_000).calls == 1024
    assert Plan(size=4096, depth=300).file_bytes == 1200 * 4096
    with pytest.raises(PlanError, match="--file-size"):
        Plan(file_bytes=65536)


def test_a_plan_takes_names_as_people_type_them() -> None:
    typed = Plan(rw="mix", pattern="sequential", proto="tcp")  # type: ignore[arg-type]
    assert typed == Plan(rw=Work.MIX, pattern=Pattern.SEQUENTIAL, proto=TransportKind.TCP)
    assert isinstance(typed.rw, Work) and isinstance(typed.proto, TransportKind)
    assert json.loads(json.dumps(typed.as_json()))["rw"] == "mix"
    with pytest.raises(PlanError, match="--rw erase: use read, write, mix"):
        Plan(rw="erase")  # type: ignore[arg-type]


def test_a_seed_makes_the_same_places_and_data_each_time() -> None:
    seeds = [Plan(seed=7).session_seed(number) for number in range(64)]
    assert seeds == [Plan(seed=7).session_seed(number) for number in range(64)]
    assert len({*seeds, *(Plan(seed=8).session_seed(number) for number in range(64))}) == 128
    assert Plan().session_seed(0) != Plan().session_seed(0)


def test_a_tide_rises_and_falls() -> None:
    plan = Plan(sessions=64, tide=60.0)
    heights = [plan.active(second) for second in (0, 15, 30, 45, 60, 90)]
    assert heights == [8, 36, 64, 36, 8, 64]
    assert Plan(sessions=2, tide=1.0).active(0) == 1
    assert Plan(sessions=2).active(100) == 2
    with pytest.raises(PlanError, match="--tide"):
        Plan(ramp=1.0, tide=1.0)
    with pytest.raises(PlanError, match="--tide"):
        Plan(tide=0.0)


def test_sessions_come_and_go_with_the_tide(
    export: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    options = ("--sessions", "8", "--tide", "2s", "--seconds", "2.9", "--size", "4KiB", "--json")
    assert load(*options) == 0
    lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    done = [one["operations"] for one in lines[-1]["sessions"]]
    assert min(done) > 0
    assert max(done[6:]) < done[0]
