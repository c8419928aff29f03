# SPDX-License-Identifier: BSD-2-Clause
"""What a scenario needs of a side, whichever device is behind it; and the side that is a kernel's.

A scenario takes two endpoints and does not know which is which: between two kernels it shows that
the scenario is right, between a kernel and our device that they agree.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import random
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Protocol

from livedma.errors import LabError
from livedma.lab.channel import Command
from livedma.lab.guest import Guest

ALL = ("local_write", "remote_write", "remote_read", "remote_atomic")
GRH_BYTES = 40  #: in front of each datagram that was received
PROGRAM = Path(__file__).with_name("verbs_peer.py")

Piece = tuple[int, int, int]  #: local key, address, length


@dataclass(frozen=True)
class Attributes:
    """What the two ends of a connection agree on, and how patient they are."""

    mtu: int = 1024
    access: Sequence[str] = ALL
    timeout: int = 18  # a second: emulated guests are slow to answer, and nothing is lost
    retry_count: int = 6
    rnr_retry: int = 6
    min_rnr_timer: int = 12
    rd_atomic: int = 8


@dataclass(frozen=True)
class Datagram:
    """Where a UD request goes."""

    src: str
    dst: str
    remote_qp: int
    qkey: int


@dataclass(frozen=True)
class Work:
    wr_id: int
    operation: str = "SEND"
    pieces: Sequence[Piece] = ()
    remote_va: int = 0
    rkey: int = 0
    imm: int = 0
    compare: int = 0
    swap_add: int = 0
    flags: Sequence[str] = ("signaled",)
    to: Datagram | None = None


@dataclass(frozen=True)
class Done:
    """A completion. With another status than SUCCESS only wr_id and status mean something."""

    wr_id: int
    status: str
    operation: str = ""
    length: int = 0
    src_qp: int = 0
    imm: int | None = None
    invalidated: int | None = None


class Memory(Protocol):
    key: int
    va: int

    def at(self, offset: int, length: int) -> Piece: ...
    def fill(self, offset: int, length: int, seed: int) -> None: ...
    def write(self, offset: int, data: bytes) -> None: ...
    def read(self, offset: int, length: int) -> bytes: ...
    def digest(self, offset: int, length: int) -> str: ...
    def close(self) -> None: ...


class QueuePair(Protocol):
    number: int

    def connect(
        self, src: str, dst: str, dest_qp: int, psns: tuple[int, int], attributes: Attributes
    ) -> None:
        """psns: of its own first request, of the peer's."""

    def activate(self, src: str, qkey: int, psn: int) -> None: ...
    def receive(self, requests: Iterable[tuple[int, Sequence[Piece]]]) -> None: ...
    def send(self, requests: Iterable[Work]) -> None: ...
    def completions(self, queue: str, count: int, timeout_s: float = 20.0) -> list[Done]:
        """Waits for that many of the "send" or "recv" queue; fewer when time is up."""
        ...

    def fail(self) -> None:
        """To ERR: what is posted is flushed."""

    @property
    def state(self) -> str: ...
    def close(self) -> None: ...


class Endpoint(Protocol):
    def address(self, version: int) -> str: ...
    def memory(self, length: int, access: Sequence[str] = ALL) -> Memory: ...
    def queue_pair(self, kind: str, *, depth: int = 64, inline: int = 0) -> QueuePair: ...
    def invalidatable(self, qp: QueuePair, memory: Memory, offset: int, length: int) -> int:
        """An rkey for a part of the memory that the peer may invalidate."""
        ...


def pattern(length: int, seed: int) -> bytes:
    """What fill() writes, on whichever side."""
    return random.Random(seed).randbytes(length)


def digest_of(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


class RxeMemory:
    def __init__(self, rxe: Rxe, length: int, access: Sequence[str]) -> None:
        self._rxe = rxe
        made = rxe.ask("register", length=length, access=list(access))
        self.key, self.va = made["key"], made["va"]
        self._lkey = made["lkey"]

    def at(self, offset: int, length: int) -> Piece:
        return (self._lkey, self.va + offset, length)

    def fill(self, offset: int, length: int, seed: int) -> None:
        self._rxe.ask("fill", key=self.key, offset=offset, length=length, seed=seed)

    def write(self, offset: int, data: bytes) -> None:
        self._rxe.ask("write", key=self.key, offset=offset, data=data.hex())

    def read(self, offset: int, length: int) -> bytes:
        return bytes.fromhex(self._rxe.ask("read", key=self.key, offset=offset, length=length))

    def digest(self, offset: int, length: int) -> str:
        return str(self._rxe.ask("digest", key=self.key, offset=offset, length=length))

    def close(self) -> None:
        self._rxe.ask("deregister", key=self.key)


class RxeQueuePair:
    def __init__(self, rxe: Rxe, kind: str, depth: int, inline: int) -> None:
        self._rxe = rxe
        self.number: int = rxe.ask("create_qp", kind=kind, depth=depth, inline=inline)

    def _ask(self, do: str, **arguments: Any) -> Any:
        return self._rxe.ask(do, qp=self.number, **arguments)

    def connect(
        self, src: str, dst: str, dest_qp: int, psns: tuple[int, int], attributes: Attributes
    ) -> None:
        given = asdict(attributes)
        given["access"] = list(attributes.access)
        route = {"src": src, "dst": dst, "dest_qp": dest_qp}
        self._ask("connect", **route, sq_psn=psns[0], rq_psn=psns[1], **given)

    def activate(self, src: str, qkey: int, psn: int) -> None:
        del src  # a kernel's queue pair has all addresses of its interface
        self._ask("activate", qkey=qkey, sq_psn=psn)

    def receive(self, requests: Iterable[tuple[int, Sequence[Piece]]]) -> None:
        posted = [{"wr_id": wr_id, "pieces": list(pieces)} for wr_id, pieces in requests]
        self._ask("receive", requests=posted)

    def send(self, requests: Iterable[Work]) -> None:
        posted = []
        for work in requests:
            one = asdict(work)
            to = work.to
            one["to"] = None if to is None else (to.src, to.dst, to.remote_qp, to.qkey)
            posted.append(one)
        self._ask("send", requests=posted)

    def completions(self, queue: str, count: int, timeout_s: float = 20.0) -> list[Done]:
        wanted = {"queue": queue, "count": count, "timeout_s": timeout_s}
        answer = self._ask("poll", within_s=timeout_s + 30, **wanted)
        return [Done(**one) for one in answer]

    def bind(self, memory: Memory, offset: int, length: int) -> int:
        """Binds a type 2 window; returns its rkey when it is in force."""
        where = {"key": memory.key, "offset": offset, "length": length}
        rkey: int = self._ask("bind", wr_id=_BIND, **where)
        (done,) = self.completions("send", 1)
        assert (done.wr_id, done.status) == (_BIND, "SUCCESS")
        return rkey

    def fail(self) -> None:
        self._ask("fail")

    @property
    def state(self) -> str:
        return str(self._ask("state"))

    def close(self) -> None:
        self._ask("close_qp")


_BIND = 0xB19D


@dataclass
class Rxe:
    """The device of a guest's kernel, through a program that runs there."""

    guest: Guest
    command: Command
    mtu: int = 0
    _read: int = field(default=0, init=False)

    def ask(self, do: str, /, within_s: float = 60.0, **arguments: Any) -> Any:
        line = json.dumps({"do": do, **arguments}).encode() + b"\n"
        self.command.write(line)
        return self.answer(within_s)

    def answer(self, timeout_s: float) -> Any:
        """The next line of the program; AssertionError if it says that something failed."""
        end_s = time.monotonic() + timeout_s
        while b"\n" not in self.command.output[self._read :]:
            left_s = end_s - time.monotonic()
            if self.command.status is not None or left_s <= 0:
                raise LabError(f"guest {self.guest.name}: no answer: {self.command.text[-2000:]}")
            self.command.read(left_s)
        line, _, _ = self.command.output[self._read :].partition(b"\n")
        self._read += len(line) + 1
        answer = json.loads(line)
        assert "ok" in answer, answer
        return answer["ok"]

    def address(self, version: int) -> str:
        return self.guest.ipv6 if version == 6 else self.guest.ipv4

    def memory(self, length: int, access: Sequence[str] = ALL) -> RxeMemory:
        return RxeMemory(self, length, access)

    def queue_pair(self, kind: str, *, depth: int = 64, inline: int = 0) -> RxeQueuePair:
        return RxeQueuePair(self, kind, depth, inline)

    def invalidatable(self, qp: QueuePair, memory: Memory, offset: int, length: int) -> int:
        assert isinstance(qp, RxeQueuePair)
        return qp.bind(memory, offset, length)

    def counters(self) -> dict[str, int]:
        found: dict[str, int] = self.ask("counters")
        return found


@contextlib.contextmanager
def rxe(guest: Guest) -> Iterator[Rxe]:
    """Starts the program in a guest; everything it made goes away with it."""
    guest.put(PROGRAM.read_bytes(), "/tmp/verbs_peer.py")
    with guest.command("exec python3 /tmp/verbs_peer.py", takes_input=True) as command:
        peer = Rxe(guest, command)
        peer.mtu = peer.answer(60)["mtu"]
        yield peer
