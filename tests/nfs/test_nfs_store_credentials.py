# SPDX-License-Identifier: BSD-2-Clause
"""Acting as clients: the kernel judges by their ids, in their thread alone, and until the end."""

from __future__ import annotations

import os
import threading
from pathlib import Path

import pytest
from tests.needs import needs
from tests.nfs.stores import (
    ALICE,
    BOB,
    ROOT,
    UNCHECKED,
    is_root,
    make_file,
    make_store,
    status_of,
)

from livedma.nfs.numbers import Status
from livedma.nfs.server.config import Config
from livedma.nfs.server.context import Credential
from livedma.nfs.server.store import Access, Identity, Settings, Store, syscalls
from livedma.nfs.server.store.credentials import Actor

ALL = Access.READ | Access.MODIFY | Access.EXTEND | Access.EXECUTE | Access.LOOKUP | Access.DELETE


@pytest.fixture
def export(tmp_path: Path) -> Path:
    needs(is_root(), "acting as others needs root")
    tmp_path.chmod(0o755)
    return tmp_path


@pytest.fixture
def store(export: Path) -> Store:
    return make_store(export)


def ids_of_thread() -> list[str]:
    """What the kernel says of this thread: ids, groups, umask and capabilities."""
    names = ("Uid", "Gid", "Groups", "Umask", "CapEff", "CapPrm")
    lines = Path("/proc/thread-self/status").read_text().splitlines()
    return [line for line in lines if line.split(":")[0] in names]


@pytest.mark.parametrize(
    ("squash", "credential", "identity"),
    [
        ("none", Credential(0, 0, (0, 5)), Identity(0, 0, (0, 5))),
        ("none", Credential(7, 8, (9,)), Identity(7, 8, (9,))),
        ("none", Credential(None, None), Identity(65534, 65533, ())),
        ("none", Credential(0xFFFFFFFF, 8, (9,)), Identity(65534, 8, (9,))),
        ("root", Credential(7, 0xFFFFFFFF, (9, 0xFFFFFFFF)), Identity(7, 65533, (9,))),
        ("root", Credential(0, 0, (0, 5)), Identity(65534, 65533, (65533, 5))),
        ("root", Credential(7, 0, (0,)), Identity(7, 65533, (65533,))),
        ("root", Credential(7, 8, (9,)), Identity(7, 8, (9,))),
        ("all", Credential(7, 8, (9,)), Identity(65534, 65533, ())),
        ("none", Credential(7, 8, tuple(range(1, 20))), Identity(7, 8, tuple(range(1, 17)))),
    ],
)
def test_who_a_client_is(squash: str, credential: Credential, identity: Identity) -> None:
    rules = Config(squash=squash, anonymous_gid=65533)  # type: ignore[arg-type]
    assert Actor(rules).identity(credential) == identity


def test_files_belong_to_who_made_them(store: Store, export: Path) -> None:
    export.chmod(0o777)
    with store.acting_as(ALICE):
        make_file(store, store.root, b"mine")
    made = os.stat(export / "mine")
    assert (made.st_uid, made.st_gid, made.st_mode & 0o7777) == (1001, 1001, 0o644)


def test_permissions_are_those_of_the_client(store: Store, export: Path) -> None:
    path = export / "file"
    path.write_text("x")
    file = store.lookup(store.root, b"file")
    for mode, gid, credential, expected in (
        (0o600, 0, ALICE, Status.ACCESS),
        (0o604, 0, ALICE, Status.OK),
        (0o640, 1001, ALICE, Status.OK),
        (0o640, 2001, ALICE, Status.OK),  # A supplementary group.
        (0o640, 2001, BOB, Status.ACCESS),
        (0o604, 2001, ALICE, Status.ACCESS),  # Group members are not others.
        (0o000, 0, ROOT, Status.OK),
        (0o604, 0, Credential(None, None), Status.OK),
        (0o600, 0, Credential(None, None), Status.ACCESS),
    ):
        os.chown(path, 0, gid)
        path.chmod(mode)
        with store.acting_as(credential):
            assert status_of(_open_and_close, store, file) == expected, (mode, gid, credential)
            _, allowed = store.access(file, ALL)
            assert bool(allowed & Access.READ) == (expected == Status.OK)


def _open_and_close(store: Store, node: object) -> None:
    os.close(store.open(node, True, False))  # type: ignore[arg-type]


def test_squashed_root_is_nobody(export: Path) -> None:
    store = make_store(export, squash="root")
    (export / "secret").write_text("x")
    (export / "secret").chmod(0o600)
    secret = store.lookup(store.root, b"secret")
    with store.acting_as(ROOT):
        assert status_of(store.open, secret, True, False) == Status.ACCESS
        assert status_of(store.create_file, store.root, b"new", UNCHECKED, Settings()) == (
            Status.ACCESS
        )
        assert status_of(store.setattr, secret, Settings(mode=0o777)) == Status.PERM
        assert status_of(store.setattr, secret, Settings(uid=1001)) == Status.PERM


def test_a_directory_without_x_is_not_searched(store: Store, export: Path) -> None:
    (export / "d").mkdir(mode=0o744)
    (export / "d" / "file").touch()
    directory = store.lookup(store.root, b"d")
    with store.acting_as(ALICE):
        assert status_of(store.lookup, directory, b"file") == Status.ACCESS
        with store.reading(directory, 0) as entries:
            assert [entry.name for entry in entries] == [b"file"]
    (export / "d").chmod(0o711)
    with store.acting_as(ALICE):
        store.lookup(directory, b"file")
        with pytest.raises(Exception, match="ACCESS"), store.reading(directory, 0):
            pass


def test_access_is_what_opening_gives(store: Store, export: Path) -> None:
    for mode in (0o400, 0o200, 0o100, 0o040, 0o020, 0o007, 0o777, 0):
        for credential in (ALICE, BOB, ROOT):
            path = export / f"{mode:o}-{credential.uid}"
            path.touch()
            os.chown(path, 1001, 1002)
            path.chmod(mode)
            node = store.lookup(store.root, os.fsencode(path.name))
            with store.acting_as(credential):
                known, allowed = store.access(node, ALL)
                readable = status_of(store.open, node, True, False) == Status.OK
                writable = status_of(store.open, node, False, True) == Status.OK
            assert known == Access.READ | Access.MODIFY | Access.EXTEND | Access.EXECUTE
            assert bool(allowed & Access.READ) == readable
            assert bool(allowed & Access.MODIFY) == bool(allowed & Access.EXTEND) == writable
            classes = {1001: mode >> 6, 1002: mode >> 3, 0: mode >> 6 | mode >> 3 | mode}
            assert bool(allowed & Access.EXECUTE) == bool(classes[credential.uid or 0] & 1)


def test_access_of_a_directory(store: Store, export: Path) -> None:
    (export / "d").mkdir(mode=0o755)
    directory = store.lookup(store.root, b"d")
    with store.acting_as(ALICE):
        known, allowed = store.access(directory, ALL)
    changes = Access.MODIFY | Access.EXTEND | Access.DELETE
    assert (known, allowed) == (ALL & ~Access.EXECUTE, Access.READ | Access.LOOKUP)
    with store.acting_as(ROOT):
        assert store.access(directory, ALL)[1] == Access.READ | Access.LOOKUP | changes
    with (reader := make_store(export, read_only=True)).acting_as(ROOT):
        assert reader.access(directory, ALL)[1] == Access.READ | Access.LOOKUP


def test_the_owner_may_again_what_the_mode_forbids(store: Store, export: Path) -> None:
    path = export / "file"
    path.touch(0o444)
    os.chown(path, 1001, 1001)
    node = store.lookup(store.root, b"file")
    with store.acting_as(ALICE):
        assert status_of(store.open, node, True, True) == Status.ACCESS
        os.close(store.open(node, True, True, owner_may=True))
    with store.acting_as(BOB):
        assert status_of(store.open, node, True, True, owner_may=True) == Status.ACCESS


def test_a_thread_is_itself_again(store: Store) -> None:
    before = ids_of_thread()
    with store.acting_as(ALICE):
        inside = ids_of_thread()
        assert "1001" in inside[1] and "1001" in inside[2] and inside[3].split()[1:] == ["2001"]
        assert inside[0] == "Umask:\t0000"
        with store.acting_as(BOB):
            assert "1002" in ids_of_thread()[1]
        assert ids_of_thread() == inside
        handle = store.root.handle
        assert store.resolve(handle).key == store.root.key  # Needs privilege for a moment.
        assert ids_of_thread() == inside
    assert ids_of_thread() == before
    with pytest.raises(ZeroDivisionError), store.acting_as(ALICE):
        raise ZeroDivisionError
    assert ids_of_thread() == before


def test_a_client_has_no_capability_over_files_or_quotas(store: Store) -> None:
    for credential, has_any in ((ALICE, False), (ROOT, True)):
        with store.acting_as(credential):
            effective, permitted, _ = syscalls.capabilities()
        over_files = 0b11111 | 1 << 24 | 1 << 27
        assert bool(effective & over_files) == has_any
        assert permitted == syscalls.capabilities()[1]


def test_threads_are_different_clients_at_once(store: Store, export: Path) -> None:
    for number in range(4):
        directory = export / str(number)
        directory.mkdir(0o700)
        os.chown(directory, 2000 + number, 2000 + number)
    wrong: list[object] = []
    start = threading.Barrier(4)

    def work(number: int) -> None:
        before = ids_of_thread()
        own = store.lookup(store.root, b"%d" % number)
        other = store.lookup(store.root, b"%d" % ((number + 1) % 4))
        start.wait(60)
        for turn in range(100):
            with store.acting_as(Credential(2000 + number, 2000 + number)):
                make_file(store, own, b"%d" % turn)
                if status_of(store.lookup, other, b"0") != Status.ACCESS:
                    wrong.append(number)
        if ids_of_thread() != before:
            wrong.append(before)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []
    for number in range(4):
        owners = {os.stat(path).st_uid for path in (export / str(number)).iterdir()}
        assert owners == {2000 + number}
    assert "0\t0\t0\t0" in ids_of_thread()[1]


def test_without_privilege_the_server_is_itself(export: Path) -> None:
    """In another process that is nobody from its start."""
    export.chmod(0o777)
    child = os.fork()
    if child == 0:
        code = 1
        try:
            os.chdir(export)  # Whose way there may be closed to others.
            os.setgroups([])
            os.setgid(65534)
            os.setuid(65534)
            store = make_store(Path("."))
            with store.acting_as(ALICE):
                made = make_file(store, store.root, b"file")
                found = store.resolve(made.handle)
                done = not store.is_persistent and found.stat().st_uid == 65534
            code = 0 if done else 2
        finally:
            os._exit(code)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
