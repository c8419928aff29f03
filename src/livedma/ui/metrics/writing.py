# SPDX-License-Identifier: BSD-2-Clause
"""Fills families of the official client with counts."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from prometheus_client.metrics_core import Metric
from prometheus_client.samples import Sample

from livedma._native.nfs import TIMES_BOUNDS_NS
from livedma.ui.metrics.families import BY_NAME
from livedma.ui.metrics.ledger import Tally

__all__ = ["Rows", "counters", "family", "histogram"]

# Times are whole nanoseconds, so a time below a bound is at most one less: `le` says that exactly.
_LE = (*(repr((bound - 1) / 1e9) for bound in TIMES_BOUNDS_NS), "+Inf")
_NS = 1e9

Rows = Sequence[tuple[Mapping[str, str], Tally]]  # labels, and what was counted with them


def family(name: str, values: Iterable[tuple[Sequence[str], float]] = ()) -> Metric:
    """Returns a counter, gauge or info: pairs of label values and their value."""
    definition = BY_NAME[name]
    metric = Metric(name, definition.text, definition.kind)
    metric.samples = [
        Sample(definition.full_name, dict(zip(definition.labels, labels, strict=True)), value)
        for labels, value in values
    ]
    return metric


def counters(name: str, place: int, rows: Rows, *, is_ns: bool = False) -> Metric:
    """Returns one of a tally's counters; is_ns: it is shown in seconds."""
    metric, full_name = family(name), BY_NAME[name].full_name
    metric.samples = [
        Sample(full_name, dict(labels), tally[place] / _NS if is_ns else tally[place])
        for labels, tally in rows
    ]
    return metric


def histogram(name: str, place: int, rows: Rows) -> Metric:
    """Returns times of a tally: how many are below each bound, their number and their sum."""
    metric = family(name)
    add = metric.samples.append
    bucket, count, total = name + "_bucket", name + "_count", name + "_sum"
    end = place + len(_LE)
    for labels, tally in rows:
        for le, value in zip(_LE, tally[place:end], strict=True):
            add(Sample(bucket, {**labels, "le": le}, value))
        add(Sample(count, dict(labels), tally[end - 1]))
        add(Sample(total, dict(labels), tally[end] / _NS))
    return metric
