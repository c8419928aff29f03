# SPDX-License-Identifier: BSD-2-Clause
"""Draws the first lines: the server, its totals, and whether the picture is live."""

from __future__ import annotations

import time

from livedma.control.show.frame import Frame
from livedma.control.words import rate, size
from livedma.monitor.snapshot import Host, Snapshot
from livedma.ui.top.glyphs import Glyphs, printable
from livedma.ui.top.model import Model
from livedma.ui.top.picture import Line, cut, spread

__all__ = ["clock", "heading"]

_AGO_S = 90.0  # longer times are shown in minutes


def clock(wall_s: float) -> str:
    return time.strftime("%H:%M:%S", time.localtime(wall_s))


def heading(model: Model, width: int, glyphs: Glyphs) -> list[Line]:
    frame = model.frame
    title: Line = ((" livedma top ", "strong"),)
    if frame is not None:
        title = (*title, (f" {'  '.join(_server(frame, glyphs))}", ""))
    return [
        spread(title, _state(model), width, glyphs),
        cut(_second(model, glyphs), width, glyphs),
    ]


def _server(frame: Frame, glyphs: Glyphs) -> list[str]:
    """Returns parts; what may be long comes last, where it may be cut."""
    if not frame.is_steered:
        return [f"watching {printable(frame.server, glyphs)}, from outside"]
    return [
        f"policy {frame.policy}{', dry run' if frame.dry_run else ''}",
        f"watched by {frame.watching}",
        printable(frame.server, glyphs),
    ]


def _state(model: Model) -> Line:
    now_s = model.wall()
    if model.paused_since_s is not None:
        since_s = model.paused_since_s
        return ((f" PAUSED since {clock(since_s)}, {_ago(now_s - since_s)} ", "loud"),)
    if model.lost is not None:
        since_s = model.lost_since_s
        return ((f" NO SERVER since {clock(since_s)}, {_ago(now_s - since_s)} ", "loud"),)
    if model.quiet_s is not None:
        return ((f" NO ANSWER for {_ago(model.quiet_s)} ", "loud"),)
    if model.frame is None:
        return ((" waiting for the server ", ""),)
    return ((f" live {clock(model.frame.snapshot.wall_s)} ", "good"),)


def _ago(seconds: float) -> str:
    return f"{seconds:.0f} s" if seconds < _AGO_S else f"{seconds / 60:.0f} min"


def _second(model: Model, glyphs: Glyphs) -> Line:
    if model.lost is not None and model.paused_since_s is None:
        return ((f" {printable(model.lost.reason, glyphs)}: trying again", "bad"),)
    if model.frame is None:
        return ()
    snapshot = model.frame.snapshot
    host = snapshot.host
    connections, sessions = len(snapshot.connections), len(snapshot.sessions)
    parts = [
        f"{connections} connection{'' if connections == 1 else 's'}",
        f"{sessions:,} session{'' if sessions == 1 else 's'}",
        f"{snapshot.per_s(sum(one.operations for one in snapshot.connections)):,.0f} op/s",
        rate(snapshot.per_s(sum(one.bytes for one in snapshot.connections))),
    ]
    if model.frame.is_steered:
        parts.append(f"CPU {_busy(host, glyphs)}")
        parts.append(_memory(host, glyphs))
    line: Line = ((f" {'  '.join(parts)}", ""),)
    refuses = _refuses(snapshot)
    return (*line, (f"  REFUSES NEW SESSIONS {refuses}", "warn")) if refuses else line


def _refuses(snapshot: Snapshot) -> str:
    """Returns whose new sessions are refused; empty: nobody's."""
    if snapshot.host.refuses_sessions:
        return "of everybody"
    numbers = [str(one.number) for one in snapshot.connections if one.refuses_sessions]
    if not numbers:
        return ""
    more = f" and {len(numbers) - 4} more" if len(numbers) > 4 else ""
    return f"on connection {', '.join(numbers[:4])}{more}"


def _busy(host: Host, glyphs: Glyphs) -> str:
    """Returns the share of the threads that serve RDMA or TCP, whichever is higher."""
    known = [one for one in (host.cpu_busy, host.tcp_busy) if one is not None]
    return f"{max(known):.0%}" if known else glyphs.unknown


def _memory(host: Host, glyphs: Glyphs) -> str:
    mapped, budget, pinned = host.mapped_bytes, host.budget_bytes, host.pinned_bytes
    if mapped is None:
        return f"{glyphs.unknown} mapped"
    text = f"{size(mapped)} mapped{'' if budget is None else f' of {size(budget)}'}"
    if not mapped or pinned is None:
        return text
    return f"{text}, {'all' if pinned == mapped else size(pinned)} pinned"
