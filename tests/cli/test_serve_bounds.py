# SPDX-License-Identifier: BSD-2-Clause
"""Values with which no client could be served are refused before a server starts."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from livedma.cli import main
from livedma.cli.serve.bounds import WrongUse, written
from livedma.cli.serve.building import service_options
from livedma.cli.serve.settings import Settings
from livedma.rdma import Device
from livedma.rpc.rdma_memory import ConnectionMemory

KIB, MIB = 1 << 10, 1 << 20


def told(*words: str) -> Any:
    return service_options(Settings.of(["/srv", *words]).values)


@pytest.mark.parametrize(
    ("option", "values", "range_said"),
    [
        ("--window", ["64", "2TiB", "999999999GiB", "0", "many"], "64KiB to 1TiB"),
        ("--buffer", ["1", "3GiB"], "4KiB to 64MiB"),
        ("--credits", ["0", "1025", "999999999", "-1"], "1 to 1024"),
        ("--budget", ["1"], "64KiB to 1024TiB"),
        ("--pin-limit", ["1"], "64KiB to 1024TiB"),
        ("--numa", ["1024", "-1", "near"], "0 to 1023"),
        ("--threads", ["0", "65", "100000"], "1 to 64"),
        ("--slots", ["0", "1025"], "1 to 1024"),
        ("--lease", ["0", "4294967296"], "1 to 86400 seconds"),
        ("--grace", ["0", "4294967296"], "1 to 86400 seconds"),
        ("--store-delay", ["3601s", "1h"], "0s to 3600s"),
        ("--store-width", ["0", "4294967296"], "1 to 65535"),
        ("--ahead", ["-1s", "11s", "off", "x"], "0s to 10s"),
        ("--objective-p99", ["0s", "99999999999999999999s"], "1us to 3600s"),
        ("--metrics-sessions", ["-1", "16385"], "0 to 16384"),
        ("--tcp", ["0", "65536"], "1 to 65535"),
        ("--mapped", ["0", "2", "x"], "more than 0 and up to 1"),
        ("--anonymous", ["4294967295:1", "1"], "0 to 4294967294"),
    ],
)
def test_a_number_out_of_range_is_told_its_range(
    option: str, values: list[str], range_said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    for value in values:
        with pytest.raises(SystemExit) as ended:
            main(["serve", "/srv", f"{option}={value}"])
        assert ended.value.code == 2
        said = capsys.readouterr().err
        assert option in said and range_said in said


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--window", "512KiB"], "the window has to be 704KiB at least"),
        (["--buffer", "64MiB"], "--window 64MiB is too small"),
        (["--window", "1MiB"], "--mapped 1/4 of --window 1MiB is 256KiB, which is too small"),
        (["--mapped", "1/1000"], "640KiB have to be mapped at least"),
        (["--credits", "1024", "--window", "16MiB"], "--credits 1024 of --inline 4KiB take 8MiB"),
        (["--budget", "8MiB"], "begins with 16MiB (--mapped 1/4 of --window 64MiB)"),
        (["--tcp", "off", "--rdma", "off"], "leave nothing to serve"),
        (["--lease", "60", "--grace", "30"], "--grace 30 is shorter than --lease 60"),
    ],
)
def test_numbers_that_do_not_go_together(words: list[str], said: str) -> None:
    with pytest.raises(WrongUse) as error:
        told(*words)
    assert said in str(error.value)


def test_memory_does_not_matter_without_rdma() -> None:
    told("--rdma", "off", "--window", "64KiB")


@contextmanager
def begun(*words: str) -> Iterator[ConnectionMemory]:
    """The memory of a connection as a server with these words would begin it."""
    rdma = told(*words).rdma
    with (
        Device("127.0.0.1") as device,
        device.protection_domain() as pd,
        ConnectionMemory(
            pd,
            window_bytes=rdma.window_bytes,
            mapped_bytes=rdma.terms.mapped_bytes,
            inline_bytes=rdma.inline_bytes,
            buffer_bytes=rdma.buffer_bytes,
            credits_begin=rdma.credits,
            reserve=rdma.reserve,
            kind=rdma.kind,
        ) as memory,
    ):
        assert memory.first_bytes <= rdma.first_bytes
        yield memory


@pytest.mark.parametrize("mapped", ["1", "0.9"])
@pytest.mark.parametrize(
    "words",
    [
        [],
        ["--credits", "4", "--buffer", "4KiB"],
        ["--credits", "8", "--buffer", "7MiB"],
        ["--credits", "3", "--buffer", "5000"],
        ["--credits", "13", "--inline", "5KiB", "--buffer", "4097"],
        ["--credits", "1", "--inline", "7KiB", "--buffer", "65537"],
        ["--credits", "100", "--inline", "11KiB", "--buffer", "12345"],
        ["--pages", "2MiB"],
        ["--pages", "2MiB", "--credits", "600", "--inline", "5KiB", "--buffer", "3MiB"],
    ],
    ids=" ".join,
)
def test_the_least_that_is_accepted_can_be_had(words: list[str], mapped: str) -> None:
    """Bounds are those of what a connection really takes, in whole pages."""
    words = [*words, "--mapped", mapped]
    refused, accepted = 64 * KIB - 1, 64 * MIB
    while accepted - refused > 1:
        window = (accepted + refused) // 2
        try:
            told(*words, "--window", str(window))
        except (WrongUse, SystemExit):
            refused = window
        else:
            accepted = window
    for window in (accepted, accepted + 4097, accepted + 65537, 3 * accepted + 1):
        with begun(*words, "--window", str(window)):
            pass


def test_a_node_that_is_not_there() -> None:
    assert told().rdma.kind.node is None and told("--numa", "0").rdma.kind.node == 0
    with pytest.raises(WrongUse, match="--numa 1023: there is no such node; `ls /sys/"):
        told("--numa", "1023")


def test_a_limit_that_one_connection_would_exceed() -> None:
    assert told("--pin-limit", "16MiB").pin_limit == 16 * MIB
    with pytest.raises(WrongUse, match="--pin-limit 8MiB is too small for one connection"):
        told("--pin-limit", "8MiB")


@given(st.integers(1, 1 << 50))
def test_sizes_are_written_as_they_are_read(size: int) -> None:
    from livedma.cli.units import size as read

    assert read(written(size).removesuffix(" bytes")) == size


def test_a_directory_behind_web_is_what_is_exported(tmp_path: Path) -> None:
    values = Settings.of(["--web", str(tmp_path)]).values
    assert values.directory == tmp_path and str(values.web) == "127.0.0.1:20080"
    values = Settings.of(["--web", "[::1]:80", str(tmp_path)]).values
    assert values.directory == tmp_path and str(values.web) == "[::1]:80"
    with pytest.raises(WrongUse, match=r"--web: .* is no address: write 127\.0\.0\.1:20080"):
        Settings.of([str(tmp_path), "--web", str(tmp_path)])


def test_a_path_behind_web_that_is_no_directory(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit):
        main(["serve", "--web", str(tmp_path / "missing")])
    assert "DIR goes before --web, or write --web=ADDR:PORT DIR" in capsys.readouterr().err


def test_help_names_ranges() -> None:
    from livedma.cli.serve.options import add_options

    parser = argparse.ArgumentParser()
    add_options(parser)
    said = " ".join(parser.format_help().split())
    for found in ("64KiB to 1TiB", "4KiB to 64MiB", "1 to 64 (8)", "1 to 86400 seconds"):
        assert found in said


def test_an_empty_word_is_not_the_current_directory(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["serve", ""])
    assert "DIR is empty: write . for the current directory" in capsys.readouterr().err


def test_an_address_that_is_named_twice_is_one() -> None:
    assert told("--listen", "::1", "--listen", "127.0.0.1", "--listen", "::1").addresses == [
        "::1",
        "127.0.0.1",
    ]
