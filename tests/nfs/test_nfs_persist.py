# SPDX-License-Identifier: BSD-2-Clause
"""What stays over restarts: the state before or after a change, whenever a server is killed."""

from __future__ import annotations

import ctypes
import os
import signal
import sqlite3
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from livedma.nfs.server.persist import Persist, PersistError, default_directory
from needs import needs


def test_secrets_stay(tmp_path: Path) -> None:
    with Persist(tmp_path) as persist:
        handles, other = persist.secret("handles"), persist.secret("other")
        assert persist.secret("handles") == handles
    assert handles != other and len(handles) == 32
    with Persist(tmp_path) as persist:
        assert persist.secret("handles") == handles


def test_instances_are_counted(tmp_path: Path) -> None:
    for boot in (1, 2, 3):
        with Persist(tmp_path) as persist:
            assert persist.next_boot() == boot


def test_clients_come_and_go(tmp_path: Path) -> None:
    with Persist(tmp_path) as persist:
        persist.change_clients(1, [(b"a", True), (b"b", True), (b"c", True)], purge=False)
        persist.change_clients(1, [(b"a", False), (b"b", False), (b"b", True)], purge=False)
    with Persist(tmp_path) as persist:
        assert persist.clients() == {b"b", b"c"}
        persist.change_clients(2, [(b"b", True)], purge=False)
        persist.change_clients(2, [(b"d", True)], purge=True)
        assert persist.clients() == {b"b", b"d"}


def test_a_commit_waits_for_the_disk(tmp_path: Path) -> None:
    """What a power failure would show, SQLite is asked for: a kill loses nothing either way."""
    with Persist(tmp_path) as persist:
        (level,) = persist._do(lambda database: database.execute("PRAGMA synchronous").fetchone())
        assert level == 3  # EXTRA
        (mode,) = persist._do(lambda database: database.execute("PRAGMA journal_mode").fetchone())
        assert mode == "persist"


def test_nobody_else_may_read_it(tmp_path: Path) -> None:
    with Persist(tmp_path / "made" / "here"):
        assert (tmp_path / "made" / "here").stat().st_mode & 0o077 == 0


def test_nobody_else_may_read_what_is_in_a_directory_that_all_may_enter(tmp_path: Path) -> None:
    tmp_path.chmod(0o755)
    with Persist(tmp_path) as persist:
        persist.secret("handles")
        for path in tmp_path.iterdir():
            assert path.stat().st_mode & 0o077 == 0, path


def test_a_database_that_cannot_be_opened(tmp_path: Path) -> None:
    (tmp_path / "state.sqlite").mkdir()
    with pytest.raises(PersistError, match="cannot be opened"):
        Persist(tmp_path)


def test_one_server_at_a_time(tmp_path: Path) -> None:
    said = rf"\(process {os.getpid()}\) uses .*{tmp_path}; .* its own with --state DIR$"
    with Persist(tmp_path), pytest.raises(PersistError, match=said):
        Persist(tmp_path)
    Persist(tmp_path).close()


def test_closing_twice(tmp_path: Path) -> None:
    persist = Persist(tmp_path)
    persist.close()
    persist.close()
    with pytest.raises(PersistError, match="is closed"):
        persist.clients()


def test_no_directory(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(PersistError, match="cannot be used"):
        Persist(tmp_path / "file")


def test_what_is_no_database(tmp_path: Path) -> None:
    (tmp_path / "state.sqlite").write_bytes(b"hello" * 1000)
    with pytest.raises(PersistError, match=r"is damaged.*move it away"):
        Persist(tmp_path)
    (tmp_path / "state.sqlite").unlink()
    Persist(tmp_path).close()  # The failure has let go of the lock.


def test_a_database_of_something_else(tmp_path: Path) -> None:
    with sqlite3.connect(tmp_path / "state.sqlite") as other:
        other.execute("CREATE TABLE clients (name TEXT)")
    other.close()
    with pytest.raises(PersistError, match="of something else"):
        Persist(tmp_path)


def test_a_database_of_a_later_version(tmp_path: Path) -> None:
    Persist(tmp_path).close()
    database = sqlite3.connect(tmp_path / "state.sqlite")
    database.execute("PRAGMA user_version = 9")
    database.close()
    with pytest.raises(PersistError, match="version 9"):
        Persist(tmp_path)


def test_damage_is_found_at_once(tmp_path: Path) -> None:
    with Persist(tmp_path) as persist:
        persist.change_clients(1, [(b"%d" % i * 50, True) for i in range(500)], purge=False)
    path = tmp_path / "state.sqlite"
    whole = bytearray(path.read_bytes())
    whole[8192:] = os.urandom(len(whole) - 8192)
    path.write_bytes(whole)
    with pytest.raises(PersistError, match="is damaged"):
        Persist(tmp_path)


def test_a_full_disk_changes_nothing_and_passes(tmp_path: Path) -> None:
    with Persist(tmp_path) as persist:
        persist.change_clients(1, [(b"old", True)], purge=False)

        # SQLite gives the same error for a file at its limit as for a full disk.
        def limit(pages: int) -> int:
            statement = f"PRAGMA max_page_count = {pages}"
            (most,) = persist._do(lambda database: database.execute(statement).fetchone())
            return int(most)

        most = limit(1)
        with pytest.raises(PersistError, match="full"):
            persist.change_clients(
                1, [(b"old", False), *((os.urandom(1000), True) for _ in range(50))], purge=False
            )
        assert persist.clients() == {b"old"}
        persist.change_clients(1, [(b"old", False)], purge=False)
        assert persist.clients() == frozenset()
        limit(most + 100)
        persist.change_clients(1, [(os.urandom(1000), True) for _ in range(50)], purge=False)
        assert len(persist.clients()) == 50


def test_threads_share_it(tmp_path: Path) -> None:
    with Persist(tmp_path) as persist:
        threads = [
            threading.Thread(
                target=persist.change_clients,
                args=(1, [(b"%d" % i, True)]),
                kwargs={"purge": False},
            )
            for i in range(8)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert len(persist.clients()) == 8


# Says what it is about to do, does it, says that it is done: pairs of clients come and go together.
CHILD = """
import sys
from pathlib import Path
from livedma.nfs.server.persist import Persist

persist = Persist(Path(sys.argv[1]))
first = int(sys.argv[2])
persist.next_boot()
for i in range(first, first + 100000):
    sys.stdout.write(f"try {i}\\n"); sys.stdout.flush()
    come = [(b"a%d" % i, True), (b"b%d" % i, True)]
    go = [(b"a%d" % (i - 1), False), (b"b%d" % (i - 1), False)]
    persist.change_clients(1, come + go, purge=False)
    sys.stdout.write(f"done {i}\\n"); sys.stdout.flush()
"""


@pytest.mark.slow
def test_killed_at_any_point(tmp_path: Path) -> None:
    """The state is that of the last change that returned, or of the one that was under way."""
    first = 1
    for round_number in range(12):
        child = subprocess.Popen(
            [sys.executable, "-c", CHILD, str(tmp_path), str(first)],
            stdout=subprocess.PIPE,
            text=True,
        )
        assert child.stdout is not None
        tried = done = first - 1
        # Somewhere in the middle of a change: after more and more of them, at once after "try".
        for line in child.stdout:
            word, number = line.split()
            tried, done = (int(number), done) if word == "try" else (tried, int(number))
            if word == "try" and tried == first + 3 * round_number:
                child.send_signal(signal.SIGKILL)
        child.stdout.close()
        assert child.wait() == -signal.SIGKILL
        with Persist(tmp_path) as persist:
            pairs = [{b"a%d" % i, b"b%d" % i} for i in (done, tried) if i]
            assert persist.clients() in [*pairs, *([] if done else [set()])]
            assert persist.next_boot() == 2 * (round_number + 1)
        first = max(tried, done) + 1
        with Persist(tmp_path) as persist:
            changes = [(owner, False) for owner in persist.clients()]
            persist.change_clients(
                1,
                [*changes, (b"a%d" % (first - 1), True), (b"b%d" % (first - 1), True)],
                purge=False,
            )


def test_where_state_is_by_default(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    one, other = default_directory(tmp_path / "one"), default_directory(tmp_path / "other")
    assert one != other
    (tmp_path / "link").symlink_to(tmp_path / "one")
    assert default_directory(tmp_path / "link") == one
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    assert default_directory(tmp_path).is_relative_to("/var/lib/livedma")
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    monkeypatch.setenv("XDG_STATE_HOME", "/state")
    assert default_directory(tmp_path).is_relative_to("/state/livedma")
    monkeypatch.setenv("XDG_STATE_HOME", "relative")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert default_directory(tmp_path).is_relative_to(tmp_path / ".local/state/livedma")
    for home in ("/nonexistent", "/proc"):  # of users that have none, or must not write there
        monkeypatch.setenv("HOME", home)
        monkeypatch.setattr(os, "access", lambda path, _: not str(path).startswith("/proc"))
        assert default_directory(tmp_path).is_relative_to("/var/tmp/livedma-1000/livedma/nfs")


def test_whoever_a_thread_acts_as(tmp_path: Path) -> None:
    """Threads of a server act as their clients, to whom its state is closed."""
    needs(os.geteuid() == 0, "acting as somebody else needs root")
    wrong: list[BaseException] = []
    libc = ctypes.CDLL(None)

    def act(persist: Persist) -> None:
        libc.setfsuid(12345)
        try:
            with pytest.raises(PermissionError):
                os.listdir(persist.directory)
            persist.change_clients(1, [(b"a", True)], purge=False)
        except BaseException as error:
            wrong.append(error)

    with Persist(tmp_path / "state") as persist:
        thread = threading.Thread(target=act, args=(persist,))
        thread.start()
        thread.join()
        assert not wrong
        assert persist.clients() == {b"a"}


# On a filesystem of its own, which is full: it can forget a client, and remember none.
ON_A_FULL_DISK = """
import os
import sys
from pathlib import Path
from livedma.nfs.server.persist import Persist, PersistError

directory = Path(sys.argv[1])
with Persist(directory / "state") as persist:
    many = [(b"%d" % i * 100, True) for i in range(100)]
    persist.change_clients(1, many, purge=False)
    with open(directory / "ballast", "wb", buffering=0) as ballast:
        try:
            while True:
                ballast.write(bytes(512))
        except OSError:
            pass
    try:
        persist.change_clients(1, [(os.urandom(1000), True) for i in range(1000)], purge=False)
    except PersistError as error:
        print(error)
    assert len(persist.clients()) == 100
    persist.change_clients(1, [(many[0][0], False)], purge=False)
with Persist(directory / "state") as persist:
    assert len(persist.clients()) == 99
    assert persist.next_boot() == 1
    (directory / "ballast").unlink()
    persist.change_clients(1, [(os.urandom(1000), True) for i in range(10)], purge=False)
    assert len(persist.clients()) == 109
"""


@pytest.mark.slow
def test_a_disk_that_is_full(tmp_path: Path) -> None:
    needs(os.geteuid() == 0, "a filesystem of its own needs root")
    run = f'mount -t tmpfs -o size=512k none {tmp_path} && exec "$0" -c "$1" {tmp_path}'
    done = subprocess.run(
        ["unshare", "-m", "sh", "-c", run, sys.executable, ON_A_FULL_DISK],
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr
    assert "full" in done.stdout
