# SPDX-License-Identifier: BSD-2-Clause
"""Nothing outside the export, whatever names, links, mounts and races do."""

from __future__ import annotations

import ctypes
import os
import threading
from pathlib import Path

import pytest
from tests.needs import needs
from tests.nfs.stores import GUARDED, UNCHECKED, is_root, make_store, status_of

from livedma.nfs.numbers import NfsError, Status
from livedma.nfs.server.store import Kind, Settings, Store

HOSTILE = [
    (b"", Status.INVAL),
    (b".", Status.BADNAME),
    (b"..", Status.BADNAME),
    (b"a/b", Status.BADCHAR),
    (b"/", Status.BADCHAR),
    (b"/etc/passwd", Status.BADCHAR),
    (b"../secret", Status.BADCHAR),
    (b"a\0b", Status.BADCHAR),
    (b"\0", Status.BADCHAR),
    (b"\xff\xfe", Status.INVAL),
    (b"\xc0\xaf", Status.INVAL),  # An overlong slash.
    (b"\xed\xa0\x80", Status.INVAL),  # A surrogate.
    ("\ufffe".encode(), Status.INVAL),
    ("a\ufdd0".encode(), Status.INVAL),
    ("\U0010ffff".encode(), Status.INVAL),
    (b"x" * 256, Status.NAMETOOLONG),
    (b"x" * 100_000, Status.NAMETOOLONG),
]


@pytest.fixture
def export(tmp_path: Path) -> Path:
    path = tmp_path / "export"
    (path / "a" / "b").mkdir(parents=True)
    (path / "file").write_text("inside")
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside" / "secret").write_text("outside")
    return path


@pytest.fixture(params=["kernel", "table"])
def store(request: pytest.FixtureRequest, export: Path) -> Store:
    by_kernel = request.param == "kernel"
    needs(is_root() or not by_kernel, "handles of the kernel need root")
    return make_store(export, by_kernel)


@pytest.mark.parametrize(("name", "status"), HOSTILE)
def test_hostile_names_are_refused_by_everything(store: Store, name: bytes, status: Status) -> None:
    root, file = store.root, store.lookup(store.root, b"file")
    assert status_of(store.lookup, root, name) == status
    assert status_of(store.create_file, root, name, UNCHECKED, Settings()) == status
    assert status_of(store.create_node, root, name, Kind.DIR, Settings()) == status
    assert status_of(store.remove, root, name) == status
    assert status_of(store.rename, root, name, root, b"new") == status
    assert status_of(store.rename, root, b"file", root, name) == status
    assert status_of(store.link, file, root, name) == status


def test_links_are_never_followed(store: Store, export: Path) -> None:
    (export / "out").symlink_to("../outside")
    (export / "abs").symlink_to(export.parent / "outside" / "secret")
    out, absolute = store.lookup(store.root, b"out"), store.lookup(store.root, b"abs")
    assert (out.kind, absolute.kind) == (Kind.LNK, Kind.LNK)
    assert store.readlink(out) == b"../outside"
    assert status_of(store.lookup, out, b"secret") == Status.SYMLINK
    assert status_of(store.open, absolute, True, False) == Status.SYMLINK
    store.setattr(absolute, Settings(modified_ns=10**9))
    assert absolute.stat().st_mtime_ns == 10**9
    assert (export.parent / "outside" / "secret").stat().st_mtime_ns != 10**9
    store.setattr(absolute, Settings(mode=0o751))  # Does nothing, to neither.
    assert (export.parent / "outside" / "secret").stat().st_mode & 0o777 != 0o751


def test_creating_over_a_link_does_not_create_what_it_names(store: Store, export: Path) -> None:
    target = export.parent / "outside" / "new"
    (export / "dangling").symlink_to(target)
    assert status_of(store.create_file, store.root, b"dangling", GUARDED, Settings()) == (
        Status.EXIST
    )
    made = store.create_file(store.root, b"dangling", UNCHECKED, Settings(size=0))
    assert (made.is_new, made.node.kind) == (False, Kind.LNK)
    assert not target.exists()


def test_links_of_the_kernel_are_links(store: Store) -> None:
    proc = make_store(Path("/proc/self"), by_kernel=False)
    cwd = proc.lookup(proc.root, b"cwd")
    assert cwd.kind == Kind.LNK
    assert status_of(proc.lookup, cwd, b"etc") == Status.SYMLINK


def test_the_way_up_ends_at_the_root(store: Store) -> None:
    a = store.lookup(store.root, b"a")
    b = store.lookup(a, b"b")
    assert store.parent(b).key == a.key
    assert store.parent(a).key == store.root.key
    assert status_of(store.parent, store.root) == Status.NOENT
    assert status_of(store.parent, store.lookup(store.root, b"file")) == Status.NOTDIR


def test_special_files_are_not_opened(store: Store, export: Path) -> None:
    os.mkfifo(export / "fifo")
    fifo = store.lookup(store.root, b"fifo")
    for read, write in ((True, False), (False, True), (True, True)):  # Any would block for good.
        assert status_of(store.open, fifo, read, write) == Status.WRONG_TYPE
    assert status_of(store.commit, fifo) == Status.WRONG_TYPE
    assert status_of(store.open, store.root, True, False) == Status.ISDIR


def test_a_device_is_not_opened(export: Path) -> None:
    needs(is_root(), "making a device needs root")
    store = make_store(export)
    zero, _ = store.create_node(store.root, b"zero", Kind.CHR, Settings(mode=0o666), device=(1, 5))
    assert zero.stat().st_rdev == os.makedev(1, 5)
    assert status_of(store.open, zero, True, False) == Status.WRONG_TYPE


def test_mounts_below_are_not_exported(export: Path) -> None:
    needs(is_root(), "mounting needs root")
    before = make_store(export)
    libc = ctypes.CDLL(None, use_errno=True)
    path = os.fsencode(export / "a")
    assert libc.mount(b"tmpfs", path, b"tmpfs", 0, None) == 0
    try:
        (export / "a" / "hidden").touch()
        for store in (before, make_store(export)):
            a = store.lookup(store.root, b"a")
            assert a.key[0] == store.root.key[0]
            assert status_of(store.lookup, a, b"hidden") == Status.NOENT
            assert store.lookup(a, b"b").kind == Kind.DIR
        table = make_store(export, by_kernel=False)
        assert status_of(table.lookup, table.root, b"a") == Status.ACCESS
    finally:
        assert libc.umount(path) == 0


@pytest.mark.slow
def test_a_directory_swapped_for_a_link_never_leads_outside(store: Store, export: Path) -> None:
    """Somebody exchanges a directory for a link to the outside as fast as it goes."""
    outside = {os.stat(export.parent / "outside" / "secret").st_ino}
    (export / "swap").mkdir()
    (export / "swap" / "secret").write_text("decoy")
    (export.parent / "parked").symlink_to(export.parent / "outside")
    decoy = os.stat(export / "swap" / "secret").st_ino
    stop = threading.Event()

    def swap() -> None:
        libc = ctypes.CDLL(None, use_errno=True)
        one, two = os.fsencode(export / "swap"), os.fsencode(export.parent / "parked")
        while not stop.is_set():
            libc.renameat2(-100, one, -100, two, 2)  # RENAME_EXCHANGE

    thread = threading.Thread(target=swap)
    thread.start()
    seen, statuses = set(), set()
    try:
        for _ in range(3000):
            try:
                directory = store.lookup(store.root, b"swap")
                seen.add(store.lookup(directory, b"secret").key[1])
                store.resolve(directory.handle)
            except NfsError as failure:
                statuses.add(failure.status)
            made = status_of(_make, store, export)
            assert made in (Status.OK, Status.SYMLINK, Status.NOENT, Status.STALE), made
    finally:
        stop.set()
        thread.join()
    assert seen <= {decoy}
    assert not seen & outside
    assert statuses <= {Status.SYMLINK, Status.STALE, Status.NOENT}
    assert sorted(os.listdir(export.parent / "outside")) == ["secret"]


def _make(store: Store, export: Path) -> None:
    directory = store.lookup(store.root, b"swap")
    made = store.create_file(directory, b"new", UNCHECKED, Settings())
    if made.fd is not None:
        os.close(made.fd)
        store.remove(directory, b"new")


def test_a_rename_out_of_an_export_below_is_not_followed(export: Path) -> None:
    """A directory that a client still holds was moved out: its way up does not lead there."""
    needs(is_root(), "a mount of its own needs root")
    store = make_store(export)
    b = store.lookup(store.lookup(store.root, b"a"), b"b")
    (export / "a" / "b").rename(export.parent / "outside" / "b")
    assert status_of(store.parent, b) == Status.NOENT
