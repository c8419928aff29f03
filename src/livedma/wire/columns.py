# SPDX-License-Identifier: BSD-2-Clause
"""Turns packets into Arrow columns, by the schema that Parquet files have.

Version 1 of the schema is `SCHEMA`; docs/columns.md describes it. Values are never copied on
their way from the C core into Arrow.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import pyarrow as pa
import pyarrow.compute as pc

from livedma._native.columns import VERSION, Columns, column_infos
from livedma._native.wire import Batch
from livedma.wire.opcodes import OPCODES

__all__ = ["ROWS", "SCHEMA", "ColumnBuilder", "columns"]

#: Rows of one record batch, enough to make the fixed cost of each column negligible.
ROWS = 65536

_INFOS = column_infos()
_NAME = pa.dictionary(pa.int16(), pa.string())
_ADDRESS = pa.dictionary(pa.int32(), pa.string())

_names = ["UNKNOWN"] * 256
_operations = ["UNKNOWN"] * 256
for _opcode in OPCODES.values():
    _names[_opcode.code], _operations[_opcode.code] = _opcode.name, _opcode.operation
_OPCODE_NAMES = pa.array(_names)
_OPERATIONS = pa.array(_operations)
_OPCODE = [name for name, *_ in _INFOS].index("opcode")

SCHEMA = pa.schema(
    [
        pa.field("src", _ADDRESS),
        pa.field("dst", _ADDRESS),
        *(
            pa.field(name, pa.bool_() if arrow == "bool" else getattr(pa, arrow)(), nullable)
            for name, arrow, _, nullable in _INFOS
        ),
        pa.field("opcode_name", _NAME),
        pa.field("operation", _NAME),
        pa.field("error", pa.string()),
    ],
    metadata={"livedma.schema": "packets", "livedma.schema_version": str(VERSION)},
)


def _buffer(address: int, size: int, base: Columns) -> pa.Buffer:
    return pa.foreign_buffer(address, size, base)


def _bitmap(address: int, rows: int, base: Columns) -> pa.Buffer | None:
    return _buffer(address, (rows + 7) // 8, base) if address else None


def _addresses(address: int, rows: int, texts: pa.Array, base: Columns) -> pa.Array:
    indexes = pa.Array.from_buffers(pa.int32(), rows, [None, _buffer(address, rows * 4, base)])
    if pc.min(indexes).as_py() < 0:
        indexes = pc.if_else(pc.less(indexes, 0), None, indexes)
    return pa.DictionaryArray.from_arrays(indexes, texts)


def _record_batch(rows: Columns) -> pa.RecordBatch:
    n = len(rows)
    texts = pa.array(rows.addresses(), pa.string())
    arrays = [_addresses(rows.src, n, texts, rows), _addresses(rows.dst, n, texts, rows)]
    for index, (_, _, size, _) in enumerate(_INFOS):
        values, validity = rows.column(index)
        data = _buffer(values, n * size if size else (n + 7) // 8, rows)
        field = SCHEMA.field(2 + index)
        arrays.append(pa.Array.from_buffers(field.type, n, [_bitmap(validity, n, rows), data]))
    opcode = arrays[2 + _OPCODE].cast(pa.int16())
    arrays.append(pa.DictionaryArray.from_arrays(opcode, _OPCODE_NAMES))
    arrays.append(pa.DictionaryArray.from_arrays(opcode, _OPERATIONS))
    validity, offsets, text, length = rows.errors
    buffers = [
        _bitmap(validity, n, rows),
        _buffer(offsets, (n + 1) * 4, rows),
        _buffer(text, length, rows) if length else pa.py_buffer(b""),
    ]
    arrays.append(pa.Array.from_buffers(pa.string(), n, buffers))
    return pa.RecordBatch.from_arrays(arrays, schema=SCHEMA)


class ColumnBuilder:
    """Turns batches of packets into record batches of about `rows` rows."""

    def __init__(self, rows: int = ROWS) -> None:
        self._rows = rows
        self._columns = Columns(rows)

    def add(self, batch: Batch) -> Iterator[pa.RecordBatch]:
        """Takes all packets of the batch; yields the record batches that became full."""
        taken = self._columns.append(batch)
        while taken < len(batch) or self._columns.is_full:
            yield from self.finish()
            taken += self._columns.append(batch, taken)

    def finish(self) -> Iterator[pa.RecordBatch]:
        """Yields the rows that are left, if any."""
        if len(self._columns):
            full, self._columns = self._columns, Columns(self._rows)
            yield _record_batch(full)


def columns(batches: Iterable[Batch], rows: int = ROWS) -> Iterator[pa.RecordBatch]:
    """Yields record batches of SCHEMA made from batches of packets."""
    builder = ColumnBuilder(rows)
    for batch in batches:
        yield from builder.add(batch)
    yield from builder.finish()
