# SPDX-License-Identifier: BSD-2-Clause
"""Sinks write packets: each output format is a sink that takes batches."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, BinaryIO, Protocol

import orjson

from livedma._native.wire import Batch
from livedma.wire.inside import Inside, brief
from livedma.wire.listing import listing

__all__ = ["FILE_FORMATS", "FORMATS", "CaptureTotals", "Sink", "open_sink"]

#: Formats of `decode`; `capture` also has pcapng.
FORMATS = ("text", "struct", "json", "parquet")
#: Formats that are binary and need a file.
FILE_FORMATS = ("parquet", "pcapng")


@dataclass(frozen=True)
class CaptureTotals:
    """Holds what a capture file says about how it was captured."""

    received: int
    dropped: int


class Sink(Protocol):
    def write(self, batch: Batch) -> None:
        """Takes all packets of the batch. It keeps nothing that belongs to the batch."""

    def close(self, totals: CaptureTotals | None = None) -> None:
        """Writes what is left, which completes the output."""


class _InsideLines:
    """Looks into a batch's packets, and renders what it finds for printing with their lines."""

    def __init__(self, inside: Inside, render: Callable[[Mapping[str, object]], bytes]) -> None:
        self._inside = inside
        self._render = render

    def look(self, batch: Batch) -> dict[int, bytes]:
        found = {}
        for index in batch.carriers():
            if carried := self._inside.look(batch[index]):
                found[index] = self._render(carried)
        return found


def _members(carried: Mapping[str, object]) -> bytes:
    return orjson.dumps(carried)[1:-1]


def _phrase(carried: Mapping[str, object]) -> bytes:
    return brief(dict(carried)).encode()


class JsonSink:
    """Writes one JSON object a line."""

    def __init__(self, out: BinaryIO) -> None:
        self._out = out
        self._n = 1
        self._lines = _InsideLines(Inside(), _members)

    def write(self, batch: Batch) -> None:
        self._out.write(batch.json(self._n, self._lines.look(batch)))
        self._n += len(batch)

    def close(self, totals: CaptureTotals | None = None) -> None:
        self._out.flush()


class TextSink:
    """Writes one line a packet, for reading in a terminal."""

    def __init__(self, out: BinaryIO, color: bool) -> None:
        self._out = out
        self._color = color
        self._start_ns: int | None = None
        self._lines = _InsideLines(Inside(), _phrase)

    def write(self, batch: Batch) -> None:
        if self._start_ns is None and len(batch):
            self._start_ns = batch.start_ns
        self._out.write(batch.text(self._lines.look(batch), self._color, self._start_ns or 0))

    def close(self, totals: CaptureTotals | None = None) -> None:
        self._out.flush()


class StructSink:
    """Writes packets as the kernel's structures, one block a packet."""

    def __init__(self, out: BinaryIO) -> None:
        self._out = out

    def write(self, batch: Batch) -> None:
        for index in range(len(batch)):
            self._out.write(listing(batch[index]).encode())

    def close(self, totals: CaptureTotals | None = None) -> None:
        self._out.flush()


class ParquetSink:
    """Writes columns into a Parquet file, a row group at a time."""

    def __init__(self, out: BinaryIO) -> None:
        # pyarrow is slow to load, and only this sink needs it.
        from pyarrow.parquet import ParquetWriter

        from livedma.wire.columns import SCHEMA, ColumnBuilder

        self._out = out
        self._builder = ColumnBuilder()
        self._writer: Any = ParquetWriter(out, SCHEMA, compression="zstd")

    def write(self, batch: Batch) -> None:
        for rows in self._builder.add(batch):
            self._writer.write_batch(rows)

    def close(self, totals: CaptureTotals | None = None) -> None:
        for rows in self._builder.finish():
            self._writer.write_batch(rows)
        self._writer.close()
        self._out.flush()


class PcapngSink:
    """Writes the frames themselves, with interface, direction and drop counts, for Wireshark."""

    def __init__(self, out: BinaryIO, interface: str, link: int, snaplen: int) -> None:
        from livedma._native.pcapng import PcapngWriter

        self._out = out
        self._writer = PcapngWriter(out.fileno(), [(interface, link, snaplen)])

    def write(self, batch: Batch) -> None:
        self._writer.write(batch)

    def close(self, totals: CaptureTotals | None = None) -> None:
        if totals is None:
            self._writer.close()
        else:
            self._writer.close([totals.received], [totals.dropped])


def open_sink(
    kind: str,
    out: BinaryIO,
    *,
    color: bool = False,
    interface: str = "",
    link: int = 1,
    snaplen: int = 0,
) -> Sink:
    """Opens the sink of a format over `out`, which the caller closes afterwards."""
    match kind:
        case "text":
            return TextSink(out, color)
        case "json":
            return JsonSink(out)
        case "struct":
            return StructSink(out)
        case "parquet":
            return ParquetSink(out)
        case "pcapng":
            return PcapngSink(out, interface, link, snaplen)
    raise ValueError(f"there is no format {kind!r}")
