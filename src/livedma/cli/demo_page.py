"""What livedma demo prints for people, on 80 columns."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator
from typing import Any

from livedma.cli.load_page import duration, size
from livedma.cli.output import amount
from livedma.lab.outcome import Outcome, Trouble
from livedma.lab.ramp import Moment, Ramp, Run
from livedma.lab.stage import Stage

__all__ = ["act", "event_lines", "heading", "invitation", "kept", "row", "story"]

_WIDTH = 80
_CELLS = 16
_INDENT = 8
_KIND_WIDTH = 7
_MUCH_COMPANY = 0.25
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


def heading(stage: Stage, ramp: Ramp) -> Iterator[str]:
    ends = f"server {stage.server_address}, client {stage.client_address}; RoCEv2, MTU 4096"
    if stage.is_isolated:
        yield f"two hosts on this machine: {ends}"
    else:
        yield f"on loopback: {ends}"
        why = stage.refusal or "root would get two hosts, and BPF on the wire between them"
        yield from _wrapped(f"({why})")
    window, mapped = _mebibytes(ramp.window_bytes), _mebibytes(ramp.mapped_bytes)
    yield f"one connection: a window of {window} of IOVA, {mapped} of it mapped"
    yield (
        f"{ramp.sessions} sessions, one after the other, each with {ramp.depth} reads of "
        f"{size(ramp.size)} at a time"
    )
    yield f"a slow store: {ramp.store_delay_ms} ms an access, and each holds DMA memory meanwhile"


def invitation(stage: Stage, *, is_kept: bool) -> Iterator[str]:
    """To the page, as long as it is there."""
    until = "until Ctrl-C" if is_kept else "as long as this demo runs (longer with --keep)"
    yield f"in a browser on this machine, {until}:"
    yield f"  {stage.page_url}"


def act(policy: str, source: str, *, again: bool) -> str:
    """The line above a ramp."""
    what = "the same ramp" if again else "sessions pile up"
    return f"{what} under {policy}, watched by {_WATCHED.get(source, source)}"


def row(at_s: float, interval: dict[str, Any], moment: Moment, ramp: Ramp) -> str:
    """One moment: what sessions get, and what is mapped for them."""
    rate = _rate(interval["bytes_per_s"])
    p99 = duration(interval["latency_us"]["p99"])
    mark = "  degraded" if moment.degraded else ""
    return (
        f"{at_s:4.0f} s {interval['sessions']:3} sessions  {rate:>9}  p99 {p99:>7}  "
        f"mapped [{_bar(moment, ramp)}]{mark}"
    )


def _bar(moment: Moment, ramp: Ramp) -> str:
    """As long as one window; what several connections have is side by side in it."""
    cells = (round(_CELLS * mapped / ramp.window_bytes) for mapped in moment.mapped)
    return "|".join("#" * count for count in cells)[:_CELLS].ljust(_CELLS, ".")


def event_lines(event: dict[str, Any], *, several: bool) -> list[str]:
    """None for those that rows show."""
    kind = event["kind"]
    if kind in _SILENT:
        return []
    where = f"connection {event['connection']}: " if several else ""
    text = where + event["text"] + (" (dry run)" if event["dry"] else "")
    return _wrapped(text, " " * _INDENT + f"{kind:<{_KIND_WIDTH}}")


def _wrapped(text: str, first: str = "") -> list[str]:
    return textwrap.wrap(
        text,
        _WIDTH,
        initial_indent=first,
        subsequent_indent=" " * len(first),
        break_long_words=False,
    )


def story(outcomes: list[Outcome]) -> Iterator[str]:
    """What happened in the first, and what it gave against the others."""
    outcome, *others = outcomes
    yield f"what happened under {outcome.policy}"
    yield from (line for name, text in _facts(outcome, others) for line in _fact(name, text))
    yield ""
    yield from _table(outcomes)
    busiest = max(one.others_share or 0.0 for one in outcomes)
    if busiest >= _MUCH_COMPANY:
        yield from _wrapped(
            f"Other programs took {busiest:.0%} of this machine's processors meanwhile: these "
            "figures are a sign, not a measurement."
        )


def _facts(outcome: Outcome, others: list[Outcome]) -> Iterator[tuple[str, str]]:
    trouble = outcome.trouble
    if trouble is None:
        yield "degraded", "never"
    else:
        sessions = amount(trouble.sessions, "session")
        yield "degraded", f"after {trouble.at_s:.1f} s, with {sessions}"
        yield "why", trouble.why or "nobody knows"
        yield "done", _done(outcome, trouble)
    if outcome.refused:
        yield "refused", amount(outcome.refused, "session")
    for other in others:
        gain = outcome.bytes_per_s / max(other.bytes_per_s, 1.0)
        share = outcome.p99_us / max(other.p99_us, 1e-3)
        yield "gave", f"{gain:.1f} x the bandwidth of {other.policy}, {share:.2f} x its p99"


def _done(outcome: Outcome, trouble: Trouble) -> str:
    if trouble.relief_s is None:
        return "nothing"
    done = ", ".join(amount(count, _ACTIONS[name]) for name, count in outcome.done.items())
    text = f"{done}, the first after {trouble.relief_s * 1e3:.0f} ms"
    if outcome.undone:
        text += f", {outcome.undone} taken back"
    before, after = _mebibytes(outcome.mapped_first_bytes), _mebibytes(outcome.mapped_bytes)
    return f"{text}; {before} -> {after} mapped"


def _fact(name: str, text: str) -> list[str]:
    return _wrapped(text, f"  {name:<10}")


def kept(run: Run) -> Iterator[str]:
    """What can be done with what stays."""
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


def _table(outcomes: list[Outcome]) -> Iterator[str]:
    yield _line(_COLUMNS)
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
        yield _line(cells)
    yield f"(as the client had it in the last {outcomes[0].over_s:.0f} s of each)"


def _line(cells: tuple[str, ...]) -> str:
    first, *others = cells
    numbers = (cell.rjust(width) for cell, width in zip(others, _WIDTHS[1:], strict=True))
    return (first.ljust(_WIDTHS[0]) + "".join(numbers)).rstrip()


def _rate(bytes_per_s: float) -> str:
    """Three digits or so, in powers of ten."""
    if bytes_per_s >= 999.5e6:
        return f"{bytes_per_s / 1e9:.2f} GB/s"
    digits = 0 if bytes_per_s >= 99.95e6 else 1
    return f"{bytes_per_s / 1e6:.{digits}f} MB/s"


def _mebibytes(count: int) -> str:
    """3.5 MiB for 3584 KiB."""
    mebi = 1 << 20
    return size(count) if count < mebi or not count % mebi else f"{count / mebi:.1f} MiB"
