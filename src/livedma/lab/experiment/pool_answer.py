# SPDX-License-Identifier: BSD-2-Clause
"""Says when a pool of shards helps, by how much, and when it does not."""

from __future__ import annotations

from collections.abc import Iterator

from livedma.lab.experiment.pool_ways import EACH, MESSAGE, PER_USE, PIECES, SLAB, USUAL
from livedma.lab.experiment.quantities import Value, quantity, times
from livedma.lab.experiment.runs import Runs, Spread
from livedma.lab.experiment.wording import is_clear, relation
from livedma.wire.words import amount

__all__ = ["answer"]

_MORE_BACK = 0.05  # of the memory: less counts as no difference
_LARGE = 0.5  # of the difference that misses make: more is most of it

Levels = dict[str, Value]


def answer(runs: Runs) -> list[str]:
    """Returns when it helps, against the ways to do without, and the figures behind that."""
    works = Runs([row for row in runs if row.measures.get("outcome") == "works"])
    if not {USUAL, EACH} <= set(works.levels("way")):
        return [f"Shards of {USUAL} and a mapping for each buffer could not both be measured."]
    buffers, connections = (works.levels(name) for name in ("buffers", "connections"))
    largest: Levels = {"buffers": buffers[-1], "connections": connections[-1]}
    smallest: Levels = {"buffers": buffers[0], "connections": connections[0]}
    return [
        _headline(works, largest, smallest),
        *_against_each(works, smallest),
        *_against_each(works, largest),
        *_misses(works, largest),
        *_on_the_wire(works, largest),
        *_slab(works, largest),
        *_pieces(works, largest),
        *_per_use(works, largest),
        *_refusals(runs),
    ]


def _place(levels: Levels) -> str:
    connections, buffers = (int(str(levels[name])) for name in ("connections", "buffers"))
    return f"{amount(connections, 'connection')} of {amount(buffers, 'buffer')} each"


def _way(name: str) -> Levels:
    return {"way": name}


def _gain(runs: Runs, measure: str, other: str, levels: Levels) -> Spread | None:
    """Returns how many times as much the other way costs as shards do."""
    return runs.ratio(measure, _way(other), _way(USUAL), **levels)


def _both(runs: Runs, measure: str, unit: str, other: str, levels: Levels) -> str:
    """Returns the figure of the shards and that of the other way, in words."""
    ours, its = (runs.median(measure, way=way, **levels) for way in (USUAL, other))
    return f"{quantity(ours, unit)} instead of {quantity(its, unit)}"


def _headline(runs: Runs, largest: Levels, smallest: Levels) -> str:
    receive = _gain(runs, "receive_ns", EACH, largest)
    wire = _wire(runs, largest)
    helps, shows = (one is not None and is_clear(one) and one.median > 1 for one in (receive, wire))
    setup = _gain(runs, "setup_ns", EACH, largest)
    if not helps:
        verdict = "do not make a Receive cheaper"
    elif shows:
        verdict = "help"
    else:
        verdict = "save work, and give no throughput"
    seen = (
        f"on the wire throughput is {relation(wire, 'more', 'less')}"
        if shows
        else f"on the wire, where a message takes {_message(runs, largest)}, it does not show"
    )
    return (
        f"Shards of {USUAL} {verdict}: with {_place(largest)} a Receive costs "
        f"{_both(runs, 'receive_ns', 'ns', EACH, largest)} with a mapping for each buffer "
        f"({_ratio(receive)}), set-up {_both(runs, 'setup_ns', 'ns', EACH, largest)} "
        f"({_ratio(setup)}), and {seen}; with {_place(smallest)} a Receive costs "
        f"{_both(runs, 'receive_ns', 'ns', EACH, smallest)}."
    )


def _ratio(gain: Spread | None) -> str:
    if gain is None:
        return "not measured"
    low, median, high = (times(value) for value in (gain.low, gain.median, gain.high))
    return f"{median}; {low} to {high}" if is_clear(gain) else "no clear difference"


def _message(runs: Runs, levels: Levels) -> str:
    rate = runs.median("receive_bytes_per_s", way=USUAL, **levels)
    return quantity(MESSAGE * 1e9 / rate if rate else None, "ns")


def _against_each(runs: Runs, levels: Levels) -> Iterator[str]:
    mapping, receive = (_gain(runs, name, EACH, levels) for name in ("map_ns", "receive_ns"))
    if mapping is None or receive is None:
        return
    yield (
        f"{_place(levels)}, shards of {USUAL} against a mapping for each buffer: "
        f"{_both(runs, 'mappings', 'count', EACH, levels)} mappings, made in "
        f"{_both(runs, 'map_ns', 'ns', EACH, levels)}, beside "
        f"{quantity(runs.median('memory_ns', way=USUAL, **levels), 'ns')} for finding the memory; "
        f"{_both(runs, 'miss_share', 'share', EACH, levels)} translation misses; a Receive costs "
        f"{_both(runs, 'receive_ns', 'ns', EACH, levels)} "
        f"({relation(receive, 'more for each', 'less for each')})."
    )


def _misses(runs: Runs, levels: Levels) -> Iterator[str]:
    """Says what a miss costs: shards in pieces have the misses, and are equal otherwise."""
    with_misses, without, each = (
        runs.median("device_ns", way=way, **levels) for way in (PIECES, USUAL, EACH)
    )
    some, few = (runs.median("miss_share", way=way, **levels) for way in (PIECES, USUAL))
    if with_misses is None or without is None or each is None or some is None or few is None:
        return
    if some - few < _LARGE:
        yield f"Pieces miss no more than shards do here ({_place(levels)})."
        return
    cost = runs.ratio("device_ns", _way(PIECES), _way(USUAL), **levels)
    if not is_clear(cost) or with_misses < without:
        yield f"What a translation miss costs this device cannot be told ({_ratio(cost)})."
        return
    yield (
        "A translation miss costs this device some "
        f"{quantity((with_misses - without) / (some - few), 'ns')}: the same shards with memory in "
        f"pieces miss {quantity(some, 'share')} instead of {quantity(few, 'share')} and take the "
        f"device {quantity(with_misses, 'ns')} instead of {quantity(without, 'ns')} per Receive "
        f"({_ratio(cost)}; {quantity(each, 'ns')} with a mapping for each buffer). For a device "
        "whose miss costs 500 ns the same counts would be "
        f"{quantity(500 * (some - few), 'ns')} per Receive."
    )


def _on_the_wire(runs: Runs, levels: Levels) -> Iterator[str]:
    wire = _wire(runs, levels)
    if wire is not None:
        yield (
            f"On the wire a message takes {_message(runs, levels)} with shards, of which the "
            f"host's part is {_both(runs, 'refill_ns', 'ns', EACH, levels)}; throughput, whatever "
            f"the number of buffers, is {relation(wire, 'more', 'less')}."
        )


def _wire(runs: Runs, levels: Levels) -> Spread | None:
    """Returns the ratio of throughputs, for all numbers of buffers together: it takes more than one
    point to tell a small difference from other programs' noise.
    """
    connections = {"connections": levels["connections"]}
    return runs.ratio("receive_bytes_per_s", _way(USUAL), _way(EACH), **connections)


def _slab(runs: Runs, levels: Levels) -> Iterator[str]:
    receive = runs.ratio("receive_ns", _way(USUAL), _way(SLAB), **levels)
    ours, its = (runs.median("given_back_share", way=way, **levels) for way in (USUAL, SLAB))
    if receive is None or ours is None or its is None:
        return
    mappings = (quantity(runs.median("mappings", way=w, **levels), "count") for w in (USUAL, SLAB))
    back = (
        f"a slab gives back {quantity(its, 'share')} of its memory at a quarter of the load, and "
        f"shards {quantity(ours, 'share')}"
        if ours - its > _MORE_BACK
        else "shards give back no more of their memory at a quarter of the load than a slab"
    )
    yield (
        "Against one slab for each connection, shards have "
        f"{' mappings instead of '.join(mappings)}; the cost of a Receive is "
        f"{relation(receive, 'more', 'less')}; {back}."
    )


def _pieces(runs: Runs, levels: Levels) -> Iterator[str]:
    gain = runs.ratio("receive_ns", _way(EACH), _way(PIECES), **levels)
    mapping = runs.ratio("map_ns", _way(PIECES), _way(USUAL), **levels)
    if gain is None or mapping is None:
        return
    found, scattered = (
        runs.median(name, way=USUAL, **levels) for name in ("frame_runs", "scattered_runs")
    )
    if found is not None and scattered is not None:
        yield (
            f"Memory in one piece is not to be had for the asking: a shard of {USUAL} came in "
            f"{quantity(found, 'count')} pieces of physical memory as this machine's memory is, "
            f"and in {quantity(scattered, 'count')} after it had been scattered."
        )
    some, each = (runs.median("miss_share", way=way, **levels) for way in (PIECES, EACH))
    kept = is_clear(gain) and gain.median > 1
    yield (
        f"In such pieces of 4 KiB a shard still is one mapping, made "
        f"{relation(mapping, 'slower', 'faster')} than one of memory in one piece, but "
        f"{quantity(some, 'share')} of accesses miss, as with a mapping for each buffer "
        f"({quantity(each, 'share')}); a Receive is {relation(gain, 'cheaper', 'dearer')} than "
        f"there{': the pool keeps account of fewer shards' if kept else ''}."
    )


def _per_use(runs: Runs, levels: Levels) -> Iterator[str]:
    receive = _gain(runs, "receive_ns", PER_USE, levels)
    host = _gain(runs, "host_ns", PER_USE, levels)
    if receive is not None and host is not None:
        yield (
            f"Mapping for each use needs no set-up, but each Receive costs "
            f"{relation(receive, 'more', 'less')} than with shards "
            f"({_both(runs, 'receive_ns', 'ns', PER_USE, levels)}; the host's part "
            f"{times(host.median)}), and each unmapping empties the translation cache of all "
            "connections."
        )


def _refusals(runs: Runs) -> Iterator[str]:
    for row in runs:
        outcome = str(row.measures.get("outcome", ""))
        if outcome.startswith("refused") and row.repetition == 0:
            yield f"{row.point['way']}, {_place(dict(row.point))}: {outcome}."
