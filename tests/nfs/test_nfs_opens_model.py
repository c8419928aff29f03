# SPDX-License-Identifier: BSD-2-Clause
"""Opens and their locks against a model that knows no more than the rules."""

from __future__ import annotations

import os
import shutil
import tempfile
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule
from opening import World, refused

from livedma.nfs.numbers import Status
from livedma.nfs.server.state.clients import Client
from livedma.nfs.server.state.locks import FirstLock, Range
from livedma.nfs.server.state.mirror import local_lock
from livedma.nfs.server.state.shares import BOTH, READ, WRITE, Share
from livedma.nfs.stateid import ANONYMOUS, Stateid

pytestmark = pytest.mark.slow

CLIENTS = st.sampled_from([0, 1, 2])
OWNERS = st.sampled_from([b"x", b"y"])
FILES = st.sampled_from("ab")
SHARES = st.builds(Share, st.sampled_from([READ, WRITE, BOTH]), st.integers(0, 3))
PLACES = st.integers(0, 7)


@dataclass
class Held:
    """What the model knows of an open; locks: owner -> byte -> is_exclusive."""

    other: bytes
    seqid: int
    parts: set[Share] = field(default_factory=set)
    locks: dict[bytes, dict[int, bool]] = field(default_factory=dict)
    lock_ids: dict[bytes, Stateid] = field(default_factory=dict)

    def bits(self, parts: set[Share] | None = None) -> tuple[int, int]:
        access = deny = 0
        for part in self.parts if parts is None else parts:
            access |= part.access
            deny |= part.deny
        return access, deny


Key = tuple[int, bytes, str]


class Machine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.directory = Path(tempfile.mkdtemp())
        self.world = World(self.directory)
        self.clients: list[Client] = [self.world.client(b"%d" % i) for i in range(3)]
        self.model: dict[Key, Held] = {}

    def teardown(self) -> None:
        for client in self.clients:
            self.world.expire(client)
        assert len(self.world.opens.states) == 0
        self.world.close()
        shutil.rmtree(self.directory)

    def others(self, key: Key) -> list[tuple[int, int]]:
        return [
            held.bits() for other, held in self.model.items() if other[2] == key[2] and other != key
        ]

    @rule(number=CLIENTS, owner=OWNERS, file=FILES, share=SHARES)
    def open(self, number: int, owner: bytes, file: str, share: Share) -> None:
        key = (number, owner, file)
        client = self.clients[number]
        if any(share.access & deny or share.deny & access for access, deny in self.others(key)):
            refused(Status.SHARE_DENIED, self.world.open, client, share, owner, file)
            return
        stateid = self.world.open(client, share, owner, file).stateid
        held = self.model.setdefault(key, Held(stateid.other, 0))
        held.parts.add(share)
        held.seqid += 1
        assert stateid == Stateid(held.seqid, held.other)

    @rule(number=CLIENTS, owner=OWNERS, file=FILES, share=SHARES)
    def downgrade(self, number: int, owner: bytes, file: str, share: Share) -> None:
        held = self.model.get((number, owner, file))
        if held is None:
            return
        ctx = self.world.ctx(self.clients[number], file)
        left = {part for part in held.parts if share | part == share}
        stateid = Stateid(held.seqid, held.other)
        if held.bits(left) != (share.access, share.deny):
            refused(Status.INVAL, self.world.opens.downgrade, ctx, stateid, share)
            return
        held.parts = left
        held.seqid += 1
        assert self.world.opens.downgrade(ctx, stateid, share).seqid == held.seqid

    @rule(number=CLIENTS, owner=OWNERS, file=FILES)
    def close(self, number: int, owner: bytes, file: str) -> None:
        held = self.model.pop((number, owner, file), None)
        if held is not None:
            ctx = self.world.ctx(self.clients[number], file)
            self.world.opens.close(ctx, Stateid(held.seqid, held.other))
            refused(Status.BAD_STATEID, self.world.opens.close, ctx, Stateid(0, held.other))

    @rule(number=CLIENTS)
    def vanish(self, number: int) -> None:
        self.world.expire(self.clients[number])
        self.clients[number] = self.world.client(b"%d" % number)
        self.model = {key: held for key, held in self.model.items() if key[0] != number}

    @rule(number=CLIENTS, owner=OWNERS, file=FILES, write=st.booleans())
    def use(self, number: int, owner: bytes, file: str, write: bool) -> None:
        held = self.model.get((number, owner, file))
        if held is None:
            return
        stateid = Stateid(held.seqid, held.other)
        if write and not held.bits()[0] & WRITE:
            refused(Status.OPENMODE, self.world.can, self.clients[number], stateid, True, file=file)
        else:
            assert self.world.can(self.clients[number], stateid, write, file=file)

    @rule(number=CLIENTS, file=FILES, write=st.booleans())
    def use_anonymously(self, number: int, file: str, write: bool) -> None:
        denied = any(
            held.bits()[1] & (WRITE if write else READ)
            for key, held in self.model.items()
            if key[2] == file
        )
        arguments = (self.clients[number], ANONYMOUS, write)
        if denied:
            refused(Status.LOCKED, self.world.can, *arguments, file=file)
        else:
            assert self.world.can(*arguments, file=file)

    @rule(
        number=CLIENTS,
        owner=OWNERS,
        file=FILES,
        lock_owner=OWNERS,
        one=PLACES,
        other=PLACES,
        is_exclusive=st.booleans(),
    )
    def lock(
        self,
        number: int,
        owner: bytes,
        file: str,
        lock_owner: bytes,
        one: int,
        other: int,
        is_exclusive: bool,
    ) -> None:
        key = (number, owner, file)
        held = self.model.get(key)
        if held is None:
            return
        first, last = min(one, other), max(one, other)
        wanted = Range(first, last, is_exclusive)
        ctx = self.world.ctx(self.clients[number], file)
        locker = held.lock_ids.get(lock_owner) or FirstLock(
            Stateid(held.seqid, held.other), lock_owner
        )
        if not held.bits()[0] & (WRITE if is_exclusive else READ):
            expected = Status.OPENMODE
        elif self.is_locked(number, file, lock_owner, wanted):
            expected = Status.DENIED
        else:
            expected = Status.OK
        if expected != Status.OK:
            refused(expected, self.world.locks.lock, ctx, locker, wanted, is_reclaim=False)
            return
        held.lock_ids[lock_owner] = self.world.locks.lock(ctx, locker, wanted, is_reclaim=False)
        # What the owner had there by another open, it has by this one now.
        self.release(number, file, lock_owner, first, last)
        places = held.locks.setdefault(lock_owner, {})
        places |= dict.fromkeys(range(first, last + 1), is_exclusive)

    def is_locked(self, number: int, file: str, lock_owner: bytes, wanted: Range) -> bool:
        return any(
            places.get(place) is not None and (wanted.is_exclusive or places[place])
            for key, held in self.model.items()
            if key[2] == file
            for owner, places in held.locks.items()
            if (key[0], owner) != (number, lock_owner)
            for place in range(wanted.first, wanted.last + 1)
        )

    def release(self, number: int, file: str, lock_owner: bytes, first: int, last: int) -> None:
        for key, held in self.model.items():
            if key[0] == number and key[2] == file:
                for place in range(first, last + 1):
                    held.locks.get(lock_owner, {}).pop(place, None)

    @rule(number=CLIENTS, owner=OWNERS, file=FILES, lock_owner=OWNERS, one=PLACES, other=PLACES)
    def unlock(
        self, number: int, owner: bytes, file: str, lock_owner: bytes, one: int, other: int
    ) -> None:
        held = self.model.get((number, owner, file))
        if held is None or lock_owner not in held.lock_ids:
            return
        first, last = min(one, other), max(one, other)
        ctx = self.world.ctx(self.clients[number], file)
        stateid = held.lock_ids[lock_owner]
        unlocked = self.world.locks.unlock(ctx, stateid, Range(first, last, True))
        assert unlocked == Stateid(stateid.seqid + 1, stateid.other)
        held.lock_ids[lock_owner] = unlocked
        self.release(number, file, lock_owner, first, last)

    @rule(number=CLIENTS, owner=OWNERS, file=FILES, lock_owner=OWNERS)
    def free(self, number: int, owner: bytes, file: str, lock_owner: bytes) -> None:
        held = self.model.get((number, owner, file))
        if held is None or lock_owner not in held.lock_ids:
            return
        ctx = self.world.ctx(self.clients[number], file)
        stateid = held.lock_ids[lock_owner]
        if held.locks.get(lock_owner):
            refused(Status.LOCKS_HELD, self.world.locks.free, ctx, stateid)
        else:
            self.world.locks.free(ctx, stateid)
            del held.lock_ids[lock_owner]

    @rule(number=CLIENTS, file=FILES, lock_owner=OWNERS, one=PLACES, is_exclusive=st.booleans())
    def test(self, number: int, file: str, lock_owner: bytes, one: int, is_exclusive: bool) -> None:
        wanted = Range(one, one, is_exclusive)
        ctx = self.world.ctx(self.clients[number], file)
        if self.is_locked(number, file, lock_owner, wanted):
            refused(Status.DENIED, self.world.locks.test, ctx, lock_owner, wanted)
        else:
            self.world.locks.test(ctx, lock_owner, wanted)

    @invariant()
    def local_processes_see_all_locks(self) -> None:
        for file in "ab":
            fd = os.open(self.world.export / file, os.O_RDONLY)
            for place in range(8):
                kinds = {
                    places[place]
                    for key, held in self.model.items()
                    if key[2] == file
                    for places in held.locks.values()
                    if place in places
                }
                seen = local_lock(fd, place, place, True)
                assert (seen is not None) == bool(kinds)
                assert seen is None or seen.is_exclusive == (True in kinds)
            os.close(fd)

    @invariant()
    def all_are_accounted_for(self) -> None:
        locks = sum(len(held.lock_ids) for held in self.model.values())
        assert len(self.world.opens.states) == len(self.model) + locks
        names = {held.other for held in self.model.values()}
        names |= {one.other for held in self.model.values() for one in held.lock_ids.values()}
        assert set(self.world.accelerator.granted) == names
        for held in self.model.values():
            granted = self.world.accelerator.granted[held.other]
            may = READ * granted["readable"] | WRITE * granted["writable"]
            assert (may, granted["seqid"]) == (held.bits()[0], held.seqid)


TestOpens = Machine.TestCase
TestOpens.settings = settings(max_examples=60, stateful_step_count=40)
