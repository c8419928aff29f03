# SPDX-License-Identifier: BSD-2-Clause
"""Compares each policy with static, and says what policies did where memory was enough."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass

from livedma.lab.experiment.design import Section
from livedma.lab.experiment.quantities import quantity, times
from livedma.lab.experiment.runs import Row, Runs, Spread
from livedma.lab.experiment.wording import confidence
from livedma.wire.words import amount

__all__ = [
    "BARS",
    "EXTEND",
    "FULL_SESSIONS",
    "MEMORY",
    "POLICIES",
    "STATIC",
    "Bar",
    "answer",
    "sections",
]

MEMORY = "memory"
STATIC, EXTEND = "static", "extend"
POLICIES = (STATIC, "spread", "migrate", EXTEND)
FULL_SESSIONS = 64  #: full load: the level at which policies are compared

_SCALES = 1.25  # if bandwidth grows by less for twice the sessions, it no longer follows


@dataclass(frozen=True)
class Bar:
    """Sets a bar that a figure has to reach, against static's figure or by itself."""

    policy: str
    measure: str
    text: str
    least: float | None = None
    most: float | None = None
    is_ratio: bool = True

    def found(self, runs: Runs) -> Spread | None:
        here = runs.where(situation=MEMORY)
        if not self.is_ratio:
            return _up_to_full(here.where(policy=self.policy)).spread(self.measure)
        return here.ratio(
            self.measure, {"policy": self.policy}, {"policy": STATIC}, sessions=FULL_SESSIONS
        )

    def is_met(self, spread: Spread) -> bool:
        """Judges ratios by their median, and what must never happen by the worst run."""
        low, high = (spread.median,) * 2 if self.is_ratio else (spread.low, spread.high)
        return (self.least is None or low >= self.least) and (
            self.most is None or high <= self.most
        )

    @property
    def wanted(self) -> str:
        unit = times if self.is_ratio else (lambda value: quantity(value, "count"))
        if self.least is not None and self.least == self.most:
            return unit(self.least)
        return f">= {unit(self.least)}" if self.least is not None else f"<= {unit(self.most or 0)}"


def _up_to_full(runs: Runs) -> Runs:
    """Returns the rows without the levels beyond, where sessions may be refused."""
    return Runs([row for row in runs if int(str(row.point["sessions"] or 0)) <= FULL_SESSIONS])


def _clean(policy: str) -> Iterator[Bar]:
    for measure, text in (
        ("errors", "errors"),
        ("reconnects", "reconnects"),
        ("refused", "sessions refused"),
    ):
        yield Bar(
            policy, measure, f"{text}, up to {FULL_SESSIONS} sessions", most=0, is_ratio=False
        )


BARS = (
    Bar(EXTEND, "bytes_per_s", "bandwidth against static", least=2.5),
    Bar(EXTEND, "p99_us", "p99 against static", most=0.5),
    Bar(
        EXTEND, "connections", f"connections, up to {FULL_SESSIONS} sessions", 1, 1, is_ratio=False
    ),
    *_clean(EXTEND),
    *(
        bar
        for policy in ("spread", "migrate")
        for bar in (
            Bar(policy, "bytes_per_s", "bandwidth against static", least=2.0),
            *_clean(policy),
        )
    ),
)


def answer(runs: Runs) -> list[str]:
    main = runs.where(situation=MEMORY)
    sentences = [
        *(_against_static(main, policy) for policy in reversed(POLICIES) if policy != STATIC),
        *_knee(main),
        *_busy(main),
        *_beside(runs),
    ]
    return [one for one in sentences if one] or ["Too little was measured for an answer."]


def _against_static(main: Runs, policy: str) -> str:
    """Returns the gain of a policy, with its costs."""
    one, other = {"policy": policy}, {"policy": STATIC}
    speed = main.ratio("bytes_per_s", one, other, sessions=FULL_SESSIONS)
    late = main.ratio("p99_us", one, other, sessions=FULL_SESSIONS)
    if speed is None or late is None:
        return ""
    here = main.where(policy=policy)
    full = here.where(sessions=FULL_SESSIONS)
    connections, mapped = (full.median(name) for name in ("connections", "mapped_bytes"))
    errors, reconnects = (sum(here.values(name)) for name in ("errors", "reconnects"))
    moved = full.median("moved")
    pause = here.spread("pause_us")
    costs = [
        amount(int(connections or 0), "connection"),
        f"{quantity(mapped, 'bytes')} mapped",
        f"{amount(int(errors), 'error')} and {amount(int(reconnects), 'reconnect')} in all runs",
    ]
    if moved and pause is not None:
        costs.append(
            f"{amount(int(moved), 'session')} moved, none without an answer for more than "
            f"{quantity(pause.high, 'us')}"
        )
    return (
        f"With {FULL_SESSIONS} sessions {policy} gives {_range(speed)} the bandwidth of static at "
        f"{_range(late)} its p99: {', '.join(costs)}."
    )


def _range(ratio: Spread) -> str:
    low, median, high = (times(value) for value in (ratio.low, ratio.median, ratio.high))
    return f"{median} ({low} to {high})"


def _knee(main: Runs) -> Iterator[str]:
    """Says up to where bandwidth follows the sessions without help."""
    here = main.where(policy=STATIC)
    levels = [int(str(level)) for level in here.levels("sessions")]
    for less, more in itertools.pairwise(levels):
        gain = here.ratio("bytes_per_s", {"sessions": more}, {"sessions": less})
        if gain is not None and gain.median < 1 + (_SCALES - 1) * (more / less - 1):
            speed, late = (here.median(m, sessions=more) for m in ("bytes_per_s", "p99_us"))
            yield (
                f"Under static, bandwidth follows the sessions up to {less}; with {more} it is "
                f"{quantity(speed, 'bytes_per_s')}, {_range(gain)} of that, with a p99 of "
                f"{quantity(late, 'us')}."
            )
            return


def _busy(main: Runs) -> Iterator[str]:
    late = [row for row in main if row.measures.get("actions_meanwhile")]
    if late:
        yield (
            f"In {len(late)} of {len(main.rows)} measurements the controller acted meanwhile: "
            "those figures are of a server that was being changed."
        )


@dataclass(frozen=True)
class _Beside:
    """Says what was done in a situation where something else is short."""

    name: str
    rows: list[Row]

    @property
    def extended(self) -> int:
        """Returns the runs that ended with more data buffers than a connection begins with."""
        return sum(_was_extended(row) for row in self.rows)

    @property
    def limits(self) -> str:
        words = (word for row in self.rows for word in str(row.measures["limits"]).split(", "))
        return ", ".join(dict.fromkeys(words))


def _was_extended(row: Row) -> bool:
    first, last = (row.measures.get(name) for name in ("buffers_first", "buffers"))
    return isinstance(first, int) and isinstance(last, int) and last > first


def _besides(runs: Runs) -> list[_Beside]:
    rows = [row for row in runs.where(policy=EXTEND) if not row.problem]
    names = dict.fromkeys(str(row.point["situation"]) for row in rows)
    return [
        _Beside(name, [row for row in rows if row.point["situation"] == name])
        for name in names
        if name != MEMORY
    ]


def _beside(runs: Runs) -> Iterator[str]:
    found = _besides(runs)
    if not found:
        return
    total, extended = sum(len(one.rows) for one in found), sum(one.extended for one in found)
    where = ", ".join(one.name for one in found)
    named = "; ".join(f"{one.name}: {one.limits}" for one in found)
    yield (
        f"Where memory is not short ({where}), memory was extended in {extended} of "
        f"{amount(total, 'run')}; named as limits: {named}."
    )


def sections(runs: Runs) -> list[Section]:
    found = [_bars(runs), _ablations(runs), _decisions(runs)]
    return [one for one in found if one.body or one.log]


def _bars(runs: Runs) -> Section:
    body = []
    count = 0
    for bar in BARS:
        spread = bar.found(runs)
        if spread is None:
            continue
        column = times if bar.is_ratio else (lambda value: quantity(value, "count"))
        low, median, high = (column(value) for value in (spread.low, spread.median, spread.high))
        count = max(count, spread.count if bar.is_ratio else 0)
        met = "yes" if bar.is_met(spread) else "NO"
        body.append((bar.policy, bar.text, bar.wanted, median, f"{low} to {high}", met))
    return Section(
        "What it has to reach",
        (
            f"With {FULL_SESSIONS} sessions. A ratio is taken between runs of the same turn; its "
            f"median over the turns is compared. {confidence(count)} What must not happen at all "
            "is judged by the worst row.",
        ),
        ("policy", "what", "wanted", "median", "range", "reached"),
        body,
    )


def _ablations(runs: Runs) -> Section:
    body = []
    for one in _besides(runs):
        speed = runs.ratio(
            "bytes_per_s", {"policy": EXTEND}, {"policy": STATIC}, situation=one.name
        )
        last = one.rows[-1].measures
        levers = [
            f"{word} {first} to {now}"
            for word, first, now in (
                ("credits", last.get("credits_first"), last.get("credits")),
                ("data buffers", last.get("buffers_first"), last.get("buffers")),
            )
            if first != now
        ]
        if last.get("slots_set"):
            levers.append(f"slots of {last['slots_set']} sessions")
        body.append(
            (
                one.name,
                one.limits,
                ", ".join(levers) or "none",
                f"{one.extended} of {len(one.rows)}",
                "-" if speed is None else _range(speed),
            )
        )
    return Section(
        "Where memory is not the limit",
        (
            "Each is short by construction. The controller has to leave memory alone; where there "
            "is a lever for what is short it may use that.",
        ),
        ("short", "named as limits", "levers used", "runs with extension", "against static"),
        body,
    )


def _decisions(runs: Runs) -> Section:
    """Returns the decisions of the first turn, as they were logged."""
    lines: list[str] = []
    for row in runs:
        said = str(row.measures.get("decisions") or "").splitlines()
        if row.repetition == 0 and said:
            lines += [_head(row), *said]
    return Section(
        "Decisions",
        ("What the controller said in the first turn; times since the run began.",),
        log=lines,
    )


def _head(row: Row) -> str:
    situation, policy, sessions = (row.point[name] for name in ("situation", "policy", "sessions"))
    return f"-- {situation}, {policy}, {sessions} sessions"
