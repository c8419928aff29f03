# SPDX-License-Identifier: BSD-2-Clause
"""Making files, their attributes, and their data."""

from __future__ import annotations

import errno
import os
import resource
import threading
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.needs import needs
from tests.nfs.stores import (
    ALICE,
    BOB,
    GUARDED,
    ROOT,
    UNCHECKED,
    is_root,
    make_file,
    make_store,
    status_of,
)

from livedma.nfs.numbers import CreateMode, NfsError, Stable, Status
from livedma.nfs.server.store import NOW, CreateHow, Kind, Settings, Store
from livedma.nfs.server.store.failure import status_of as status_for


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return make_store(tmp_path)


def test_unchecked_and_guarded(store: Store, tmp_path: Path) -> None:
    with store.acting_as(ROOT):
        first = store.create_file(store.root, b"file", GUARDED, Settings(mode=0o640))
        assert first.is_new and first.fd is not None
        assert first.change.before != first.change.after
        os.write(first.fd, b"kept")
        assert status_of(store.create_file, store.root, b"file", GUARDED, Settings()) == (
            Status.EXIST
        )
        again = store.create_file(store.root, b"file", UNCHECKED, Settings(mode=0o777, size=0))
    assert (again.is_new, again.fd, again.node.key) == (False, None, first.node.key)
    assert (tmp_path / "file").read_bytes() == b"kept"
    assert (tmp_path / "file").stat().st_mode & 0o7777 == 0o640
    os.close(first.fd)


@pytest.mark.parametrize("mode", [CreateMode.EXCLUSIVE, CreateMode.EXCLUSIVE_1])
def test_an_exclusive_create_finds_its_own_file(
    store: Store, tmp_path: Path, mode: CreateMode
) -> None:
    how = CreateHow(mode, b"\xff\x02\x03\x04\x85\x06\x07\x08")
    first = store.create_file(store.root, b"file", how, Settings(mode=0o600))
    after_restart = make_store(tmp_path)
    second = after_restart.create_file(after_restart.root, b"file", how, Settings(mode=0o600))
    assert (first.is_new, second.is_new, second.node.key) == (True, False, first.node.key)
    for other in (b"\xff\x02\x03\x04\x85\x06\x07\x09", b"\xff\x02\x03\x05\x85\x06\x07\x08"):
        again = CreateHow(mode, other)
        assert status_of(store.create_file, store.root, b"file", again, Settings()) == (
            Status.EXIST
        )
    assert first.fd is not None
    os.write(first.fd, b"used")
    assert status_of(store.create_file, store.root, b"file", how, Settings()) == Status.EXIST
    os.close(first.fd)


def test_a_new_file_can_be_written_whatever_its_mode(tmp_path: Path) -> None:
    needs(is_root(), "acting as others needs root")
    tmp_path.chmod(0o777)
    store = make_store(tmp_path)
    with store.acting_as(ALICE):
        made = store.create_file(store.root, b"file", GUARDED, Settings(mode=0o444))
        assert made.fd is not None
        assert store.write(made.fd, 0, b"data", Stable.UNSTABLE) == 4
        os.close(made.fd)
    assert (tmp_path / "file").stat().st_mode & 0o7777 == 0o444


def test_modes_are_exact(store: Store, tmp_path: Path) -> None:
    needs(is_root(), "set-id bits need their owner")
    with store.acting_as(ROOT):
        for kind in (Kind.DIR, Kind.FIFO, Kind.SOCK):
            for mode in (0o777, 0o1770, 0o6755, 0):
                name = b"%s-%o" % (kind.name.encode(), mode)
                made, _ = store.create_node(store.root, name, kind, Settings(mode=mode))
                assert (made.kind, made.stat().st_mode & 0o7777) == (kind, mode)
        for mode in (0o666, 0o7777, 0):
            how = Settings(mode=mode)
            made_file = store.create_file(store.root, b"%o" % mode, GUARDED, how)
            assert made_file.node.stat().st_mode & 0o7777 == mode
            os.close(made_file.fd or 0)
        masked = Settings(mode=0o777, umask=0o027)
        made, _ = store.create_node(store.root, b"masked", Kind.DIR, masked)
        assert made.stat().st_mode & 0o7777 == 0o750


def test_a_file_that_cannot_be_as_asked_for_is_not_left_behind(tmp_path: Path) -> None:
    needs(is_root(), "acting as others needs root")
    tmp_path.chmod(0o777)
    store = make_store(tmp_path)
    with store.acting_as(ALICE):
        wrong = Settings(mode=0o600, uid=1002)
        assert status_of(store.create_file, store.root, b"x", GUARDED, wrong) == Status.PERM
    assert os.listdir(tmp_path) == []


def test_creating_in_what_is_no_directory(store: Store) -> None:
    file = make_file(store, store.root, b"file")
    link, _ = store.create_node(store.root, b"link", Kind.LNK, Settings(), target=b"to")
    assert status_of(store.create_file, file, b"x", UNCHECKED, Settings()) == Status.NOTDIR
    assert status_of(store.create_file, link, b"x", UNCHECKED, Settings()) == Status.SYMLINK
    assert status_of(store.create_node, file, b"x", Kind.DIR, Settings()) == Status.NOTDIR
    assert status_of(store.create_node, store.root, b"x", Kind.REG, Settings()) == Status.BADTYPE


def test_setting_attributes(store: Store) -> None:
    needs(is_root(), "giving files away needs root")
    node = make_file(store, store.root, b"file", b"0123456789")
    fd = store.open(node, True, True)
    before = store.change(node)
    store.setattr(node, Settings(size=4, uid=1001, gid=1002, mode=0o4711), fd)
    store.setattr(node, Settings(accessed_ns=-5, modified_ns=1_000_000_007))
    status = node.stat()
    assert (status.st_size, status.st_uid, status.st_gid) == (4, 1001, 1002)
    assert status.st_mode & 0o7777 == 0o4711  # The mode after the owner, or the bit would be gone.
    assert (status.st_atime_ns, status.st_mtime_ns) == (-5, 1_000_000_007)
    assert store.change(node) != before
    store.setattr(node, Settings(modified_ns=NOW))
    assert node.stat().st_atime_ns == -5
    assert node.stat().st_mtime_ns > 1_600_000_000 * 10**9
    assert status_of(store.setattr, node, Settings(size=1 << 63), fd) == Status.FBIG
    assert status_of(store.setattr, node, Settings(size=1)) == Status.INVAL
    assert status_of(store.setattr, store.root, Settings(size=1)) == Status.ISDIR
    os.close(fd)


def test_times_may_be_touched_by_who_may_write(tmp_path: Path) -> None:
    needs(is_root(), "acting as others needs root")
    store = make_store(tmp_path)
    node = make_file(store, store.root, b"file")
    store.setattr(node, Settings(mode=0o666))
    with store.acting_as(BOB):
        store.setattr(node, Settings(accessed_ns=NOW, modified_ns=NOW))
        assert status_of(store.setattr, node, Settings(modified_ns=7)) == Status.PERM


def test_reading(store: Store) -> None:
    fd = store.open(make_file(store, store.root, b"file", b"0123456789"), True, False)
    assert store.read(fd, 0, 4) == (b"0123", False)
    assert store.read(fd, 6, 4) == (b"6789", True)
    assert store.read(fd, 6, 100) == (b"6789", True)
    assert store.read(fd, 10, 4) == (b"", True)
    assert store.read(fd, 3, 0) == (b"", False)
    assert store.read(fd, (1 << 64) - 1, 4) == (b"", True)
    assert store.read(fd, (1 << 63) - 2, 100) == (b"", True)
    os.close(fd)


@pytest.mark.parametrize("stable", list(Stable))
def test_writing(store: Store, tmp_path: Path, stable: Stable) -> None:
    node = make_file(store, store.root, b"file")
    fd = store.open(node, True, True)
    assert store.write(fd, 5, b"data", stable) == 4
    assert store.write(fd, 1, memoryview(b"xyz"), stable) == 3
    assert store.write(fd, 100, b"", stable) == 0
    assert (tmp_path / "file").read_bytes() == b"\0xyz\0data"
    assert status_of(store.write, fd, (1 << 63) - 2, b"data", stable) == Status.FBIG
    assert status_of(store.write, fd, (1 << 64) - 1, b"data", stable) == Status.FBIG
    assert store.commit(node) == store.verifier
    os.close(fd)


def test_beyond_four_gibibytes(store: Store) -> None:
    made = store.create_file(store.root, b"large", GUARDED, Settings())
    assert made.fd is not None
    assert store.write(made.fd, 5 << 30, b"far", Stable.UNSTABLE) == 3
    assert store.read(made.fd, 5 << 30, 10) == (b"far", True)
    assert store.seek(made.fd, 0, os.SEEK_DATA)[0] == 5 << 30
    os.close(made.fd)


def test_creating_what_others_make_and_remove(store: Store) -> None:
    """Whichever comes first: a create gives a file, new or old, or is to be tried again."""
    wrong: list[Status] = []
    stop = threading.Event()

    def disturb() -> None:
        while not stop.is_set():
            status_of(store.remove, store.root, b"file")

    def create() -> None:
        for _ in range(300):
            try:
                made = store.create_file(store.root, b"file", UNCHECKED, Settings(mode=0o644))
            except NfsError as failure:
                wrong.append(failure.status)
                continue
            if made.fd is not None:
                os.close(made.fd)

    threads = [threading.Thread(target=create) for _ in range(3)]
    remover = threading.Thread(target=disturb)
    for thread in (remover, *threads):
        thread.start()
    for thread in threads:
        thread.join()
    stop.set()
    remover.join()
    assert set(wrong) <= {Status.DELAY}


def test_changes_are_on_the_disk_if_that_is_wanted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = make_store(tmp_path, sync_metadata=True)
    synced: list[int] = []

    def fsync(fd: int, real: Callable[[int], None] = os.fsync) -> None:
        synced.append(os.fstat(fd).st_ino)
        real(fd)

    monkeypatch.setattr(os, "fsync", fsync)

    def done() -> list[int]:
        ret = synced.copy()
        synced.clear()
        return ret

    root = store.root.key[1]
    assert status_of(store.remove, store.root, b"none") == Status.NOENT
    assert done() == []
    file = make_file(store, store.root, b"file")
    assert done() == [root]
    directory, _ = store.create_node(store.root, b"d", Kind.DIR, Settings(mode=0o755))
    assert done() == [root]
    store.rename(store.root, b"file", directory, b"moved")
    assert sorted(done()) == sorted([root, directory.key[1]])
    store.link(file, store.root, b"second")
    assert done() == [root]
    store.setattr(file, Settings(mode=0o600))
    store.set_xattr(file, b"key", b"value")
    store.remove_xattr(file, b"key")
    assert done() == [file.key[1]] * 3
    store.remove(directory, b"moved")
    assert done() == [directory.key[1]]


def test_verifiers_tell_instances_apart(tmp_path: Path) -> None:
    one, two = make_store(tmp_path), make_store(tmp_path)
    assert len(one.verifier) == 8 and one.verifier != two.verifier


def test_a_full_disk(store: Store) -> None:
    needs(os.path.exists("/dev/full"), "there is no /dev/full")
    fd = os.open("/dev/full", os.O_RDWR)
    before = store.verifier
    assert status_of(store.write, fd, 0, b"data", Stable.UNSTABLE) == Status.NOSPC
    assert store.verifier == before
    os.close(fd)


def test_what_cannot_be_synced_was_lost_for_all(store: Store) -> None:
    """fsync of a descriptor that fails: the verifier changes, so everybody writes again."""
    seen = [store.verifier]
    for number in (errno.EIO, errno.ENOSPC, errno.EDQUOT):
        store._lost(OSError(number, "lost"))
        seen.append(store.verifier)
    assert len(set(seen)) == 4
    reader, writer = os.pipe()
    assert status_of(store.sync, writer) == Status.INVAL  # Nothing to sync is nothing lost.
    assert store.verifier == seen[-1]
    os.close(reader)
    os.close(writer)


def test_a_file_may_not_grow_beyond_the_limit(store: Store) -> None:
    fd = store.open(make_file(store, store.root, b"file"), True, True)
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (4096, hard))
    try:
        assert store.write(fd, 4090, b"0123456789", Stable.UNSTABLE) == 6  # As far as it goes.
        assert status_of(store.write, fd, 4096, b"x", Stable.UNSTABLE) == Status.FBIG
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    os.close(fd)


def test_holes(store: Store) -> None:
    node = make_file(store, store.root, b"file")
    fd = store.open(node, True, True)
    store.write(fd, 1 << 20, b"x" * 4096, Stable.UNSTABLE)
    store.setattr(node, Settings(size=8 << 20), fd)
    assert store.seek(fd, 0, os.SEEK_HOLE) == (0, False)
    assert store.seek(fd, 0, os.SEEK_DATA) == (1 << 20, False)
    assert store.seek(fd, 1 << 20, os.SEEK_HOLE) == ((1 << 20) + 4096, False)
    assert store.seek(fd, 2 << 20, os.SEEK_DATA) == (8 << 20, True)
    assert status_of(store.seek, fd, 8 << 20, os.SEEK_DATA) == Status.NXIO
    assert status_of(store.seek, fd, 8 << 20, os.SEEK_HOLE) == Status.NXIO
    assert status_of(store.seek, fd, 1 << 63, os.SEEK_HOLE) == Status.NXIO
    store.deallocate(fd, 1 << 20, 4096)
    assert store.read(fd, 1 << 20, 4096) == (bytes(4096), False)
    assert store.seek(fd, 0, os.SEEK_DATA) == (8 << 20, True)
    store.allocate(fd, 0, 16 << 20)
    status = node.stat()
    assert status.st_size == 16 << 20 and status.st_blocks * 512 >= 16 << 20
    store.deallocate(fd, 0, (1 << 64) - 1)
    assert (node.stat().st_size, node.stat().st_blocks) == (16 << 20, 0)
    for call in (store.allocate, store.deallocate):
        assert status_of(call, fd, 0, 0) == Status.INVAL
    assert status_of(store.allocate, fd, 1 << 62, 1 << 63) == Status.FBIG
    os.close(fd)


def test_copying(store: Store, tmp_path: Path) -> None:
    source = store.open(make_file(store, store.root, b"source", b"0123456789"), True, False)
    target = store.open(make_file(store, store.root, b"target", b"abc"), True, True)
    assert store.copy(source, 2, target, 1, 4) == 4
    assert (tmp_path / "target").read_bytes() == b"a2345"
    assert store.copy(source, 5, target, 0, 0) == 5
    assert (tmp_path / "target").read_bytes() == b"56789"
    assert status_of(store.copy, source, 8, target, 0, 3) == Status.INVAL
    assert status_of(store.copy, source, 11, target, 0, 0) == Status.INVAL
    assert status_of(store.copy, source, 0, target, 1 << 63, 4) == Status.FBIG
    os.close(source)
    os.close(target)


def test_links_and_renames(store: Store, tmp_path: Path) -> None:
    file = make_file(store, store.root, b"file", b"x")
    for name in (b"d", b"e"):
        store.create_node(store.root, name, Kind.DIR, Settings(mode=0o755))
    d, e = store.lookup(store.root, b"d"), store.lookup(store.root, b"e")
    change = store.link(file, d, b"second")
    assert change.before != change.after
    assert file.stat().st_nlink == 2
    assert status_of(store.link, file, d, b"second") == Status.EXIST
    assert status_of(store.link, e, d, b"dir") == Status.ISDIR
    assert status_of(store.rename, store.root, b"none", d, b"x") == Status.NOENT
    assert status_of(store.rename, store.root, b"file", store.root, b"d") == Status.EXIST
    assert status_of(store.rename, store.root, b"d", store.root, b"file") == Status.EXIST
    assert status_of(store.rename, store.root, b"e", store.root, b"d") == Status.EXIST
    assert status_of(store.rename, store.root, b"d", d, b"inside") == Status.INVAL
    assert status_of(store.rename, store.root, b"file", file, b"x") == Status.NOTDIR
    # The same file: both names stay, and nothing changes.
    for old, directory, new in ((b"file", d, b"second"), (b"file", store.root, b"file")):
        for change in store.rename(store.root, old, directory, new):
            assert change.before == change.after
    assert file.stat().st_nlink == 2
    store.rename(store.root, b"d", store.root, b"e")  # Over an empty directory.
    assert sorted(os.listdir(tmp_path)) == ["e", "file"]
    assert status_of(store.remove, store.root, b"e") == Status.NOTEMPTY
    assert status_of(store.remove, store.root, b"none") == Status.NOENT
    store.remove(d, b"second")
    store.remove(store.root, b"e")
    link, _ = store.create_node(store.root, b"link", Kind.LNK, Settings(), target=b"/etc/passwd")
    assert store.readlink(link) == b"/etc/passwd"
    store.link(link, store.root, b"link2")
    assert os.readlink(tmp_path / "link2") == "/etc/passwd"
    assert status_of(store.readlink, file) == Status.WRONG_TYPE


def test_extended_attributes(store: Store, tmp_path: Path) -> None:
    node = make_file(store, store.root, b"file")
    assert status_of(store.get_xattr, node, b"key") == Status.NOXATTR
    assert status_of(store.remove_xattr, node, b"key") == Status.NOXATTR
    assert status_of(store.set_xattr, node, b"key", b"1", os.XATTR_REPLACE) == Status.NOXATTR
    change = store.set_xattr(node, b"key", b"1", os.XATTR_CREATE)
    assert change.before != change.after
    assert status_of(store.set_xattr, node, b"key", b"2", os.XATTR_CREATE) == Status.EXIST
    store.set_xattr(node, b"key", b"\0\xff", os.XATTR_REPLACE)
    store.set_xattr(node, b"other.name", b"")
    if is_root():
        os.setxattr(tmp_path / "file", "trusted.hidden", b"x")
    assert store.list_xattrs(node) == [b"key", b"other.name"]
    assert store.get_xattr(node, b"key") == b"\0\xff"
    assert os.getxattr(tmp_path / "file", "user.key") == b"\0\xff"
    store.remove_xattr(node, b"key")
    assert store.list_xattrs(node) == [b"other.name"]
    assert status_of(store.set_xattr, node, b"big", b"x" * 65_537) == Status.XATTR2BIG
    within = status_of(store.set_xattr, node, b"big", b"x" * 65_536)  # Not all take as much.
    assert within in (Status.OK, Status.XATTR2BIG)
    for name, status in (
        (b"", Status.INVAL),
        (b"\0", Status.INVAL),
        (b"\xff", Status.INVAL),
        (b"x" * 251, Status.NAMETOOLONG),
    ):
        assert status_of(store.get_xattr, node, name) == status
        assert status_of(store.set_xattr, node, name, b"") == status
        assert status_of(store.remove_xattr, node, name) == status


def test_every_error_that_is_foreseen_has_its_status() -> None:
    for number, status in (
        (errno.ENOSPC, Status.NOSPC),
        (errno.EIO, Status.IO),
        (errno.EROFS, Status.ROFS),
        (errno.EDQUOT, Status.DQUOT),
        (errno.EFBIG, Status.FBIG),
        (errno.ESTALE, Status.STALE),
        (errno.EMLINK, Status.MLINK),
        (errno.EMFILE, Status.DELAY),
        (errno.EBADE, Status.IO),
    ):
        assert status_for(OSError(number, "")) == status


def test_running_out_of_descriptors_passes(store: Store) -> None:
    make_file(store, store.root, b"file")
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    probe = os.dup(0)
    os.close(probe)
    resource.setrlimit(resource.RLIMIT_NOFILE, (probe, hard))
    try:
        status = status_of(store.lookup, store.root, b"file")
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    assert status == Status.DELAY
    store.lookup(store.root, b"file")


def test_errors_keep_their_cause(store: Store) -> None:
    with pytest.raises(NfsError) as failure:
        store.lookup(store.root, b"missing")
    assert isinstance(failure.value.__cause__, FileNotFoundError)
