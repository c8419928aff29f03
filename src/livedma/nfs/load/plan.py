"""What is to be measured."""

from __future__ import annotations

import hashlib
import secrets
from dataclasses import asdict, dataclass
from typing import Any, Literal

from livedma.errors import LivedmaError

__all__ = ["Plan", "PlanError"]

_WORD = 8  # of the data that files are filled with
_FILE_LEAST = 1 << 20
_CALLS_MOST = 1024  # under way on one connection over RDMA, whose memory has to be there for each
_BLOCKS_MOST = 1 << 32
_EBB = 1 / 8  # of sessions, at the least


class PlanError(LivedmaError):
    """A measurement that makes no sense."""


@dataclass(frozen=True, slots=True)
class Plan:
    """rate: operations a second of all sessions together; None: each slot has one after the other.

    ramp: sessions that begin in a second; None: all at once. file_bytes: of each session's file.
    seed: of the files' data and of where sessions read and write; None: another one each time.
    follow: do what the server wants of connections, over RDMA. tide: seconds in which sessions go
    up from an eighth to all of them, and down again; None: all of them all the time.
    """

    sessions: int = 1
    depth: int = 4
    size: int = 65536
    rw: Literal["read", "write", "mix"] = "read"
    seconds: float = 10.0
    ramp: float | None = None
    rate: float | None = None
    connections: int = 1
    pattern: Literal["random", "sequential"] = "random"
    proto: Literal["rdma", "tcp"] = "rdma"
    file_bytes: int = 0
    verify: bool = True
    directory: str = "/"
    seed: int | None = None
    follow: bool = True
    tide: float | None = None

    def __post_init__(self) -> None:
        if self.size % _WORD:
            raise PlanError(f"operations of {self.size} bytes: use a multiple of {_WORD}")
        if self.connections > self.sessions:
            raise PlanError("there are more connections than sessions: use fewer connections")
        if self.tide is not None and self.tide <= 0:
            raise PlanError("a tide takes some time: use --tide 60s")
        if self.tide is not None and self.ramp is not None:
            raise PlanError("sessions come by --ramp or by --tide, not by both")
        if not self.file_bytes:
            blocks = max(_FILE_LEAST // self.size, 4 * self.depth)
            object.__setattr__(self, "file_bytes", blocks * self.size)
        if self.file_bytes // self.size < self.depth:
            raise PlanError(
                f"a file of {self.file_bytes} bytes is too small for {self.depth} operations of "
                f"{self.size} at once: use --file-size {self.depth * self.size} or more"
            )
        if self.file_bytes // self.size >= _BLOCKS_MOST:
            raise PlanError("the file has more than 2^32 operations: use a larger --size")

    @property
    def calls(self) -> int:
        """Calls under way on a connection, at most, with some for other things."""
        per_connection = -(-self.sessions // self.connections) * self.depth
        return min(per_connection + 8, _CALLS_MOST)

    @property
    def interval_ns(self) -> int:
        """Between two operations of a session, when all of them are there; 0: at once."""
        return 0 if self.rate is None else max(round(self.sessions / self.rate * 1e9), 1)

    def active(self, elapsed_s: float) -> int:
        """Sessions that work so long after the begin."""
        if self.tide is None:
            return self.sessions
        place = elapsed_s / self.tide % 1
        height = 1 - abs(2 * place - 1)  # 0 at the begin, 1 in the middle
        return max(1, round(self.sessions * (_EBB + (1 - _EBB) * height)))

    def session_seed(self, number: int) -> int:
        """Of a session's data and places, 64 bits."""
        if self.seed is None:
            return secrets.randbits(64)
        said = f"{self.seed} {number}".encode()
        return int.from_bytes(hashlib.blake2b(said, digest_size=8).digest())

    def as_json(self) -> dict[str, Any]:
        return asdict(self)
