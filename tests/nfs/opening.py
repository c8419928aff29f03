"""A server's state without its network: clients that open and lock files at times of our choice."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from livedma.nfs.context import Context, Credential
from livedma.nfs.locks import FirstLock, Locks, Range
from livedma.nfs.numbers import NfsError, Status
from livedma.nfs.opened import LockState, OpenState
from livedma.nfs.opens import Opens
from livedma.nfs.persist import Persist
from livedma.nfs.recovery import Recovery
from livedma.nfs.shares import Share
from livedma.nfs.stateid import Stateid

GRACE_S = 90.0


@dataclass(eq=False)
class Client:
    number: int
    owner: bytes
    has_reclaimed: bool = True
    is_courtesy: bool = False


@dataclass
class Clients:
    recovery: Recovery
    on_gone: list[Callable[[Client], None]] = field(default_factory=list)

    def expire(self, client: Client) -> None:
        for tell in self.on_gone:
            tell(client)
        self.recovery.forget(client.owner)


@dataclass(frozen=True)
class Node:
    path: Path

    @property
    def key(self) -> tuple[int, int]:
        status = self.path.stat()
        return status.st_dev, status.st_ino

    @property
    def handle(self) -> bytes:
        return os.fsencode(self.path.name)


class Store:
    def __init__(self) -> None:
        self.refused = 0  # access that the file's mode does not give

    def open(self, node: Node, read: bool, write: bool, owner_may: bool = False) -> int:
        if not owner_may and self.refused & (read | write << 1):
            raise NfsError(Status.ACCESS)
        flags = os.O_RDWR if read and write else os.O_WRONLY if write else os.O_RDONLY
        return os.open(node.path, flags | os.O_CLOEXEC)


class Accelerator:
    """Remembers what it was told, and refuses to be told nonsense."""

    def __init__(self) -> None:
        self.granted: dict[bytes, dict[str, Any]] = {}

    def grant(
        self,
        other: bytes,
        seqid: int,
        handle: bytes,
        fd: int,
        readable: bool,
        writable: bool,
        client: int,
        uid: int,
    ) -> None:
        assert other not in self.granted
        os.fstat(fd)
        mine = {key: value for key, value in locals().items() if key not in ("self", "other")}
        self.granted[other] = mine

    def update(self, other: bytes, seqid: int, readable: bool, writable: bool) -> None:
        self.granted[other] |= {"seqid": seqid, "readable": readable, "writable": writable}

    def revoke(self, other: bytes) -> None:
        del self.granted[other]


class World:
    """A server with files a and b; `restart` is one that follows a kill."""

    def __init__(self, directory: Path, **limits: Any) -> None:
        self.now = 1000.0
        self._directory = directory
        self._limits = limits
        self.files = {}
        for name in "ab":
            (directory / name).write_bytes(b"0123456789")
            self.files[name] = Node(directory / name)
        self.store = Store()
        self.start()

    def start(self) -> None:
        self.lock = threading.RLock()
        self.accelerator = Accelerator()
        self.persist = Persist(self._directory / "state")
        self.recovery = Recovery(self.persist, self.clock, GRACE_S)
        self.clients = Clients(self.recovery)
        self.opens = Opens(self, **self._limits)  # type: ignore[arg-type]
        self.locks = Locks(self)  # type: ignore[arg-type]
        self._numbers = 0

    def restart(self) -> None:
        self.persist.close()
        self.start()

    def clock(self) -> float:
        return self.now

    def client(self, owner: bytes = b"client", **more: Any) -> Client:
        self._numbers += 1
        client = Client(self._numbers, owner, **more)
        if client.has_reclaimed:
            self.recovery.complete(owner)
        return client

    def ctx(self, client: Client, file: str = "a", uid: int | None = 1000) -> Any:
        credential = Credential(uid, uid)
        node: Any = self.files[file]
        me: Any = self
        return Context(me, None, credential, 1, client=client, current=node)  # type: ignore[arg-type]

    def open(
        self, client: Client, share: Share, owner: bytes = b"o", file: str = "a", **more: Any
    ) -> OpenState:
        ctx = self.ctx(client, file)
        return self.opens.open(ctx, ctx.node, owner, share, **more).state

    def lock_first(
        self,
        client: Client,
        state: OpenState,
        wanted: Range,
        owner: bytes = b"l",
        file: str = "a",
        is_reclaim: bool = False,
    ) -> LockState:
        first = FirstLock(state.stateid, owner)
        stateid = self.locks.lock(self.ctx(client, file), first, wanted, is_reclaim=is_reclaim)
        return self.lock_of(client, stateid)

    def lock_of(self, client: Client, stateid: Stateid) -> LockState:
        state = self.opens.states.find(stateid, client.number)
        assert isinstance(state, LockState)
        return state

    def can(self, client: Client, stateid: Stateid, write: bool, **more: Any) -> bool:
        """Whether the descriptor for it does it."""
        with self.opens.for_io(self.ctx(client, **more), stateid, write) as fd:
            return os.pwrite(fd, b"x", 3) == 1 if write else len(os.pread(fd, 4, 0)) == 4


def refused(status: Status, call: Callable[..., object], *args: Any, **more: Any) -> NfsError:
    """The call has to fail with this status."""
    with pytest.raises(NfsError) as failed:
        call(*args, **more)
    assert failed.value.status == status
    return failed.value
