# SPDX-License-Identifier: BSD-2-Clause
"""Lists the ways to map Receive buffers, and measures them in turns, without a wire."""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field

from livedma._native.mapped import Mapped, receive
from livedma._native.rdma import Engine, ProtectionDomain
from livedma.lab.experiment.quantities import Value

__all__ = [
    "BUFFER",
    "EACH",
    "MESSAGE",
    "PER_USE",
    "PIECES",
    "SLAB",
    "USUAL",
    "WAYS",
    "Way",
    "mapped",
    "measure",
]

BUFFER = 4096
MESSAGE = 1024

EACH, PER_USE = "each buffer", "each use"
USUAL, PIECES, SLAB = "64 KiB", "64 KiB in pieces", "one slab"

_SET_UPS = 3
_SLICES = 101
_MESSAGES = 2_000  # of a slice: shorter than a time slice of another program


@dataclass(frozen=True)
class Way:
    """Says how much is mapped at a time; 0: all buffers of the connection."""

    mapping_bytes: int = 0
    piece_bytes: int = 0  #: of the mapping's memory; 0: it is one piece
    is_per_use: bool = False


WAYS = {
    EACH: Way(BUFFER),
    "16 KiB": Way(16 << 10),
    USUAL: Way(64 << 10),
    "1 MiB": Way(1 << 20),
    SLAB: Way(),
    PIECES: Way(64 << 10, BUFFER),
    PER_USE: Way(0, BUFFER, is_per_use=True),
}


def mapped(name: str, engine: Engine, buffers: int, pd: ProtectionDomain | None = None) -> Mapped:
    """Maps the buffers of one connection. Raises OSError if there is no room for them."""
    way = WAYS[name]
    return Mapped(
        engine,
        buffers,
        BUFFER,
        way.mapping_bytes or buffers * BUFFER,
        pd=pd,
        piece_size=way.piece_bytes,
        per_use=way.is_per_use,
    )


@dataclass
class _Contestant:
    """Has a device of its own, without a wire, and with it a translation cache of its own."""

    name: str
    engine: Engine = field(default_factory=Engine)
    connections: list[Mapped] = field(default_factory=list)
    times: dict[str, list[float]] = field(default_factory=dict)

    def set_up(self, buffers: int, connections: int) -> None:
        self.connections = [mapped(self.name, self.engine, buffers) for _ in range(connections)]
        memory_ns = sum(each.memory_ns for each in self.connections)
        map_ns = sum(each.map_ns for each in self.connections)
        self._add("memory_ns", memory_ns)
        self._add("map_ns", map_ns)
        self._add("setup_ns", memory_ns + map_ns)

    def tear_down(self) -> None:
        self._add("unmap_ns", sum(each.close() for each in self.connections))

    def close(self) -> None:
        for each in self.connections:
            each.close()

    def receive(self, messages: int) -> None:
        host_ns, device_ns = receive(self.connections, bytes(MESSAGE), messages)
        self._add("host_ns", host_ns / messages)
        self._add("device_ns", device_ns / messages)
        self._add("receive_ns", (host_ns + device_ns) / messages)

    def _add(self, name: str, value: float) -> None:
        self.times.setdefault(name, []).append(value)

    def medians(self) -> dict[str, Value]:
        return {name: statistics.median(values) for name, values in self.times.items()}


@contextmanager
def _closing(contestants: Sequence[_Contestant]) -> Iterator[None]:
    with ExitStack() as stack:
        for one in contestants:
            stack.callback(one.close)
        yield


def measure(names: Sequence[str], buffers: int, connections: int) -> dict[str, dict[str, Value]]:
    """Returns what was measured of each way. They take turns at every step, so that what slows the
    machine down meets all of them. Raises OSError if there is no room.
    """
    contestants = [_Contestant(name) for name in names]
    with _closing(contestants):
        for turn in range(_SET_UPS):
            for one in _in_turn(contestants, turn):
                one.set_up(buffers, connections)
                if turn < _SET_UPS - 1:
                    one.tear_down()
        made = {one.name: _made(one) for one in contestants}
        for one in contestants:  # each buffer was used once before anything counts
            receive(one.connections, bytes(MESSAGE), max(_MESSAGES, buffers * connections))
        before = {one.name: one.engine.translations for one in contestants}
        for turn in range(_SLICES):
            for one in _in_turn(contestants, turn):
                one.receive(_MESSAGES)
        missed = {one.name: _miss_share(one, before[one.name]) for one in contestants}
        for one in contestants:
            one.tear_down()
    return {
        one.name: {**made[one.name], **one.medians(), "miss_share": missed[one.name]}
        for one in contestants
    }


def _in_turn(contestants: Sequence[_Contestant], turn: int) -> list[_Contestant]:
    """Returns them in another order each turn: none is always the first, or behind the same."""
    start = turn * 3 % len(contestants)
    order = [*contestants[start:], *contestants[:start]]
    return order if turn % 2 else order[::-1]


def _made(one: _Contestant) -> dict[str, Value]:
    """Returns what set-up has made; where each use has a mapping, it makes none."""
    return {
        "mappings": sum(each.mappings for each in one.connections) or None,
        "pieces": sum(each.pieces for each in one.connections) or None,
        "mapped_bytes": sum(each.length for each in one.connections),
    }


def _miss_share(one: _Contestant, before: tuple[int, int]) -> float:
    hits, misses = (now - then for now, then in zip(one.engine.translations, before, strict=True))
    return misses / (hits + misses)
