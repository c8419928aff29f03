# SPDX-License-Identifier: BSD-2-Clause
"""`livedma decode` with the filters of `livedma capture`: the same words, the same packets."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

import captures
import frames
from livedma.capture.files import read
from livedma.capture.filters import Filters
from livedma.cli import main

RPING = captures.BUNDLED / "rping_rc.pcap"
RPING_V6 = captures.BUNDLED / "rping_v6.pcap"


def decoded(capsys: pytest.CaptureFixture[str], *words: object) -> list[dict[str, Any]]:
    assert main(["decode", "--json", *map(str, words)]) == 0
    return [json.loads(line) for line in capsys.readouterr().out.splitlines()]


def test_operations(capsys: pytest.CaptureFixture[str]) -> None:
    everything = decoded(capsys, RPING)
    found = decoded(capsys, RPING, "--op", "write,ACK")
    wanted = [
        one
        for one in everything
        if "RDMA_WRITE" in one["opcode_name"] or one["opcode_name"].endswith("_ACKNOWLEDGE")
    ]
    assert 0 < len(found) < len(everything)
    assert [one["psn"] for one in found] == [one["psn"] for one in wanted]
    assert [one["n"] for one in found] == list(range(1, len(found) + 1))


@pytest.mark.parametrize("capture", [RPING, RPING_V6], ids=["v4", "v6"])
def test_addresses_and_queue_pairs(capture: Path, capsys: pytest.CaptureFixture[str]) -> None:
    everything = decoded(capsys, capture)
    here = everything[0]["src"]
    there = everything[0]["dst"]
    sent = [one["psn"] for one in everything if one["src"] == here]
    assert [one["psn"] for one in decoded(capsys, capture, "--src", here)] == sent
    assert [one["psn"] for one in decoded(capsys, capture, "--dst", there)] == sent
    assert len(decoded(capsys, capture, "--host", here)) == len(everything)
    assert decoded(capsys, capture, "--src", here, "--dst", here) == []
    assert decoded(capsys, capture, "--host", "192.0.2.1", "--host", "2001:db8::/32") == []
    qp = next(one["dest_qp"] for one in everything if one["dest_qp"] > 1)
    to_it = [one["psn"] for one in everything if one["dest_qp"] == qp]
    assert [one["psn"] for one in decoded(capsys, capture, "--qp", hex(qp))] == to_it


def test_it_says_how_many_were_left_out(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["decode", str(RPING), "--op", "CNP"]) == 0
    said = capsys.readouterr()
    assert (said.out, said.err) == ("", "0 RoCE packets, 125 others filtered out\n")


def test_all_formats_and_the_summary(tmp_path: Path, capfdbinary: Any) -> None:
    words = [str(RPING), "--op", "SEND"]
    names = [batch[i].opcode_name or "" for batch in read(RPING) for i in range(len(batch))]
    count = sum("SEND" in name for name in names)
    assert count

    def printed(*more: str) -> bytes:
        assert main(["decode", *words, *more]) == 0
        return bytes(capfdbinary.readouterr().out)

    assert len(printed().splitlines()) == count
    assert len(printed("--json").splitlines()) == count
    assert printed("--format", "struct").count(b"packet length: ") == count
    assert json.loads(printed("--summary", "--json"))["packets"] == count
    path = tmp_path / "out.parquet"
    printed("--format", "parquet", "--write", str(path))
    assert pq.read_table(path).num_rows == count


def test_a_packet_without_a_bth_is_of_no_operation(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    ack = frames.roce2(frames.v4(frames.bth(0x11) + b"\x1f\0\0\1"))
    path = tmp_path / "cut.pcap"
    path.write_bytes(frames.pcap(ack, ack[:46], lengths=(len(ack), len(ack))))
    assert len(decoded(capsys, path)) == 2
    assert len(decoded(capsys, path, "--op", "ACK")) == 1
    assert len(decoded(capsys, path, "--op", "UNKNOWN")) == 1


@pytest.mark.parametrize("wrong", [["--qp", "x"], ["--host", "here"], ["--op", "TELEPORT"]])
def test_wrong_use(wrong: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["decode", str(RPING), *wrong])
    assert ended.value.code == 2
    assert capsys.readouterr().err.startswith("livedma decode: ")


def test_no_condition_is_no_filter() -> None:
    assert not Filters.parse()
    assert Filters.parse(qp=[0])
