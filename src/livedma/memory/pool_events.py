"""What happens to the pools of this process, in batches."""

from __future__ import annotations

from typing import Self

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


class PoolEvents(native.EventReader):
    """The events of all pools from now on, until it is closed; there is one reader at a time.

    Pools keep events only while there is a reader, at most `capacity` of them; `lost` counts what
    found no room. docs/memory.md says what is in them.
    """

    def batch(self, limit: int = 65536) -> pa.RecordBatch:
        """What came since the last read, by columns (SCHEMA)."""
        count, columns = self.read_columns(limit)
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

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _or_null(numbers: pa.Array) -> pa.Array:
    none = pa.scalar(native.NONE, pa.uint32())
    return pc.if_else(pc.equal(numbers, none), pa.scalar(None, pa.uint32()), numbers)
