# SPDX-License-Identifier: BSD-2-Clause
"""Says when a pool of shards helps, and when it does not."""

from __future__ import annotations

from collections.abc import Iterator

from livedma.lab.experiment.quantities import Value, quantity
from livedma.lab.experiment.runs import Runs
from livedma.lab.experiment.wording import is_clear, relation
from livedma.wire.words import amount

__all__ = ["EACH", "SLAB", "answer"]

EACH, SLAB, USUAL = "each buffer", "one slab", "64 KiB"

_CALLED = {EACH: "a mapping for each buffer", SLAB: "one slab"}
_COMPARED = {  # measure: its name for people, whether less is better, and the words
    "setup_ns": ("setup", True, "faster", "slower"),
    "teardown_ns": ("teardown", True, "faster", "slower"),
    "receive_ns": ("cost per Receive", True, "less", "more"),
    "receive_bytes_per_s": ("throughput", False, "more", "less"),
    "resident_bytes": ("memory", True, "less", "more"),
}
_MORE_BACK = 0.05  # of the memory: less counts as no difference

Levels = dict[str, Value]


def answer(runs: Runs) -> list[str]:
    """Returns when it helps, against both ways to do without, and the figures behind that."""
    works = Runs([row for row in runs if row.measures.get("outcome") == "works"])
    buffers, connections = (works.levels(name) for name in ("buffers", "connections"))
    if USUAL not in works.levels("shard"):
        return [f"No pool with shards of {USUAL} could be measured."]
    largest: Levels = {"buffers": buffers[-1], "connections": connections[-1]}
    smallest: Levels = {"buffers": buffers[0], "connections": connections[0]}
    return [
        _headline(works, largest),
        *_verdict(works, EACH, largest),
        *_verdict(works, SLAB, largest),
        *_figures(works, "setup_ns", "Setup", smallest),
        *_figures(works, "given_back_share", "Given back at a quarter of the load", smallest),
        *_figures(works, "receive_ns", "Cost per Receive", largest),
        *_figures(works, "miss_share", "Translation misses", largest),
        *_refusals(runs),
    ]


def _place(levels: Levels) -> str:
    connections, buffers = (int(str(levels[name])) for name in ("connections", "buffers"))
    return f"{amount(connections, 'connection')} of {amount(buffers, 'buffer')} each"


def _headline(runs: Runs, levels: Levels) -> str:
    usual, each = {"shard": USUAL}, {"shard": EACH}
    setup = runs.ratio("setup_ns", each, usual, **levels)
    speed = runs.ratio("receive_bytes_per_s", usual, each, **levels)
    ours, its = (runs.median("given_back_share", shard=s, **levels) for s in (USUAL, SLAB))
    helps = []
    if setup is not None and is_clear(setup) and setup.median > 1:
        helps.append(
            f"where connections come and go (set up {relation(setup, 'faster', 'slower')} than "
            f"with {_CALLED[EACH]})"
        )
    if ours is not None and its is not None and ours - its > _MORE_BACK:
        helps.append(
            f"where the load falls ({quantity(ours, 'share')} of the memory can be given back, "
            f"{quantity(its, 'share')} of {_CALLED[SLAB]})"
        )
    is_faster = speed is not None and is_clear(speed) and speed.median > 1
    if is_faster:
        helps.append(f"in receiving ({relation(speed, 'faster', 'slower')})")
    if not helps:
        return "A pool of shards helps with nothing that was measured."
    but = "" if is_faster else "; receiving is not clearly faster"
    *most, last = helps
    return f"A pool of shards helps {', '.join(most)}{' and ' if most else ''}{last}{but}."


def _verdict(runs: Runs, other: str, levels: Levels) -> Iterator[str]:
    """Says in what shards are better than the other way, and in what not."""
    better, worse, alike = [], [], []
    for measure, (name, is_cost, good, bad) in _COMPARED.items():
        others, usual = {"shard": other}, {"shard": USUAL}
        one, two = (others, usual) if is_cost else (usual, others)
        gain = runs.ratio(measure, one, two, **levels)
        if gain is None:
            continue
        if not is_clear(gain):
            alike.append(name)
        elif gain.median > 1:
            better.append(f"{name} ({relation(gain, good, bad)})")
        else:
            worse.append(f"{name} ({relation(gain, good, bad)})")
    ours, its = (runs.median("given_back_share", shard=s, **levels) for s in (USUAL, other))
    if ours is not None and its is not None:
        text = f"giving memory back ({quantity(ours, 'share')} against {quantity(its, 'share')})"
        gain_share = ours - its
        side = better if gain_share > _MORE_BACK else worse if gain_share < -_MORE_BACK else alike
        side.append(text if side is not alike else "giving memory back")
    parts = [
        f"{word} {', '.join(names)}"
        for word, names in (
            ("help", better),
            ("cost", worse),
            ("make no clear difference to", alike),
        )
        if names
    ]
    if parts:
        where = _place(levels)
        yield f"Against {_CALLED[other]}, shards of {USUAL} {'; they '.join(parts)} ({where})."


def _figures(runs: Runs, measure: str, name: str, levels: Levels) -> Iterator[str]:
    unit = {"ns": "ns", "share": "share"}.get(measure.rpartition("_")[2], "count")
    found = [
        f"{shard} {quantity(median, unit)}"
        for shard in runs.levels("shard")
        if (median := runs.median(measure, shard=shard, **levels)) is not None
    ]
    if found:
        yield f"{name} with {_place(levels)}, by shard: {', '.join(found)}."


def _refusals(runs: Runs) -> Iterator[str]:
    for row in runs:
        outcome = str(row.measures.get("outcome", ""))
        if outcome.startswith("refused") and row.repetition == 0:
            yield f"Shard {row.point['shard']}, {_place(dict(row.point))}: {outcome}."
