# SPDX-License-Identifier: BSD-2-Clause
"""Formats what livedma load prints for people."""

from __future__ import annotations

import statistics
from collections.abc import Iterator

from livedma.cli.load_shades import Shades
from livedma.cli.output import amount
from livedma.nfs.load.footprint import file_bytes, host_bytes, size_text
from livedma.nfs.load.plan import Plan
from livedma.nfs.load.result import Interval, Result, percentiles_us
from livedma.sizes import exact

__all__ = ["header", "heading", "left", "row", "totals"]

_COLUMNS = ("time", "sessions", "ops/s", "MB/s", "p50", "p99", "max", "errors", "waited")
_WIDTHS = (8, 9, 10, 9, 9, 9, 9, 7, 8)
_ERRORS_SHOWN = 5
_MUCH = 256 << 20  # bytes of memory


def heading(plan: Plan, server: str) -> str:
    """Returns the first line, which describes the run."""
    pace = "one after the other" if plan.rate is None else f"{plan.rate:,.0f} ops/s in all"
    ramp = "" if plan.ramp is None else f", {plan.ramp:g} more each second"
    if plan.tide is not None:
        ramp = f", up and down in {plan.tide:g} s"
    return (
        f"{server}: {amount(plan.sessions, 'session')} x {plan.depth} on "
        f"{amount(plan.connections, 'connection')} ({plan.proto}){ramp}; "
        f"{plan.rw} {size(plan.size)} {plan.pattern}, {pace}; files of {size(plan.file_bytes)}"
        f"{_taken(plan)}"
    )


def _taken(plan: Plan) -> str:
    """Tells what the run takes of the server's disk, and of this host's memory if that is much."""
    memory = host_bytes(plan)
    said = f", {size_text(file_bytes(plan))} in all" if plan.sessions > 1 else ""
    return f"{said}; {size_text(memory)} of memory here" if memory >= _MUCH else said


def header(shades: Shades) -> str:
    return shades.header(_COLUMNS, _WIDTHS)


def row(interval: Interval, shades: Shades) -> str:
    found = percentiles_us(interval.latency)
    p50, p99, longest = (
        duration(found[name]) if interval.latency.count else "-" for name in ("p50", "p99", "max")
    )
    cells = (
        f"{interval.at_s:.1f} s",
        f"{interval.sessions}",
        f"{interval.operations / interval.length_s:,.0f}",
        f"{interval.bytes / interval.length_s / 1e6:,.1f}",
        p50,
        p99,
        longest,
        f"{interval.errors:,}",
        f"{interval.waited:,}",
    )
    return shades.line(_COLUMNS, cells, _WIDTHS, shades.colors(interval, found))


def totals(result: Result) -> Iterator[str]:
    """Yields the lines below the table."""
    counters = result.counters
    yield (
        f"operations  {result.operations:,} in {result.seconds:.1f} s: "
        f"{result.operations / result.seconds:,.0f}/s, "
        f"{result.bytes / result.seconds / 1e6:,.1f} MB/s "
        f"({counters.reads:,} reads, {counters.writes:,} writes)"
    )
    found = percentiles_us(result.latency)
    if result.latency.count:
        yield "latency     " + "  ".join(f"{name} {duration(us)}" for name, us in found.items())
    else:
        yield "latency     nothing was answered"
    slowest, fastest = result.slowest, result.fastest
    if slowest is not None and fastest is not None and len(result.sessions) > 1:
        yield (
            f"sessions    slowest {slowest.operations_per_s:,.1f}/s "
            f"(p99 {duration(slowest.latency.quantile_ns(0.99) / 1000)}), "
            f"fastest {fastest.operations_per_s:,.1f}/s "
            f"(p99 {duration(fastest.latency.quantile_ns(0.99) / 1000)})"
        )
    if result.late:
        yield f"            {amount(result.late, 'session')} had not begun when time was up"
    if counters.waited:
        mean_us = counters.waited_ns / counters.waited / 1000
        yield f"credits     {counters.waited:,} waited for one, {duration(mean_us)} on average"
    else:
        yield "credits     no call waited for one"
    if result.connections > 1 and result.moved:
        pauses_us = [one.figures.pause_ns / 1000 for one in result.moved]
        yield (
            f"moved       {amount(len(result.moved), 'session')}, paused "
            f"{duration(statistics.median(pauses_us))} in the median, {duration(max(pauses_us))} "
            f"at most; {amount(result.connections, 'connection')} in all"
        )
    if counters.delays:
        yield f"delays      the server asked {amount(counters.delays, 'time')} to come again later"
    if result.gaps_s:
        longest = f", the longest {max(result.gaps_s):.1f} s" if len(result.gaps_s) > 1 else ""
        yield (
            f"gap         {len(result.gaps_s)}, {sum(result.gaps_s):.1f} s without an answer"
            f"{longest}; connected again {amount(result.reconnects, 'time')}"
        )
    yield f"client      {result.cpu_us_per_operation:.1f} us of CPU for each operation"
    yield from _errors(result)


def _errors(result: Result) -> Iterator[str]:
    counters = result.counters
    wrong = f", {counters.wrong:,} of them with wrong data" if counters.wrong else ""
    yield f"errors      {counters.errors:,}{wrong}" if counters.errors else "errors      none"
    for name, count in result.statuses.items():
        yield f"            {count:,} x {name}"
    words = [f"session {one.number}: {one.words}" for one in result.sessions if one.words]
    if result.unanswered:
        words.append(f"{amount(result.unanswered, 'call')} without an answer")
    words += [*result.refused, *result.lost]
    if result.ended:
        words.insert(0, result.ended)
    yield from (f"            {line}" for line in words[:_ERRORS_SHOWN])
    if len(words) > _ERRORS_SHOWN:
        yield f"            and {len(words) - _ERRORS_SHOWN:,} more"


def duration(us: float) -> str:
    """Formats microseconds with about three digits."""
    for unit, factor in (("us", 1.0), ("ms", 1e3)):
        if us < 999.5 * factor:
            value = us / factor
            return f"{value:.0f} {unit}" if value >= 99.5 else f"{value:.3g} {unit}"
    return f"{us / 1e6:.3g} s"


def size(count: int) -> str:
    """Formats bytes: 64 KiB for 65536."""
    return amount(count, "byte") if count % 1024 else exact(count)


def left(files: list[str]) -> str:
    """Returns a sentence on files that the run could not remove."""
    first = files[0].rsplit("/", 1)
    name = first[1] if len(files) == 1 else f"{first[1].rsplit('-', 1)[0]}-*"
    return (
        f"{amount(len(files), 'file')} could not be removed and may still be at the server: remove "
        f"{first[0]}/{name} by hand"
    )
