# SPDX-License-Identifier: BSD-2-Clause
"""Columns say what JSON says, row by row, and survive Parquet."""

from __future__ import annotations

import importlib.util
import io
import json
from collections.abc import Iterable, Iterator
from ipaddress import ip_address
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from packets import ENDS, frame_of

import captures
import frames
from livedma.capture.files import read
from livedma.capture.sinks import open_sink
from livedma.wire import OPCODES, Batch, encode, ethernet
from livedma.wire.columns import SCHEMA, ColumnBuilder, columns

# Column -> where JSON has the same; those not listed are top-level members of the same name.
IN_JSON = {
    "reth_va": "reth.va",
    "reth_rkey": "reth.rkey",
    "reth_length": "reth.length",
    "aeth_syndrome": "aeth.syndrome",
    "aeth_msn": "aeth.msn",
    "deth_qkey": "deth.qkey",
    "deth_src_qp": "deth.src_qp",
    "atomic_va": "atomic.va",
    "atomic_rkey": "atomic.rkey",
    "atomic_swap_add": "atomic.swap_add",
    "atomic_compare": "atomic.compare",
    "atomic_ack_original": "atomic_ack.original",
    "ieth_rkey": "ieth.rkey",
    "rdeth_ee_context": "rdeth.ee_context",
    "xrceth_srq": "xrceth.srq",
}
SAME = [
    *("time_ns", "length", "src", "dst", "sport", "opcode", "solicited", "migreq", "pad", "pkey"),
    *("fecn", "becn", "dest_qp", "ack_req", "psn", "payload_length", "icrc", "icrc_ok", "imm"),
    "error",
]
#: Columns that JSON has in another form, or not at all: each is checked below.
OTHER = {
    "captured",
    "direction",
    "version",
    "vlan",
    "tos",
    "feth",
    "mad_attribute",
    "rpcrdma_xid",
    "rpcrdma_credits",
    "rpcrdma_proc",
    "opcode_name",
    "operation",
}


def dig(seen: dict[str, Any], path: str) -> Any:
    value: Any = seen
    for key in path.split("."):
        value = value.get(key) if isinstance(value, dict) else None
    return value


def expected(seen: dict[str, Any]) -> dict[str, Any]:
    """A row, from the JSON form alone."""
    row = {name: seen.get(name) for name in SAME}
    row |= {name: dig(seen, path) for name, path in IN_JSON.items()}
    row["version"] = {"roce1": 1, "roce2": 2}[seen["version"]]
    row["vlan"] = seen.get("vlan", [None])[0]
    row["direction"] = {None: None, "rx": 1, "tx": 2}[seen.get("direction")]
    name = seen.get("opcode_name")
    opcode = OPCODES.get(seen["opcode"]) if "opcode" in seen else None
    row["opcode_name"] = name or ("UNKNOWN" if "opcode" in seen else None)
    row["operation"] = opcode.operation if opcode else row["opcode_name"]
    return row


def check(rows: pa.Table, seen: list[dict[str, Any]]) -> None:
    assert rows.schema.equals(SCHEMA, check_metadata=True)
    rows.validate(full=True)
    found = rows.to_pylist()
    assert len(found) == len(seen)
    for row, packet in zip(found, seen, strict=True):
        wanted = expected(packet)
        assert {name: row[name] for name in wanted} == wanted
        feth = packet.get("feth")
        assert (row["feth"] is None) == (feth is None)
        if feth:
            assert row["feth"] & 0x3F == feth["placement"] | feth["selectivity"] << 4
        assert row["captured"] <= row["length"]
        assert (row["tos"] is None) == ("src" not in packet)


def json_of(batch: Batch, first: int = 1) -> list[dict[str, Any]]:
    return [json.loads(line) for line in batch.json(first, {}).splitlines()]


def batch_of(made: Iterable[bytes], link: int = 1, more: int = 0) -> Batch:
    made = list(made)
    batch = Batch(len(made) + 1, sum(map(len, made)) + 1)
    for number, frame in enumerate(made):
        assert batch.add(link, 1000 * number, number % 3, frame, len(frame) + more)
    return batch


def table(batches: Iterable[Batch], rows: int = 65536) -> pa.Table:
    return pa.Table.from_batches(columns(batches, rows), SCHEMA)


def test_every_column_is_checked() -> None:
    assert set(SCHEMA.names) == set(SAME) | set(IN_JSON) | OTHER


def test_the_schema_says_what_it_is() -> None:
    assert SCHEMA.metadata == {b"livedma.schema": b"packets", b"livedma.schema_version": b"1"}
    types = {name: str(SCHEMA.field(name).type) for name in SCHEMA.names}
    # Version 1, once and for all: a change here is a new version.
    assert types == {
        "src": "dictionary<values=string, indices=int32, ordered=0>",
        "dst": "dictionary<values=string, indices=int32, ordered=0>",
        "time_ns": "int64",
        "length": "uint32",
        "captured": "uint32",
        "direction": "uint8",
        "version": "uint8",
        "vlan": "uint16",
        "tos": "uint8",
        "sport": "uint16",
        "opcode": "uint8",
        "pad": "uint8",
        "pkey": "uint16",
        "dest_qp": "uint32",
        "psn": "uint32",
        "payload_length": "uint32",
        "icrc": "uint32",
        "solicited": "bool",
        "migreq": "bool",
        "fecn": "bool",
        "becn": "bool",
        "ack_req": "bool",
        "icrc_ok": "bool",
        "reth_va": "uint64",
        "reth_rkey": "uint32",
        "reth_length": "uint32",
        "aeth_syndrome": "uint8",
        "aeth_msn": "uint32",
        "deth_qkey": "uint32",
        "deth_src_qp": "uint32",
        "atomic_va": "uint64",
        "atomic_rkey": "uint32",
        "atomic_swap_add": "uint64",
        "atomic_compare": "uint64",
        "atomic_ack_original": "uint64",
        "imm": "uint32",
        "ieth_rkey": "uint32",
        "rdeth_ee_context": "uint32",
        "xrceth_srq": "uint32",
        "feth": "uint32",
        "mad_attribute": "uint16",
        "rpcrdma_xid": "uint32",
        "rpcrdma_credits": "uint32",
        "rpcrdma_proc": "uint8",
        "opcode_name": "dictionary<values=string, indices=int16, ordered=0>",
        "operation": "dictionary<values=string, indices=int16, ordered=0>",
        "error": "string",
    }
    required = [field.name for field in SCHEMA if not field.nullable]
    assert required == ["time_ns", "length", "captured", "version"]


@pytest.mark.parametrize("name", captures.names())
def test_columns_of_real_traffic_say_what_json_says(name: str) -> None:
    path = captures.capture(name)
    seen: list[dict[str, Any]] = []

    def batches() -> Iterator[Batch]:
        with read(path, capacity=97) as file:
            for batch in file:
                seen.extend(json_of(batch, len(seen) + 1))
                yield batch

    rows = table(batches(), 333)
    check(rows, seen)
    assert rows["time_ns"].null_count == 0


def test_columns_of_every_opcode() -> None:
    batch = batch_of(
        frame_of(opcode, ends, vlan, tos=0xB8)
        for opcode in OPCODES.values()
        for ends in ENDS
        for vlan in ((), (5,), (6, 7))
    )
    rows = table([batch])
    check(rows, json_of(batch))
    assert set(rows["tos"].to_pylist()) == {0xB8}
    assert rows["captured"].to_pylist() == rows["length"].to_pylist()


@settings(max_examples=60)
@given(st.data())
def test_columns_of_any_packets_say_what_json_says(data: st.DataObject) -> None:
    good = [frame_of(opcode, ends) for opcode in OPCODES.values() for ends in ENDS]
    made = []
    for _ in range(data.draw(st.integers(1, 40))):
        frame = bytearray(data.draw(st.sampled_from(good)))
        for _ in range(data.draw(st.integers(0, 2))):
            frame[data.draw(st.integers(14, len(frame) - 1))] = data.draw(st.integers(0, 255))
        made.append(bytes(frame[: data.draw(st.integers(14, len(frame)))]))
    batch = batch_of(made, more=data.draw(st.integers(0, 40)))
    check(table([batch]), json_of(batch))


def test_what_is_inside_has_columns() -> None:
    attributes = []
    with read(captures.capture("rping_rc")) as file:
        for batch in file:
            attributes += [v for v in table([batch])["mad_attribute"].to_pylist() if v is not None]
    assert attributes == [0x10, 0x13, 0x14, 0x15, 0x16]
    header = bytes.fromhex("deadbeef 00000001 00000040 00000001 00000000 00000000 00000000")
    rows = table(
        [
            batch_of(
                frames.roce2(frames.v4(frames.bth(code) + header)) for code in (0x04, 0x00, 0x01)
            )
        ]
    ).to_pylist()
    found = [(row["rpcrdma_xid"], row["rpcrdma_credits"], row["rpcrdma_proc"]) for row in rows]
    assert found == [(0xDEADBEEF, 64, 1)] * 2 + [(None, None, None)]


# Sets of rows


def pattern(count: int, salt: int = 0) -> list[bytes]:
    """Packets whose columns are null in an irregular rhythm."""
    codes = list(OPCODES)
    made = []
    for number in range(count):
        opcode = OPCODES[codes[(number * 7 + salt) % len(codes)]]
        frame = frame_of(opcode, ("v4", "v6", "roce1")[number % 3], psn=number)
        made.append(frame[: 40 + number % 40] if number % 11 == 5 else frame)
    return made


@pytest.mark.parametrize("sizes", [[1] * 150, [63, 65, 64, 1], [7, 130, 3, 64, 61], [129, 127]])
def test_bits_land_right_at_odd_offsets(sizes: list[int]) -> None:
    """Bitmaps are written 64 rows at a time, from whatever row comes next."""
    batches = [batch_of(pattern(size, salt)) for salt, size in enumerate(sizes)]
    seen = [packet for batch in batches for packet in json_of(batch)]
    check(table(batches), seen)


@pytest.mark.parametrize("rows", [64, 100, 128])
def test_rows_cross_from_one_record_batch_into_the_next(rows: int) -> None:
    builders = [ColumnBuilder(rows), ColumnBuilder(rows)]  # Reused memory shows in the second.
    for salt, builder in enumerate(builders):
        batches = [batch_of(pattern(size, salt)) for size in (50, 77, 200, 64, 3)]
        found = [rows_ for batch in batches for rows_ in builder.add(batch)]
        found += builder.finish()
        assert not list(builder.finish())
        seen = [packet for batch in batches for packet in json_of(batch)]
        check(pa.Table.from_batches(found, SCHEMA), seen)


def test_record_batches_outlive_what_they_were_made_from() -> None:
    """Values are not copied: memory must not be filled again while an array looks at it."""
    kept = []
    for salt in range(6):
        batch = batch_of(pattern(70, salt))
        kept.append((list(columns([batch], 64)), json_of(batch)))
        del batch
    for found, seen in kept:
        check(pa.Table.from_batches(found, SCHEMA), seen)


def test_more_addresses_than_a_set_of_rows_holds() -> None:
    count = 10_000  # packets, each with two addresses of its own
    made = [
        ethernet(
            encode("RC_ACKNOWLEDGE", src=f"fe80::{n:x}", dst=f"2001:db8::{n:x}")
            if n % 2
            else encode(
                "RC_ACKNOWLEDGE", src=f"10.0.{n >> 8}.{n & 255}", dst=f"11.0.{n >> 8}.{n & 255}"
            )
        )
        for n in range(count)
    ]
    batch = batch_of(made)
    found = list(columns([batch]))
    assert len(found) > 1
    for rows in found:
        for name in ("src", "dst"):
            texts = rows[name].dictionary.to_pylist()
            assert len(texts) <= 4096
            assert len(set(texts)) == len(texts)
    check(pa.Table.from_batches(found, SCHEMA), json_of(batch))


def test_addresses_of_the_same_bytes_are_told_apart() -> None:
    """10.0.0.1 and a00:1:: differ in nothing but their kind; there are many, so that they meet."""
    made, wanted = [], []
    for _ in range(2):
        for n in range(2000):
            wanted += [f"10.0.{n >> 8}.{n & 255}", str(ip_address(f"a00:{n:x}::"))]
            made += [ethernet(encode("RC_ACKNOWLEDGE", src=text, dst=text)) for text in wanted[-2:]]
    (rows,) = columns([batch_of(made)])
    assert len(rows["src"].dictionary) == 4000
    assert rows["src"].to_pylist() == rows["dst"].to_pylist() == wanted


def test_errors_are_told_in_full() -> None:
    """Their text outgrows its first buffer, and rows without one stay null."""
    made = [
        frames.roce2(frames.v4(frames.bth(0x1F if n % 3 else 0x04, psn=n))) for n in range(3000)
    ]
    rows = table([batch_of(made)])
    text = "BTH has unknown opcode 0x1f, at byte 42"
    assert rows["error"].to_pylist() == [text if n % 3 else None for n in range(3000)]
    assert pc.count(rows["opcode_name"], mode="only_null").as_py() == 0


def test_nothing_gives_no_rows() -> None:
    assert list(columns([])) == []
    assert list(columns([batch_of([]), batch_of([bytes(60)])])) == []


# Parquet


def parquet(path: Path, *batches: Batch) -> Path:
    with path.open("wb") as out:
        sink = open_sink("parquet", out)
        for batch in batches:
            sink.write(batch)
        sink.close()
    return path


def test_parquet_gives_back_what_went_in(tmp_path: Path) -> None:
    batches = [batch_of(pattern(500, salt)) for salt in range(3)]
    path = parquet(tmp_path / "packets.parquet", *batches)
    seen = [packet for batch in batches for packet in json_of(batch)]
    metadata = pq.read_schema(path).metadata
    assert metadata[b"livedma.schema"] == b"packets"
    assert metadata[b"livedma.schema_version"] == b"1"
    rows = ds.dataset(path).to_table()
    check(rows.cast(SCHEMA), seen)
    some = ds.dataset(path).to_table(
        filter=(pc.field("operation") == "WRITE") & pc.field("icrc_ok"), columns=["opcode_name"]
    )
    wanted = [
        packet["opcode_name"]
        for packet in seen
        if packet["icrc_ok"] and "_RDMA_WRITE" in packet.get("opcode_name", "")
    ]
    assert some["opcode_name"].to_pylist() == wanted
    assert wanted
    if importlib.util.find_spec("duckdb"):  # Not a dependency; a second opinion where it is there.
        import duckdb

        query = f"select count(*), count(error) from '{path}' where operation = 'WRITE' and icrc_ok"
        assert duckdb.sql(query).fetchone() == (len(wanted), 0)


def test_parquet_without_packets_is_a_file_with_a_schema(tmp_path: Path) -> None:
    rows = pq.read_table(parquet(tmp_path / "empty.parquet"))
    assert rows.num_rows == 0
    assert rows.schema.names == SCHEMA.names


def test_parquet_of_several_row_groups_with_many_addresses(tmp_path: Path) -> None:
    """Row groups have dictionaries of their own."""
    made = [
        ethernet(encode("RC_ACKNOWLEDGE", src=f"10.0.{n >> 8}.{n & 255}", dst="10.1.0.1"))
        for n in range(9000)
    ]
    path = parquet(tmp_path / "hosts.parquet", batch_of(made))
    assert pq.ParquetFile(path).num_row_groups > 1
    rows = pq.read_table(path)
    assert pc.count_distinct(rows["src"].cast(pa.string())).as_py() == 9000
    assert rows["src"].to_pylist()[8999] == "10.0.35.39"


def test_the_sink_writes_to_what_cannot_seek() -> None:
    class Pipe(io.BytesIO):
        def seekable(self) -> bool:
            return False

    out = Pipe()
    sink = open_sink("parquet", out)
    sink.write(batch_of(pattern(10)))
    sink.close()
    assert pq.read_table(io.BytesIO(out.getvalue())).num_rows == 10
