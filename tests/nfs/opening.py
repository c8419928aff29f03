# SPDX-License-Identifier: BSD-2-Clause
"""A server without its network: clients that open and lock files at times of our choice."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from livedma._native.accelerator import Accelerator
from livedma.nfs.numbers import NfsError, Op, Status
from livedma.nfs.server.config import Config
from livedma.nfs.server.context import Context, Credential
from livedma.nfs.server.ops.registry import OPERATIONS
from livedma.nfs.server.ops.served import load
from livedma.nfs.server.parts import Server
from livedma.nfs.server.persist import Persist
from livedma.nfs.server.reply import ReplyEncoder
from livedma.nfs.server.state.clients import Client, principal_of
from livedma.nfs.server.state.locks import FirstLock, Range
from livedma.nfs.server.state.opened import LockState, OpenState
from livedma.nfs.server.state.opens import Opened
from livedma.nfs.server.state.shares import Share
from livedma.nfs.server.store import Node, Store
from livedma.nfs.stateid import Stateid
from livedma.rpc.xdr import Decoder, Encoder

UID = 1000  # the user that opens, unless a test names another
MACHINE = Credential(0, 0)


class Told:
    """The accelerator, and what it was told, which must not be nonsense."""

    def __init__(self, store: Store) -> None:
        self._accelerator = Accelerator(store.changes, store.write_verifier, threads=1)
        self.sessions = self._accelerator.sessions
        self.granted: dict[bytes, dict[str, Any]] = {}

    def close(self) -> None:
        assert self._accelerator.grants == len(self.granted)
        self._accelerator.close()
        self.sessions: set[Any] = set()

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
        mine = {key: value for key, value in locals().items() if key not in ("self", "other")}
        self._accelerator.grant(other, seqid, handle, fd, readable, writable, client, uid)
        self.granted[other] = mine

    def update(self, other: bytes, seqid: int, readable: bool, writable: bool) -> None:
        assert self._accelerator.update(other, seqid, readable, writable)
        self.granted[other] |= {"seqid": seqid, "readable": readable, "writable": writable}

    def revoke(self, other: bytes) -> None:
        assert self._accelerator.revoke(other)
        del self.granted[other]


class World:
    """A server of files a and b, which belong to `UID`; `restart` is one that follows a kill."""

    def __init__(self, directory: Path, **config: Any) -> None:
        self.now = 1000.0
        self.config = Config(squash="none", **config)
        self._directory = directory
        self.export = directory / "export"
        self.export.mkdir()
        for name in "ab":
            (self.export / name).write_bytes(b"0123456789")
            if os.geteuid() == 0:
                os.chown(self.export / name, UID, UID)
        self.allow(3)
        self._start()

    def _start(self) -> None:
        self.persist = Persist(self._directory / "state")
        secret = self.persist.secret("handles")
        self.store = Store(self.export, secret=secret, config=self.config)
        self.accelerator = Told(self.store)
        self.server = Server(
            self.store,
            self.persist,
            self.config,
            clock=lambda: self.now,
            accelerator=self.accelerator,
        )
        self.opens, self.locks = self.server.opens, self.server.locks
        self.recovery, self.lock = self.server.recovery, self.server.lock

    def close(self) -> None:
        self.accelerator.close()
        self.persist.close()
        self.store.close()

    def restart(self) -> None:
        self.close()
        self._start()

    def allow(self, access: int) -> None:
        """The mode of the files, for everybody: READ, WRITE, both or nothing."""
        for name in "ab":
            (self.export / name).chmod(0o444 * (access & 1) | 0o111 * (access & 2))

    def node(self, name: str) -> Node:
        return self.store.lookup(self.store.root, name.encode())

    def client(self, owner: bytes = b"client", *, has_reclaimed: bool = True) -> Client:
        """One with a confirmed client ID, which says that it has nothing to reclaim."""
        clients = self.server.clients
        with self.lock:
            principal = principal_of(MACHINE)
            client = clients.exchange(owner, os.urandom(8), principal, "127.0.0.1", update=False)
            clients.confirm(client, principal)
        if has_reclaimed:
            self.recovery.complete(owner)
            client.has_reclaimed = True
        return client

    def silence(self, *silent: Client) -> None:
        """Nothing was heard of these for longer than a lease, as it was of all others."""
        self.now += self.config.lease_s + 1
        with self.lock:
            for client in self.server.clients:
                if client not in silent:
                    self.server.clients.renew(client)

    def expire(self, client: Client) -> None:
        with self.lock:
            self.server.clients.expire(client)

    def ctx(self, client: Client, file: str = "a", uid: int | None = UID) -> Context:
        connection: Any = None
        credential = Credential(uid, uid)
        return Context(
            self.server, connection, credential, 1, client=client, current=self.node(file)
        )

    def opened(self, ctx: Context, owner: bytes, share: Share, **more: Any) -> Opened:
        with self.store.acting_as(ctx.credential):
            return self.opens.open(ctx, ctx.node, owner, share, **more)

    def open(
        self, client: Client, share: Share, owner: bytes = b"o", file: str = "a", **more: Any
    ) -> OpenState:
        return self.opened(self.ctx(client, file), owner, share, **more).state

    def lock_first(
        self,
        client: Client,
        state: OpenState,
        wanted: Range,
        owner: bytes = b"l",
        is_reclaim: bool = False,
    ) -> LockState:
        first = FirstLock(state.stateid, owner)
        stateid = self.locks.lock(self.ctx(client), first, wanted, is_reclaim=is_reclaim)
        return self.lock_of(client, stateid)

    def lock_of(self, client: Client, stateid: Stateid) -> LockState:
        state = self.opens.states.find(stateid, client.number)
        assert isinstance(state, LockState)
        return state

    def can(self, client: Client, stateid: Stateid, write: bool, **more: Any) -> bool:
        """Whether the descriptor for it does it."""
        ctx = self.ctx(client, **more)
        with (
            self.store.acting_as(ctx.credential),
            self.opens.for_io(ctx, stateid, write) as fd,
        ):
            return os.pwrite(fd, b"x", 3) == 1 if write else len(os.pread(fd, 4, 0)) == 4


def refused(status: Status, call: Callable[..., object], *args: Any, **more: Any) -> NfsError:
    """The call has to fail with this status."""
    with pytest.raises(NfsError) as failed:
        call(*args, **more)
    assert failed.value.status == status
    return failed.value


def serve(ctx: Context, op: Op, args: Encoder) -> Decoder:
    """The result of an operation behind its status, as its client would see it."""
    load()
    decoder, out = Decoder(bytes(args)), ReplyEncoder()
    with ctx.server.store.acting_as(ctx.credential):
        OPERATIONS[op].serve(ctx, decoder, out)
    decoder.finish()
    return Decoder(out.flat())
