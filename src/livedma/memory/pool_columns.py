# SPDX-License-Identifier: BSD-2-Clause
"""Puts events of pools into columns, in a module of its own since Arrow is slow to load."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc

from livedma._native import pool_events as native

SCHEMA = pa.schema(
    [
        pa.field("time_ns", pa.uint64(), nullable=False),
        pa.field("event", pa.dictionary(pa.int8(), pa.string()), nullable=False),
        pa.field("pool", pa.uint32(), nullable=False),
        pa.field("shard", pa.uint32()),
        pa.field("buffer", pa.uint32()),
        pa.field("control", pa.bool_(), nullable=False),
        pa.field("value", pa.uint64(), nullable=False),
    ],
    metadata={"livedma.schema": "pool events", "livedma.schema_version": "1"},
)
_EVENTS = pa.array(native.EVENTS)
_STORED = (pa.uint64(), pa.int8(), pa.uint32(), pa.uint32(), pa.uint32(), pa.uint8(), pa.uint64())


def batch(count: int, columns: list[bytearray]) -> pa.RecordBatch:
    """Makes a batch of `count` events from the columns that the reader has stored."""
    time_ns, event, pool, shard, buffer, control, value = (
        pa.Array.from_buffers(stored, count, [None, pa.py_buffer(column)])
        for stored, column in zip(_STORED, columns, strict=True)
    )
    arrays = [
        time_ns,
        pa.DictionaryArray.from_arrays(event, _EVENTS),
        pool,
        _or_null(shard),
        _or_null(buffer),
        pc.cast(control, pa.bool_()),
        value,
    ]
    return pa.RecordBatch.from_arrays(arrays, schema=SCHEMA)


def _or_null(numbers: pa.Array) -> pa.Array:
    none = pa.scalar(native.NONE, pa.uint32())
    return pc.if_else(pc.equal(numbers, none), pa.scalar(None, pa.uint32()), numbers)
