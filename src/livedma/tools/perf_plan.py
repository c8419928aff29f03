# SPDX-License-Identifier: BSD-2-Clause
"""Describes what a measurement is to do: the client decides, the server checks."""

from __future__ import annotations

import struct
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, Self

__all__ = ["ALL_SIZES", "MEMORY_KINDS", "Hello", "Plan", "PlanError", "Remote"]

ALL_SIZES = tuple(1 << n for n in range(1, 24))  #: as perftest's -a: 2 B to 8 MiB
#: what perf_memory can allocate
MEMORY_KINDS = ("pinned", "on-demand", "window", "window-2m", "flat", "flat-2m")

_OPERATIONS = ("send", "write", "read")
_KINDS = ("bw", "lat")
_MAX_SIZE = 1 << 30
_MAX_ITERATIONS = {"bw": 1 << 40, "lat": 10_000_000}  # lat keeps each time
_MAX_DEPTH = 8192
_MAX_QPS = 1024
_MAX_SPAN = 16 << 30
_MAX_UNDER_WAY = 1 << 20  # of all connections together


class PlanError(ValueError):
    """Says in one sentence what cannot be measured."""


@dataclass(frozen=True)
class Plan:
    operation: str  #: send, write or read
    kind: str  #: bw or lat
    sizes: tuple[int, ...]
    iterations: int  #: of each connection
    qps: int
    depth: int  #: requests under way on a connection
    span: int = 0  #: bytes of the server's memory that messages go round; 0: all to one place

    def __post_init__(self) -> None:
        if self.operation not in _OPERATIONS or self.kind not in _KINDS:
            raise PlanError("only send, write and read can be measured, as bw or lat")
        limits = (
            ("messages", len(self.sizes), len(ALL_SIZES), "sizes"),
            *(("a message", size, _MAX_SIZE, "bytes") for size in self.sizes),
            ("a measurement", self.iterations, _MAX_ITERATIONS[self.kind], "iterations"),
            ("a measurement", self.qps, _MAX_QPS, "queue pairs"),
            ("a queue pair", self.depth, _MAX_DEPTH, "requests under way"),
            ("a measurement", self.qps * self.depth, _MAX_UNDER_WAY, "requests under way"),
        )
        for what, value, largest, unit in limits:
            if type(value) is not int or not 1 <= value <= largest:
                raise PlanError(f"{what} can have 1 to {largest} {unit}, not {value}")
        if type(self.span) is not int or not 0 <= self.span <= _MAX_SPAN:
            raise PlanError(f"messages can go round up to {_MAX_SPAN} bytes, not {self.span}")
        if self.span and (self.kind == "lat" or self.operation == "send"):
            raise PlanError("only write-bw and read-bw can go round the server's memory")
        if self.kind == "lat" and self.qps != 1:
            raise PlanError("a latency is that of one queue pair")

    @property
    def test(self) -> str:
        return f"{self.operation}-{self.kind}"

    @property
    def total(self) -> int:
        """Returns the iterations of all connections."""
        return self.iterations * self.qps

    @property
    def receives(self) -> int:
        """Returns how many to post on a connection: enough for a receiver that is a little late."""
        return max(512, 4 * self.depth)

    @property
    def both_send(self) -> bool:
        return self.kind == "lat" and self.operation != "read"

    def as_message(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_message(cls, message: Mapping[str, Any]) -> Self:
        """Parses a message; raises PlanError, since a peer may send anything."""
        try:
            return cls(
                operation=message["operation"],
                kind=message["kind"],
                sizes=tuple(message["sizes"]),
                iterations=message["iterations"],
                qps=message["qps"],
                depth=message["depth"],
                span=message.get("span", 0),
            )
        except (KeyError, TypeError) as error:
            raise PlanError(f"this is no measurement: {error}") from None


@dataclass(frozen=True)
class Remote:
    """Describes one side's region, for the other side to use."""

    va: int
    rkey: int
    length: int

    def as_message(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_message(cls, message: Mapping[str, Any]) -> Self:
        values = [message.get(name) for name in ("va", "rkey", "length")]
        for value, bits in zip(values, (64, 32, 36), strict=True):
            if type(value) is not int or not 0 <= value < 1 << bits:
                raise PlanError(f"this is no memory: {values}")
        return cls(*values)  # type: ignore[arg-type]


_HELLO = struct.Struct("!4sBBHQ")
_MAGIC, _VERSION = b"LDpf", 1


@dataclass(frozen=True)
class Hello:
    """Holds the private data of a connection request: its run, and its number in the run.

    Connection 0 is for messages about the run, those from 1 on are measured.
    """

    run: int
    number: int

    def pack(self) -> bytes:
        return _HELLO.pack(_MAGIC, _VERSION, 0, self.number, self.run)

    @classmethod
    def parse(cls, data: bytes) -> Self | None:
        if len(data) < _HELLO.size:
            return None
        magic, version, _, number, run = _HELLO.unpack_from(data)
        return cls(run, number) if (magic, version) == (_MAGIC, _VERSION) else None
