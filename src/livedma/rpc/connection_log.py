# SPDX-License-Identifier: BSD-2-Clause
"""Logs which peers connect, leave and are refused.

A peer can connect as often as it likes, so the number of lines is bounded: each kind has so many at
once and so many a second. Lines that are left out are counted, and the count is logged.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, get_args

from livedma.rpc.names import TransportKind
from livedma.wire.words import amount

__all__ = ["LOGGER", "ConnectionLog", "Peer", "Told"]

LOGGER = "livedma.connections"  #: messages of this logger begin with their kind
AT_ONCE = 100  #: lines of a kind
EACH_SECOND = 5.0  #: lines of a kind that may follow

Kind = Literal["accepted", "client", "left", "refused"]
_log = logging.getLogger(LOGGER)


@dataclass(frozen=True, slots=True)
class Told:
    """Holds what a line says, for logs in the form of JSON or of fields: it is the attribute `told`
    of the line's record. connection: its number, if it got one.
    """

    kind: str
    connection: int | None
    text: str
    data: Mapping[str, Any] = field(default_factory=dict)

    @property
    def line(self) -> str:
        where = "" if self.connection is None else f"connection {self.connection}: "
        return f"{self.kind:9} {where}{self.text}"


@dataclass(frozen=True, slots=True)
class Peer:
    """Says where a connection comes from, and over which transport."""

    address: str
    port: int
    transport: TransportKind

    def __str__(self) -> str:
        host = f"[{self.address}]" if ":" in self.address else self.address
        return f"{host}:{self.port} over {self.transport}"

    @property
    def data(self) -> dict[str, Any]:
        return {"peer": self.address, "port": self.port, "transport": self.transport}


class _Bucket:
    """Counts the lines that may be written now: EACH_SECOND more a second, up to AT_ONCE."""

    def __init__(self, now_s: float) -> None:
        self._left, self._filled_s = float(AT_ONCE), now_s
        self.suppressed = 0

    def take(self, now_s: float) -> bool:
        self._left = min(AT_ONCE, self._left + (now_s - self._filled_s) * EACH_SECOND)
        self._filled_s = now_s
        if self._left < 1:
            return False
        self._left -= 1
        return True


class ConnectionLog:
    """Logs the connections of one listener, or all clients of a server. Any thread may use it.

    clock: monotonic seconds.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._buckets = {kind: _Bucket(clock()) for kind in get_args(Kind)}

    def accepted(self, number: int, peer: Peer) -> None:
        self._tell("accepted", number, f"{peer}", peer.data)

    def client(self, number: int, address: str, name: str) -> None:
        """Logs what the client at the other end calls itself."""
        data = {"peer": address, "name": name}
        self._tell("client", number, f"{address} calls itself {name!r}", data)

    def left(self, number: int, peer: Peer, why: str, seconds: float, calls: int) -> None:
        made = amount(calls, "call")
        text = f"{peer}: {why}; it was there for {_time(seconds)} and made {made}"
        data = {**peer.data, "why": why, "seconds": round(seconds, 3), "calls": calls}
        self._tell("left", number, text, data)

    def refused(self, peer: Peer, why: str) -> None:
        self._tell("refused", None, f"{peer}: {why}", {**peer.data, "why": why})

    def tick(self) -> None:
        """Logs how many lines were left out, if there is room for a line. Call it now and then."""
        for kind, bucket in self._buckets.items():
            with self._lock:
                is_due = bucket.suppressed and bucket.take(self._clock())
                count = bucket.suppressed if is_due else 0
                bucket.suppressed -= count
            if count:
                _write(_more(kind, count))

    def _tell(self, kind: Kind, number: int | None, text: str, data: dict[str, Any]) -> None:
        bucket = self._buckets[kind]
        with self._lock:
            if not bucket.take(self._clock()):
                bucket.suppressed += 1
                return
            count, bucket.suppressed = bucket.suppressed, 0
        if count:
            _write(_more(kind, count))
        _write(Told(kind, number, text, data))


def _more(kind: str, count: int) -> Told:
    text = f"{count} more, without a line for each: there were too many in too short a time"
    return Told(kind, None, text, {"suppressed": count})


def _write(told: Told) -> None:
    _log.info("%s", told.line, extra={"told": told})


def _time(seconds: float) -> str:
    if seconds < 120:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02} h" if hours else f"{minutes}:{rest:02} min"
