# SPDX-License-Identifier: BSD-2-Clause
"""Describes what a measurement is to do."""

from __future__ import annotations

import hashlib
import secrets
from dataclasses import asdict, dataclass
from enum import StrEnum
from typing import Any, TypeVar

from livedma.errors import LivedmaError
from livedma.rpc.names import TransportKind
from livedma.wire.words import amount

__all__ = ["Pattern", "Plan", "PlanError", "Work"]

_WORD = 8  # of the data that files are filled with
_FILE_LEAST = 1 << 20
_CALLS_MOST = 1024  # under way on one connection over RDMA, which keeps memory for each
_CONNECTIONS_MOST = 256
_SIZE_MOST = 1 << 30
_BLOCKS_ENOUGH = 16384  # writing them all takes a while
_BLOCKS_MOST = 1 << 32
_EBB = 1 / 8  # of sessions, at low tide


class PlanError(LivedmaError):
    """Reports a plan that makes no sense."""


class Work(StrEnum):
    """Names what sessions do with their files; MIX: about half of the operations are reads."""

    READ = "read"
    WRITE = "write"
    MIX = "mix"


class Pattern(StrEnum):
    """Names where in its file an operation goes: anywhere, or behind the one before."""

    RANDOM = "random"
    SEQUENTIAL = "sequential"


_Name = TypeVar("_Name", bound=StrEnum)


@dataclass(frozen=True, slots=True)
class Plan:
    """Says what a run is to do. rate: operations a second of all sessions together; None: each slot
    starts one after another.

    ramp: sessions that begin in a second; None: all at once. file_bytes: of each session's file.
    rw, pattern, proto: may be given as their strings.
    seed: of the files' data and of where sessions read and write; None: another one each time.
    follow: do what the server wants of connections, over RDMA. tide: seconds in which sessions go
    up from an eighth to all of them, and down again; None: all of them all the time.
    """

    sessions: int = 1
    depth: int = 4
    size: int = 65536
    rw: Work = Work.READ
    seconds: float = 10.0
    ramp: float | None = None
    rate: float | None = None
    connections: int = 1
    pattern: Pattern = Pattern.RANDOM
    proto: TransportKind = TransportKind.RDMA
    file_bytes: int = 0
    verify: bool = True
    directory: str = "/"
    seed: int | None = None
    follow: bool = True
    tide: float | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "rw", _named(Work, "rw", self.rw))
        object.__setattr__(self, "pattern", _named(Pattern, "pattern", self.pattern))
        object.__setattr__(self, "proto", _named(TransportKind, "proto", self.proto))
        self._check_directory()
        if self.connections > _CONNECTIONS_MOST:
            raise PlanError(
                f"{self.connections} connections: use --connections {_CONNECTIONS_MOST} or fewer"
            )
        if self.size > _SIZE_MOST:
            raise PlanError(
                f"operations of {self.size:,} bytes: use a --size of {_SIZE_MOST >> 20} MiB or less"
            )
        if self.size % _WORD:
            raise PlanError(f"operations of {amount(self.size, 'byte')}: use a multiple of {_WORD}")
        if self.connections > self.sessions:
            raise PlanError("there are more connections than sessions: use fewer connections")
        if self.tide is not None and self.tide <= 0:
            raise PlanError("a tide takes some time: use --tide 60s")
        if self.tide is not None and self.ramp is not None:
            raise PlanError("sessions come by --ramp or by --tide, not by both")
        if not self.file_bytes:
            blocks = max(min(_FILE_LEAST // self.size, _BLOCKS_ENOUGH), 4 * self.depth)
            object.__setattr__(self, "file_bytes", blocks * self.size)
        if self.file_bytes // self.size < self.depth:
            raise PlanError(
                f"a file of {self.file_bytes} bytes is too small for {self.depth} operations of "
                f"{self.size} at once: use --file-size {self.depth * self.size} or more"
            )
        if self.file_bytes // self.size >= _BLOCKS_MOST:
            raise PlanError("the file has more than 2^32 operations: use a larger --size")

    def _check_directory(self) -> None:
        if ".." in self.directory.split("/"):
            raise PlanError(
                f"--dir {self.directory}: write the way from the top of what the server exports, "
                "without .."
            )
        try:
            self.directory.encode()
        except UnicodeEncodeError:
            raise PlanError("--dir is no UTF-8: names in NFS are") from None

    @property
    def calls(self) -> int:
        """Returns the most calls under way on a connection, with some for other purposes."""
        per_connection = -(-self.sessions // self.connections) * self.depth
        return min(per_connection + 8, _CALLS_MOST)

    @property
    def interval_ns(self) -> int:
        """Returns the time between two operations of a session when all run; 0: at once."""
        return 0 if self.rate is None else max(round(self.sessions / self.rate * 1e9), 1)

    def active(self, elapsed_s: float) -> int:
        """Returns how many sessions work at a time after the begin."""
        if self.tide is None:
            return self.sessions
        place = elapsed_s / self.tide % 1
        height = 1 - abs(2 * place - 1)  # 0 at the begin, 1 in the middle
        return max(1, round(self.sessions * (_EBB + (1 - _EBB) * height)))

    def session_seed(self, number: int) -> int:
        """Returns the 64-bit seed of a session's data and places."""
        if self.seed is None:
            return secrets.randbits(64)
        said = f"{self.seed} {number}".encode()
        return int.from_bytes(hashlib.blake2b(said, digest_size=8).digest())

    def as_json(self) -> dict[str, Any]:
        return asdict(self)


def _named(kind: type[_Name], option: str, value: str) -> _Name:
    try:
        return kind(value)
    except ValueError:
        raise PlanError(f"--{option} {value}: use {', '.join(kind)}") from None
