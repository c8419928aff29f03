# SPDX-License-Identifier: BSD-2-Clause
"""Reads the events of this process's pools, in batches."""

from __future__ import annotations

from typing import TYPE_CHECKING, Self

from livedma._native import pool_events as native

if TYPE_CHECKING:
    import pyarrow as pa


class PoolEvents(native.EventReader):
    """Reads the events of all pools from now on, until it is closed. There is one reader at a time.

    Pools keep events only while there is a reader, at most `capacity` of them. `lost` counts the
    events that found no room. docs/memory.md says what is in them.
    """

    def batch(self, limit: int = 65536) -> pa.RecordBatch:
        """Returns the events since the last read, by columns (pool_columns.SCHEMA)."""
        from livedma.memory import pool_columns

        return pool_columns.batch(*self.read_columns(limit))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
