# SPDX-License-Identifier: BSD-2-Clause
"""A window that grows, shrinks, lends, links and fails to get memory in any order, under a peer."""

from __future__ import annotations

import contextlib
import itertools
import mmap
import os
from dataclasses import dataclass

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)
from windowed import PAGE, World, mapped_by_us

from livedma.errors import InUseError, NoRoomError
from livedma.memory import Anonymous, Backing, Block, Lease, Mapper, ledger

EXAMPLES = max(int(os.environ.get("LIVEDMA_SCHEDULES", "500")) // 5, 20)
SIZE = 24 * PAGE

pages = st.integers(1, 12)
anywhere = st.integers(0, SIZE - 1)


class Scarce(Backing):
    """Real memory, of which there is so much."""

    def __init__(self) -> None:
        self.left = 0
        self.real = Anonymous()

    def _allocate(self, offset: int, length: int, granule: int, node: int | None) -> Block:
        if length > self.left:
            raise NoRoomError("no memory")
        self.left -= length
        return self.real.allocate(offset, length, granule, node)


@dataclass
class Lent:
    lease: Lease
    is_mapping: bool
    content: bytes  #: what was last put there, by either side

    def overlaps(self, other: Lent) -> bool:
        mine, its = self.lease, other.lease
        return mine.va < its.va + its.length and its.va < mine.va + mine.length


@dataclass
class Linked:
    """By hand."""

    offset: int
    memory: mmap.mmap
    is_synced: bool


class WindowMachine(RuleBasedStateMachine):
    @initialize(memory=st.integers(0, 40))
    def reserve(self, memory: int) -> None:
        self.backing = Scarce()
        self.backing.left = memory * PAGE
        self.world = World(SIZE, backing=self.backing, part=6 * PAGE)
        self.window = self.world.window
        self.mapper: Mapper = self.window.mapper(timeout=0)
        self.lent: list[Lent] = []
        self.linked: list[Linked] = []
        self.cut = self.extends = self.seed = 0

    # What the program does

    @rule(more=pages)
    def find_memory(self, more: int) -> None:
        self.backing.left += more * PAGE

    @rule(length=st.one_of(st.none(), pages))
    def extend(self, length: int | None) -> None:
        before = self.window.parts
        try:
            part = self.window.extend(None if length is None else length * PAGE)
        except NoRoomError:
            assert self.window.parts == before
            return
        self.extends += 1
        assert part.length == (length * PAGE if length else min(6 * PAGE, part.length))
        assert self.world.read(part.offset, 64) == bytes(64)  # new memory, nobody's

    @rule(length=st.one_of(st.none(), pages))
    def shrink(self, length: int | None) -> None:
        parts = self.window.parts
        try:
            given_back = self.window.shrink(None if length is None else length * PAGE, timeout=0)
        except InUseError:
            assert any(p.leases or p.views for p in self.window.parts)
            return
        finally:
            gone = [p for p in parts if p not in self.window.parts]
            assert not any(p.leases for p in gone)
            self.backing.left += sum(p.length for p in gone)
        assert given_back == sum(p.length for p in gone)

    @rule(size=st.one_of(st.integers(1, 300), pages.map(lambda n: n * PAGE)))
    def take(self, size: int) -> None:
        try:
            self.add(self.window.take(size), is_mapping=False)
        except NoRoomError:
            fits = [p for p in self.window.parts if not p.is_lent_whole]
            assert all(p.holes.largest < size + PAGE for p in fits)

    @rule(size=pages)
    def map_one(self, size: int) -> None:
        with contextlib.suppress(NoRoomError):
            self.add(self.mapper.take(size * PAGE), is_mapping=True)
            self.extends += 1

    def add(self, lease: Lease, is_mapping: bool) -> None:
        new = Lent(lease, is_mapping, bytes(lease.memory[:64]))
        assert not any(new.overlaps(old) for old in self.lent)
        self.lent.append(new)

    @precondition(lambda self: self.lent)
    @rule(data=st.data())
    def release(self, data: st.DataObject) -> None:
        one = data.draw(st.sampled_from(self.lent))
        one.lease.release()
        self.lent.remove(one)
        if one.is_mapping:
            self.backing.left += one.lease.length

    @rule(offset=st.integers(0, SIZE // PAGE), length=st.integers(1, 4), is_synced=st.booleans())
    def link(self, offset: int, length: int, is_synced: bool) -> None:
        memory = mmap.mmap(-1, length * PAGE)
        linked = self.window.linked
        try:
            self.window.link(offset * PAGE, memory)
        except OSError:
            assert self.window.linked == linked
            memory.close()
            return
        if is_synced:
            self.window.sync(offset * PAGE, length * PAGE)
        self.linked.append(Linked(offset * PAGE, memory, is_synced))

    @precondition(lambda self: self.linked)
    @rule(data=st.data())
    def unlink(self, data: st.DataObject) -> None:
        one = data.draw(st.sampled_from(self.linked))
        with pytest.raises(BufferError):
            one.memory.close()
        self.window.unlink(one.offset, len(one.memory))
        one.memory.close()
        self.linked.remove(one)

    # What the peer does

    @precondition(lambda self: self.lent)
    @rule(data=st.data())
    def write_to_a_lease(self, data: st.DataObject) -> None:
        one = data.draw(st.sampled_from(self.lent))
        self.seed += 1
        content = self.seed.to_bytes(8, "big") * 8
        content = content[: one.lease.length]
        assert self.world.write(one.lease.va - self.window.va, content) == "SUCCESS"
        one.content = content

    @rule(offset=anywhere, length=st.integers(1, 3 * PAGE))
    def reads_anything(self, offset: int, length: int) -> None:
        """What is mapped as a whole can be read, and nothing else."""
        usable = bytearray(SIZE)
        for part in self.window.parts:
            usable[part.offset : part.end] = b"x" * part.length
        for one in self.linked:
            if one.is_synced:
                size = len(one.memory)
                usable[one.offset : one.offset + size] = b"x" * size
        got = self.world.read(offset, length)
        if offset + length <= SIZE and usable[offset : offset + length].count(0) == 0:
            assert isinstance(got, bytes)
        else:
            assert got == "REM_ACCESS_ERR"

    @precondition(lambda self: any(not p.is_lent_whole for p in self.window.parts))
    @rule(data=st.data(), operation=st.sampled_from(["WRITE", "READ"]))
    def message_that_does_not_end(self, data: st.DataObject, operation: str) -> None:
        """Its part may go under it, unless somebody of this process uses it; it must not harm."""
        free = [p for p in self.window.parts if not p.is_lent_whole and not p.leased]
        if not free:
            return
        part = data.draw(st.sampled_from(free))
        if operation == "WRITE":
            self.world.pair.a.memory[: part.length] = bytes(part.length)
        self.world.start(operation, part.offset, part.length)
        self.world.until("peer", offset=part.offset, length=part.length)
        went = False
        while part in self.window.parts and not went:
            before = self.window.parts
            self.window.shrink(timeout=0)
            gone = [p for p in before if p not in self.window.parts]
            self.backing.left += sum(p.length for p in gone)
            went = part in gone
        self.cut += 1
        assert self.window.statistics().cut == self.cut
        assert self.world.finish() == "REM_ACCESS_ERR"

    # What holds at any time

    @invariant()
    def leases_keep_what_was_put_there(self) -> None:
        for one in getattr(self, "lent", ()):
            assert bytes(one.lease.memory[: len(one.content)]) == one.content

    @invariant()
    def everything_adds_up(self) -> None:
        if not hasattr(self, "window"):
            return
        parts, seen = self.window.parts, self.window.statistics()
        ranges = sorted(
            [(p.offset, p.end) for p in parts]
            + [(one.offset, one.offset + len(one.memory)) for one in self.linked]
        )
        assert all(a[1] <= b[0] for a, b in itertools.pairwise(ranges))
        assert seen.mapped == self.window.linked == sum(end - start for start, end in ranges)
        assert (seen.parts, seen.extends) == (len(parts), self.extends)
        assert seen.leases == len(self.lent)
        rounded = sum(-(-one.lease.length // 64) * 64 for one in self.lent)
        assert seen.leased == rounded
        assert seen.descriptors == seen.mapped // PAGE
        # The system's own account: memory of parts, and none that is nobody's.
        assert sum(map(size_of, mapped_by_us())) == sum(p.length for p in parts)
        (entry,) = (e for e in ledger.read(os.getpid()) or [] if e.kind == "window")
        assert (entry.mapped, entry.descriptors) == (seen.mapped, seen.descriptors)

    def teardown(self) -> None:
        if not hasattr(self, "window"):
            return
        self.window.close()
        for one in self.lent:
            one.lease.release()
        assert mapped_by_us() == []
        assert not any(e.kind == "window" for e in ledger.read(os.getpid()) or [])
        for linked in self.linked:
            linked.memory.close()


def size_of(line: str) -> int:
    start, _, end = line.split()[0].partition("-")
    return int(end, 16) - int(start, 16)


@pytest.mark.slow
def test_windows_in_any_order() -> None:
    run_state_machine_as_test(  # type: ignore[no-untyped-call]
        WindowMachine, settings=settings(max_examples=EXAMPLES, stateful_step_count=30)
    )
