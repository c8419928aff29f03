# SPDX-License-Identifier: BSD-2-Clause
"""Formats what livedma demo prints for people, in 80 columns or as many as the terminal has."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from livedma import extras
from livedma.cli.load_page import duration, size
from livedma.cli.output import amount
from livedma.cli.paint import Paint
from livedma.cli.shades import event_color
from livedma.lab.outcome import Outcome, Trouble
from livedma.lab.ramp import Moment, Ramp, Run
from livedma.lab.stage import Stage

__all__ = ["act", "event_lines", "heading", "invitation", "kept", "row", "story"]

_WIDEST = 120
_CELLS, _MOST_CELLS = 16, 32
_BESIDE_BAR = 64  # columns of a row without its bar
_PLAIN = Paint.plain()
_INDENT = 8
_KIND_WIDTH = 7
_MUCH_OTHER_LOAD = 0.25
_SILENT = ("degraded", "recovered", "source", "policy")  # rows and headings say it
_WATCHED = {
    "bpf": "BPF on the wire",
    "server": "the server itself",
    "bpf+server": "BPF on the wire and the server itself",
}
_ACTIONS = {
    "Extend": "extension",
    "SetCredits": "credit change",
    "SetSlots": "slot change",
    "Spread": "connection",
    "Migrate": "migration",
}


def heading(stage: Stage, ramp: Ramp, paint: Paint = _PLAIN) -> Iterator[str]:
    ends = f"server {stage.server_address}, client {stage.client_address}; RoCEv2, MTU 4096"
    if stage.is_isolated:
        yield paint.bold(f"two hosts on this machine: {ends}")
    else:
        yield paint.bold(f"on loopback: {ends}")
        why = stage.refusal or "root would get two hosts, and BPF on the wire between them"
        yield from _wrapped(f"({why})", paint=paint)
    window, mapped = _mebibytes(ramp.window_bytes), _mebibytes(ramp.mapped_bytes)
    yield f"one connection: a window of {window} of IOVA, {mapped} of it mapped"
    yield (
        f"{ramp.sessions} sessions, one after the other, each with {ramp.depth} reads of "
        f"{size(ramp.size)} at a time"
    )
    yield f"a slow store: {ramp.store_delay_ms} ms an access, and each holds DMA memory meanwhile"


def invitation(stage: Stage, *, is_kept: bool, paint: Paint = _PLAIN) -> Iterator[str]:
    """Tells where the page is and how long it stays there."""
    if stage.page_url is None:
        yield f"a page in a browser needs aiohttp: {extras.install_line('web')}"
        return
    until = "until Ctrl-C" if is_kept else "as long as this demo runs (longer with --keep)"
    yield f"in a browser on this machine, {until}:"
    yield f"  {paint.color('blue', stage.page_url)}"


def act(policy: str, source: str, *, again: bool, paint: Paint = _PLAIN) -> str:
    """Returns the line above a ramp."""
    what = "the same ramp" if again else "sessions pile up"
    return paint.bold(f"{what} under {policy}, watched by {_WATCHED.get(source, source)}")


def row(
    at_s: float, interval: dict[str, Any], moment: Moment, ramp: Ramp, paint: Paint = _PLAIN
) -> str:
    """Returns the line of one moment: what sessions get, and what is mapped for them."""
    rate = _rate(interval["bytes_per_s"])
    p99 = duration(interval["latency_us"]["p99"])
    mark = f"  {paint.red('degraded')}" if moment.degraded else ""
    slow = "amber" if moment.degraded else ""
    word = "session " if interval["sessions"] == 1 else "sessions"
    return (
        f"{paint.dim(f'{at_s:4.0f} s')} {interval['sessions']:3} {word}  {rate:>9}  "
        f"p99 {paint.color(slow, f'{p99:>7}')}  mapped [{_bar(moment, ramp, paint)}]{mark}"
    )


def _bar(moment: Moment, ramp: Ramp, paint: Paint) -> str:
    """Returns a bar whose length is one window; several connections stand side by side in it."""
    cells = min(max(paint.width - _BESIDE_BAR, _CELLS), _MOST_CELLS)
    return paint.bar([mapped / ramp.window_bytes for mapped in moment.mapped], cells, "green")


def event_lines(event: dict[str, Any], *, several: bool, paint: Paint = _PLAIN) -> list[str]:
    """Returns the lines of an event, and none for events that rows show."""
    kind = event["kind"]
    if kind in _SILENT:
        return []
    where = f"connection {event['connection']}: " if several else ""
    text = where + event["text"] + (" (dry run)" if event["dry"] else "")
    color = event_color(kind, event["text"])
    return _wrapped(text, " " * _INDENT + f"{kind:<{_KIND_WIDTH}}", paint, color)


def _wrapped(text: str, first: str = "", paint: Paint = _PLAIN, color: str = "") -> list[str]:
    return paint.wrapped(text, first, first_color=color, most=_WIDEST)


def story(outcomes: list[Outcome], paint: Paint = _PLAIN) -> Iterator[str]:
    """Tells what happened in the first outcome, and compares it with the others."""
    outcome, *others = outcomes
    yield paint.bold(f"what happened under {outcome.policy}")
    for name, text, color in _facts(outcome, others):
        yield from _wrapped(text, f"  {name:<10}", paint, color)
    yield ""
    yield from _table(outcomes, paint)
    busiest = max(one.others_share or 0.0 for one in outcomes)
    if busiest >= _MUCH_OTHER_LOAD:
        yield from _wrapped(
            f"Other programs took {busiest:.0%} of this machine's processors meanwhile: these "
            "figures are a sign, not a measurement.",
            paint=paint,
        )


def _facts(outcome: Outcome, others: list[Outcome]) -> Iterator[tuple[str, str, str]]:
    """Yields the name, the text and the colour of each fact."""
    trouble = outcome.trouble
    if trouble is None:
        yield "degraded", "never", "green"
    else:
        sessions = amount(trouble.sessions, "session")
        yield "degraded", f"after {trouble.at_s:.1f} s, with {sessions}", "red"
        yield "why", trouble.why or "unknown", "amber"
        yield "done", _done(outcome, trouble), "dim" if trouble.relief_s is None else "green"
    if outcome.refused:
        yield "refused", amount(outcome.refused, "session"), "red"
    for other in others:
        gain = outcome.bytes_per_s / max(other.bytes_per_s, 1.0)
        share = outcome.p99_us / max(other.p99_us, 1e-3)
        text = f"{gain:.1f} x the bandwidth of {other.policy}, {share:.2f} x its p99"
        yield "gave", text, "green" if gain >= 1 else "amber"


def _done(outcome: Outcome, trouble: Trouble) -> str:
    if trouble.relief_s is None:
        return "nothing"
    done = ", ".join(amount(count, _ACTIONS[name]) for name, count in outcome.done.items())
    text = f"{done}, the first after {trouble.relief_s * 1e3:.0f} ms"
    if outcome.undone:
        text += f", {outcome.undone} taken back"
    before, after = _mebibytes(outcome.mapped_first_bytes), _mebibytes(outcome.mapped_bytes)
    return f"{text}; {before} -> {after} mapped"


def kept(run: Run) -> Iterator[str]:
    """Tells which commands can look at the server and sessions that stay."""
    yield "The server and its sessions stay until Ctrl-C. Meanwhile, elsewhere:"
    yield f"  livedma top --control {run.control}"
    yield f"  livedma why --control {run.control}"


_COLUMNS = (
    "policy",
    "sessions",
    "bandwidth",
    "p99",
    "mapped",
    "connections",
    "reconnects",
    "errors",
)
_WIDTHS = (8, 9, 11, 10, 11, 13, 11, 7)


def _table(outcomes: list[Outcome], paint: Paint) -> Iterator[str]:
    yield paint.dim(_line(_COLUMNS))
    for one in outcomes:
        cells = (
            one.policy,
            f"{one.sessions}",
            _rate(one.bytes_per_s),
            duration(one.p99_us),
            _mebibytes(one.mapped_bytes),
            f"{one.connections}",
            f"{one.reconnects}",
            f"{one.errors}",
        )
        line = _line(cells)
        yield paint.red(line) if one.errors else paint.bold(line) if one is outcomes[0] else line
    yield paint.dim(f"(as the client had it in the last {outcomes[0].over_s:.0f} s of each)")


def _line(cells: tuple[str, ...]) -> str:
    first, *others = cells
    numbers = (cell.rjust(width) for cell, width in zip(others, _WIDTHS[1:], strict=True))
    return (first.ljust(_WIDTHS[0]) + "".join(numbers)).rstrip()


def _rate(bytes_per_s: float) -> str:
    """Formats a rate with about three digits, in powers of ten."""
    if bytes_per_s >= 999.5e6:
        return f"{bytes_per_s / 1e9:.2f} GB/s"
    digits = 0 if bytes_per_s >= 99.95e6 else 1
    return f"{bytes_per_s / 1e6:.{digits}f} MB/s"


def _mebibytes(count: int) -> str:
    """Formats bytes: 3.5 MiB for 3584 KiB."""
    mebi = 1 << 20
    return size(count) if count < mebi or not count % mebi else f"{count / mebi:.1f} MiB"
