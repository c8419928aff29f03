"""What happens to the pools of this process, in batches."""

from __future__ import annotations

from typing import TYPE_CHECKING, Self

from livedma._native import pool_events as native

if TYPE_CHECKING:
    import pyarrow as pa


class PoolEvents(native.EventReader):
    """The events of all pools from now on, until it is closed; there is one reader at a time.

    Pools keep events only while there is a reader, at most `capacity` of them; `lost` counts what
    found no room. docs/memory.md says what is in them.
    """

    def batch(self, limit: int = 65536) -> pa.RecordBatch:
        """What came since the last read, by columns (pool_columns.SCHEMA)."""
        from livedma.memory import pool_columns

        return pool_columns.batch(*self.read_columns(limit))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
