# SPDX-License-Identifier: BSD-2-Clause
"""Random operations against a model of a tree: statuses, handles and the directory agree."""

from __future__ import annotations

import os
import shutil
import stat
import tempfile
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule
from tests.needs import needs
from tests.nfs.stores import GUARDED, UNCHECKED, is_root, make_store

from livedma.nfs.numbers import NfsError, Stable, Status
from livedma.nfs.server.store import Kind, Node, Settings, Store

pytestmark = pytest.mark.slow

T = TypeVar("T")

NAMES = st.sampled_from([b"a", b"b", b"c", "ü".encode(), b"x" * 255])
PICK = st.integers(0, 1000)


@dataclass(eq=False)
class Inode:
    """`entries` of a directory, `data` of a file, `target` of a link."""

    kind: Kind
    entries: dict[bytes, Inode] = field(default_factory=dict)
    data: bytes = b""
    target: bytes = b""
    links: int = 1
    handle: bytes = b""

    def below(self) -> set[Inode]:
        return {self}.union(*(child.below() for child in self.entries.values()))


class Tree(RuleBasedStateMachine):
    """Inodes that were removed stay in `inodes`: their handles are tried, too."""

    by_kernel = True
    path: Path
    store: Store

    @initialize()
    def begin(self) -> None:
        self.path = Path(tempfile.mkdtemp(prefix="livedma-model-"))
        self.store = make_store(self.path, self.by_kernel)
        self.root = Inode(Kind.DIR, handle=self.store.root.handle)
        self.inodes = [self.root]

    def teardown(self) -> None:
        if hasattr(self, "path"):
            shutil.rmtree(self.path)

    def pick(self, number: int, kind: Kind | None = None) -> Inode:
        chosen = [one for one in self.inodes if kind is None or one.kind == kind]
        return chosen[number % len(chosen)] if chosen else self.root

    def node(self, inode: Inode) -> Node | None:
        """None, and STALE, for what is gone."""
        ret = self.expect(
            Status.OK if inode.links else Status.STALE, self.store.resolve, inode.handle
        )
        assert ret is None or ret.kind == inode.kind
        return ret

    def expect(self, expected: Status, call: Callable[..., T], *args: Any) -> T | None:
        status, ret = Status.OK, None
        try:
            ret = call(*args)
        except NfsError as failure:
            status = failure.status
        assert status == expected
        return ret

    @rule(directory=PICK, name=NAMES, guarded=st.booleans())
    def create_file(self, directory: int, name: bytes, guarded: bool) -> None:
        inode = self.pick(directory)
        node = self.node(inode)
        if node is None:
            return
        there = inode.entries.get(name)
        status = not_directory(inode) or (Status.EXIST if there and guarded else Status.OK)
        how = GUARDED if guarded else UNCHECKED
        made = self.expect(status, self.store.create_file, node, name, how, Settings(mode=0o644))
        if made is None:
            return
        assert made.is_new == (there is None)
        if there is None:
            os.close(made.fd)
            self.add(inode, name, Inode(Kind.REG, handle=made.node.handle))
        else:
            assert made.node.handle == there.handle

    @rule(directory=PICK, name=NAMES, kind=st.sampled_from([Kind.DIR, Kind.LNK, Kind.FIFO]))
    def create_node(self, directory: int, name: bytes, kind: Kind) -> None:
        inode = self.pick(directory)
        node = self.node(inode)
        if node is None:
            return
        status = not_directory(inode) or (Status.EXIST if name in inode.entries else Status.OK)
        target = b"../" + name if kind == Kind.LNK else b""
        made = self.expect(
            status, self.store.create_node, node, name, kind, Settings(mode=0o755), target
        )
        if made is not None:
            self.add(inode, name, Inode(kind, target=target, handle=made[0].handle))

    def add(self, directory: Inode, name: bytes, inode: Inode) -> None:
        directory.entries[name] = inode
        self.inodes.append(inode)

    @rule(directory=PICK, name=NAMES)
    def lookup(self, directory: int, name: bytes) -> None:
        inode = self.pick(directory)
        node = self.node(inode)
        if node is None:
            return
        there = inode.entries.get(name)
        status = not_directory(inode) or (Status.OK if there else Status.NOENT)
        found = self.expect(status, self.store.lookup, node, name)
        if found is not None and there is not None:
            assert found.handle == there.handle

    @rule(directory=PICK, name=NAMES)
    def remove(self, directory: int, name: bytes) -> None:
        inode = self.pick(directory)
        node = self.node(inode)
        if node is None:
            return
        there = inode.entries.get(name)
        status = not_directory(inode) or (Status.OK if there else Status.NOENT)
        if there and there.entries:
            status = Status.NOTEMPTY
        self.expect(status, self.store.remove, node, name)
        if status == Status.OK:
            del inode.entries[name]
            there.links -= 1

    @rule(source=PICK, old=NAMES, into=PICK, new=NAMES)
    def rename(self, source: int, old: bytes, into: int, new: bytes) -> None:
        one, other = self.pick(source, Kind.DIR), self.pick(into, Kind.DIR)
        nodes = self.node(one), self.node(other)
        if nodes[0] is None or nodes[1] is None:
            return
        moved, there = one.entries.get(old), other.entries.get(new)
        status = rename_status(moved, there, other)
        self.expect(status, self.store.rename, nodes[0], old, nodes[1], new)
        if status != Status.OK or moved is there:
            return
        assert moved is not None
        if there is not None:
            there.links -= 1
        del one.entries[old]
        other.entries[new] = moved

    @rule(inode=PICK, directory=PICK, name=NAMES)
    def link(self, inode: int, directory: int, name: bytes) -> None:
        source, target = self.pick(inode), self.pick(directory, Kind.DIR)
        nodes = self.node(source), self.node(target)
        if nodes[0] is None or nodes[1] is None:
            return
        status = Status.EXIST if name in target.entries else Status.OK
        if source.kind == Kind.DIR:
            status = Status.ISDIR
        self.expect(status, self.store.link, nodes[0], nodes[1], name)
        if status == Status.OK:
            target.entries[name] = source
            source.links += 1

    @rule(inode=PICK, offset=st.integers(0, 100), data=st.binary(min_size=1, max_size=50))
    def write(self, inode: int, offset: int, data: bytes) -> None:
        file = self.pick(inode, Kind.REG)
        node = self.node(file)
        if node is None or file.kind != Kind.REG:
            return
        before = self.store.change(node)
        fd = self.store.open(node, True, True)
        assert self.store.write(fd, offset, data, Stable.UNSTABLE) == len(data)
        file.data = file.data.ljust(offset, b"\0")
        file.data = file.data[:offset] + data + file.data[offset + len(data) :]
        assert self.store.read(fd, 0, 1000) == (file.data, True)
        os.close(fd)
        assert self.store.change(node) >= before

    @rule(inode=PICK, size=st.integers(0, 100))
    def cut(self, inode: int, size: int) -> None:
        file = self.pick(inode, Kind.REG)
        node = self.node(file)
        if node is None or file.kind != Kind.REG:
            return
        fd = self.store.open(node, False, True)
        self.store.setattr(node, Settings(size=size), fd)
        os.close(fd)
        file.data = file.data[:size].ljust(size, b"\0")

    @rule(directory=PICK)
    def parent(self, directory: int) -> None:
        inode = self.pick(directory, Kind.DIR)
        node = self.node(inode)
        if node is None:
            return
        above = [one for one in self.root.below() if inode in one.entries.values()]
        found = self.expect(Status.OK if above else Status.NOENT, self.store.parent, node)
        if found is not None:
            assert found.handle == above[0].handle

    @rule(directory=PICK)
    def listing(self, directory: int) -> None:
        inode = self.pick(directory, Kind.DIR)
        node = self.node(inode)
        if node is None:
            return
        with self.store.reading(node, 0) as entries:
            assert {entry.name for entry in entries} == set(inode.entries)

    @invariant()
    def directory_is_as_the_model(self) -> None:
        if hasattr(self, "path"):
            compare(self.path, self.root)


def not_directory(inode: Inode) -> Status | None:
    if inode.kind == Kind.DIR:
        return None
    return Status.SYMLINK if inode.kind == Kind.LNK else Status.NOTDIR


def rename_status(moved: Inode | None, there: Inode | None, target: Inode) -> Status:
    if moved is None:
        return Status.NOENT
    if moved is there:
        return Status.OK
    if target in moved.below():
        return Status.INVAL
    if there is None:
        return Status.OK
    if target in there.below() or there.entries:
        return Status.EXIST
    is_same_kind = (moved.kind == Kind.DIR) == (there.kind == Kind.DIR)
    return Status.OK if is_same_kind else Status.EXIST


def compare(path: Path, inode: Inode) -> None:
    assert set(os.listdir(os.fsencode(path))) == set(inode.entries)
    for name, child in inode.entries.items():
        below = path / os.fsdecode(name)
        status = os.lstat(below)
        if child.kind == Kind.DIR:
            assert stat.S_ISDIR(status.st_mode)
            compare(below, child)
            continue
        assert status.st_nlink == child.links
        if child.kind == Kind.REG:
            assert below.read_bytes() == child.data
        elif child.kind == Kind.LNK:
            assert os.fsencode(os.readlink(below)) == child.target
        else:
            assert stat.S_ISFIFO(status.st_mode)


class TableTree(Tree):
    by_kernel = False


LIMITS = settings(max_examples=60, stateful_step_count=40, deadline=None)
TestKernel = pytest.mark.usefixtures("privileged")(Tree.TestCase)
TestTable = TableTree.TestCase
TestKernel.settings = TestTable.settings = LIMITS


@pytest.fixture
def privileged() -> None:
    needs(is_root(), "handles of the kernel need root")
