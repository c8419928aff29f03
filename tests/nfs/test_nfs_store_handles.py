# SPDX-License-Identifier: BSD-2-Clause
"""Handles: found again after everything that may happen to a file, and made by nobody else."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.needs import needs
from tests.nfs.stores import ALICE, is_root, make_file, make_store, status_of

from livedma.nfs.numbers import NfsError, Status
from livedma.nfs.server.config import Config
from livedma.nfs.server.store import Kind, Settings, Store
from livedma.nfs.server.store.credentials import Actor
from livedma.nfs.server.store.handles import HANDLE_MOST, Seal
from livedma.nfs.server.store.table import TableHandles


@pytest.fixture
def export(tmp_path: Path) -> Path:
    path = tmp_path / "export"
    (path / "a" / "b").mkdir(parents=True)
    (path / "a" / "file").write_text("data")
    (path / "a" / "link").symlink_to("file")
    return path


@pytest.fixture(params=["kernel", "table"])
def store(request: pytest.FixtureRequest, export: Path) -> Iterator[Store]:
    by_kernel = request.param == "kernel"
    needs(is_root() or not by_kernel, "handles of the kernel need root")
    ret = make_store(export, by_kernel)
    assert ret.is_persistent is by_kernel
    yield ret
    ret.close()


def test_every_kind_of_file_is_found_again(store: Store, export: Path) -> None:
    os.mkfifo(export / "fifo")
    a = store.lookup(store.root, b"a")
    for directory, name, kind in (
        (store.root, b"a", Kind.DIR),
        (store.root, b"fifo", Kind.FIFO),
        (a, b"file", Kind.REG),
        (a, b"link", Kind.LNK),
    ):
        node = store.lookup(directory, name)
        assert node.kind == kind
        assert len(node.handle) <= HANDLE_MOST
        again = store.resolve(node.handle)
        assert (again.key, again.kind, again.handle) == (node.key, kind, node.handle)
    assert store.resolve(store.root.handle).key == store.root.key


def test_a_handle_survives_a_rename(store: Store) -> None:
    a = store.lookup(store.root, b"a")
    b, file = store.lookup(a, b"b"), store.lookup(a, b"file")
    handles = a.handle, b.handle, file.handle
    store.rename(a, b"file", b, b"moved")
    store.rename(store.root, b"a", store.root, b"z")
    assert [store.resolve(one).key for one in handles] == [a.key, b.key, file.key]


def test_a_handle_survives_a_rename_by_local_users(export: Path) -> None:
    needs(is_root(), "handles of the kernel need root")
    store = make_store(export)
    file = store.lookup(store.lookup(store.root, b"a"), b"file")
    (export / "a" / "file").rename(export / "elsewhere")
    assert store.resolve(file.handle).key == file.key


def test_a_table_is_told_by_the_next_lookup(export: Path) -> None:
    store = make_store(export, by_kernel=False)
    file = store.lookup(store.lookup(store.root, b"a"), b"file")
    (export / "a" / "file").rename(export / "elsewhere")
    assert status_of(store.resolve, file.handle) == Status.STALE
    store.lookup(store.root, b"elsewhere")
    assert store.resolve(file.handle).key == file.key


def test_a_handle_survives_a_restart(export: Path) -> None:
    needs(is_root(), "handles of the kernel need root")
    before = make_store(export)
    handle = before.lookup(before.root, b"a").handle
    before.close()
    after = make_store(export)
    assert after.resolve(handle).key == after.lookup(after.root, b"a").key
    assert after.fsid(after.root.key) == before.fsid(before.root.key)


def test_a_table_forgets_over_a_restart_until_it_is_told(export: Path) -> None:
    handle = (before := make_store(export, False)).lookup(before.root, b"a").handle
    after = make_store(export, by_kernel=False)
    assert status_of(after.resolve, handle) == Status.STALE
    assert after.lookup(after.root, b"a").handle == handle
    assert after.resolve(handle).kind == Kind.DIR


def test_what_is_removed_is_stale(store: Store) -> None:
    a = store.lookup(store.root, b"a")
    handles = [store.lookup(a, name).handle for name in (b"b", b"file", b"link")]
    for name in (b"b", b"file", b"link"):
        store.remove(a, name)
    assert {status_of(store.resolve, handle) for handle in handles} == {Status.STALE}


def test_an_inode_that_is_used_again_is_another_file(store: Store) -> None:
    handle = make_file(store, store.root, b"x").handle
    for _ in range(50):  # ext4 gives the lowest free number, others may take longer or never do.
        inode = store.lookup(store.root, b"x").key[1]
        store.remove(store.root, b"x")
        new = make_file(store, store.root, b"x")
        assert status_of(store.resolve, handle) == Status.STALE
        assert new.handle != handle
        if new.key[1] == inode:
            break
        handle = new.handle
        del new  # Or it would be a file that is still open.


def test_a_removed_file_that_is_open_is_still_there(export: Path) -> None:
    needs(is_root(), "handles of the kernel need root")
    store = make_store(export)
    node = store.lookup(store.lookup(store.root, b"a"), b"file")
    fd, handle = store.open(node, True, False), node.handle
    store.remove(store.lookup(store.root, b"a"), b"file")
    del node
    assert store.read(store.open(store.resolve(handle), True, False), 0, 10)[0] == b"data"
    os.close(fd)


def test_a_directory_that_was_moved_out_is_stale(store: Store, export: Path) -> None:
    a = store.lookup(store.root, b"a")
    b = store.lookup(a, b"b")
    (export / "a").rename(export.parent / "out")
    for node in (a, b):
        assert status_of(store.resolve, node.handle) == Status.STALE
    (export.parent / "out").rename(export / "a")
    assert store.resolve(b.handle).key == b.key


def test_every_changed_bit_makes_a_forgery(store: Store) -> None:
    handle = store.lookup(store.root, b"a").handle
    for bit in range(8 * len(handle)):
        forged = bytearray(handle)
        forged[bit // 8] ^= 1 << bit % 8
        assert status_of(store.resolve, bytes(forged)) == Status.BADHANDLE


@given(forged=st.binary(max_size=128))
def test_noise_is_no_handle(forged: bytes) -> None:
    seal = Seal(b"secret", b"root", 1)
    with pytest.raises(NfsError) as failure:
        seal.open(forged)
    assert failure.value.status == Status.BADHANDLE


def test_lengths_at_the_edges_are_forgeries(store: Store) -> None:
    handle = store.root.handle
    for forged in (b"", handle[:1], handle[:-1], handle + b"\0", handle * 2, b"\1" * 17):
        assert status_of(store.resolve, forged) == Status.BADHANDLE


def test_handles_of_other_exports_and_secrets_are_forgeries(store: Store, export: Path) -> None:
    needs(is_root(), "handles of the kernel need root")
    for other in (
        make_store(export / "a"),
        Store(export, secret=b"another", config=Config()),
        make_store(export, not store.is_persistent),
    ):
        assert status_of(store.resolve, other.root.handle) == Status.BADHANDLE


def test_a_table_keeps_what_was_used_last(export: Path) -> None:
    root = os.open(export, os.O_RDONLY)
    table = TableHandles(b"secret", root, Actor(Config()), places_most=2)
    names = [b"one", b"two", b"three"]
    handles = []
    for name in names:
        (export / os.fsdecode(name)).touch()
        fd = os.open(export / os.fsdecode(name), os.O_RDONLY)
        table.found(root, name, fd)
        handles.append(table.encode(fd))
        os.close(fd)
        os.close(table.decode(handles[0])) if name != b"three" else None
    assert status_of(table.decode, handles[1]) == Status.STALE
    os.close(table.decode(handles[0]))
    os.close(table.decode(handles[2]))
    os.close(root)


def test_a_handle_is_good_whatever_the_way_to_it_allows(store: Store, export: Path) -> None:
    needs(is_root(), "acting as others needs root")
    directory = store.lookup(store.lookup(store.root, b"a"), b"b")
    file = make_file(store, directory, b"file")
    store.setattr(file, Settings(mode=0o644))
    for path in (export, export / "a", export / "a" / "b"):
        path.chmod(0o700)
    with store.acting_as(ALICE):
        os.close(store.open(store.resolve(file.handle), True, False))
        assert status_of(store.open, store.resolve(file.handle), True, True) == Status.ACCESS
        found = store.resolve(directory.handle)
        assert status_of(store.lookup, found, b"file") == Status.ACCESS
        assert status_of(store.parent, found) == Status.ACCESS
    (export / "a" / "b").chmod(0o711)
    with store.acting_as(ALICE):
        assert store.parent(found).kind == Kind.DIR


def test_a_second_name_keeps_a_file_findable(store: Store) -> None:
    a = store.lookup(store.root, b"a")
    file = store.lookup(a, b"file")
    store.link(file, store.root, b"second")
    store.remove(a, b"file")
    assert store.resolve(file.handle).key == file.key


def test_descriptors_are_given_back(store: Store) -> None:
    def count() -> int:
        return len(os.listdir("/proc/self/fd"))

    before = count()
    for _ in range(20):
        node = store.lookup(store.root, b"a")
        store.resolve(node.handle)
        store.parent(node)
        status_of(store.lookup, node, b"missing")
    del node
    assert count() == before
