# SPDX-License-Identifier: BSD-2-Clause
"""Keeps the state that survives a restart: secrets, the instance number, the clients that may
reclaim.

It is a small SQLite database in a directory of its own. Each change is on the disk when its call
returns. A change that fails (a full disk) has changed nothing and may be tried again. A server that
is killed at any point leaves the state before or after a change.

A thread of its own, with the server's identity, does all the work: the threads that call may be
acting as their clients, which must not touch these files.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
import secrets
import sqlite3
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TypeVar

from livedma.errors import LivedmaError
from livedma.nfs.server.private_directory import make_private

__all__ = ["Persist", "PersistError", "default_directory", "make_default"]

SHARED = Path("/var/tmp")  #: for users without a home; unlike /tmp, it survives a restart

_APPLICATION = 0x4C444D4E  # "LDMN", in the header of the database
_VERSION = 1
_SECRET_BYTES = 32
_TABLES = (
    "CREATE TABLE secrets (name TEXT PRIMARY KEY, value BLOB NOT NULL)",
    "CREATE TABLE instance (boot INTEGER NOT NULL)",
    "INSERT INTO instance VALUES (0)",
    "CREATE TABLE clients (owner BLOB PRIMARY KEY, boot INTEGER NOT NULL) WITHOUT ROWID",
)


T = TypeVar("T")


class PersistError(LivedmaError):
    """Reports that state cannot be read or kept."""


def default_directory(export: Path) -> Path:
    """Returns where the state of an export is kept by default: each export has its own place."""
    name = hashlib.sha256(os.fsencode(export.resolve())).hexdigest()[:16]
    return _base() / "livedma" / "nfs" / name


def make_default(export: Path) -> Path:
    """Returns the default directory, for `Persist` to make; its parent is this user's alone.

    Raises PersistError if the parent is another user's.
    """
    base = _base()
    if base.parent == SHARED:
        try:
            make_private(base)
        except LivedmaError as error:
            raise PersistError(f"{error}; name another place for state with --state DIR") from None
    return default_directory(export)


def _base() -> Path:
    if os.geteuid() == 0:
        return Path("/var/lib")
    named = os.environ.get("XDG_STATE_HOME", "")
    # A relative path there is to be ignored, says the XDG specification.
    if os.path.isabs(named):
        return Path(named)
    try:
        home = Path.home()
    except RuntimeError:  # the user is in no database, as in some containers
        return SHARED / f"livedma-{os.geteuid()}"
    usual = home / ".local/state"
    return usual if _can_have(usual, home) else SHARED / f"livedma-{os.geteuid()}"


def _can_have(path: Path, above: Path) -> bool:
    """Returns whether this user can write to the path, or make what is missing below `above`."""
    while path != above and not os.path.lexists(path):
        path = path.parent
    return path.is_dir() and os.access(path, os.W_OK | os.X_OK)


class Persist:
    """Keeps the state in `directory`, which it makes if need be; one server at a time has it."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self._path = directory / "state.sqlite"
        self._is_open = True
        try:
            directory.mkdir(mode=0o700, parents=True, exist_ok=True)
            self._lock = _take(directory / "lock")
        except OSError as error:
            raise PersistError(f"the state directory {directory} cannot be used: {error}") from None
        # A thread inherits the identity of its maker: this one is made here, not on first use.
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="nfs-persist")
        try:
            self._database = self._thread.submit(self._open).result()
        except BaseException:
            self._thread.shutdown()
            os.close(self._lock)
            raise

    def close(self) -> None:
        """Releases the directory for another server."""
        if self._is_open:
            self._is_open = False
            self._thread.submit(self._database.close).result()
            self._thread.shutdown()
            os.close(self._lock)

    def __enter__(self) -> Persist:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def secret(self, name: str) -> bytes:
        """Returns random bytes that stay the same across restarts."""

        def change(database: sqlite3.Connection) -> bytes:
            database.execute(
                "INSERT OR IGNORE INTO secrets VALUES (?, ?)",
                (name, secrets.token_bytes(_SECRET_BYTES)),
            )
            query = "SELECT value FROM secrets WHERE name = ?"
            (value,) = database.execute(query, (name,)).fetchone()
            return bytes(value)

        return self._do(change)

    def next_boot(self) -> int:
        """Counts an instance of the server and returns its number; the first is 1."""

        def change(database: sqlite3.Connection) -> int:
            database.execute("UPDATE instance SET boot = boot + 1")
            (boot,) = database.execute("SELECT boot FROM instance").fetchone()
            return int(boot)

        return self._do(change)

    def clients(self) -> frozenset[bytes]:
        """Returns the owners of the clients that may reclaim."""

        def look(database: sqlite3.Connection) -> frozenset[bytes]:
            rows = database.execute("SELECT owner FROM clients").fetchall()
            return frozenset(bytes(owner) for (owner,) in rows)

        return self._do(look)

    def change_clients(self, boot: int, changes: list[tuple[bytes, bool]], *, purge: bool) -> None:
        """Remembers (True) and forgets (False) owners, in order, all of them or none.

        purge: first removes the clients that no server of instance `boot` has remembered.
        """

        def change(database: sqlite3.Connection) -> None:
            if purge:
                database.execute("DELETE FROM clients WHERE boot != ?", (boot,))
            for owner, is_kept in changes:
                if is_kept:
                    database.execute("INSERT OR REPLACE INTO clients VALUES (?, ?)", (owner, boot))
                else:
                    database.execute("DELETE FROM clients WHERE owner = ?", (owner,))

        self._do(change)

    def _open(self) -> sqlite3.Connection:
        try:
            # SQLite would let other users read it if the directory existed before.
            os.close(os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600))
        except OSError as error:
            raise PersistError(f"{self._path} cannot be opened: {error.strerror}") from None
        with self._errors():
            database = sqlite3.connect(self._path, isolation_level=None, timeout=0)
        try:
            with self._errors():
                # This journal keeps its place on the disk, so a client can be forgotten even on a
                # full one. The end of a transaction is synced: what was committed stays.
                database.execute("PRAGMA journal_mode = PERSIST")
                database.execute("PRAGMA synchronous = EXTRA")
                self._identify(database)
        except BaseException:
            database.close()
            raise
        return database

    def _identify(self, database: sqlite3.Connection) -> None:
        (application,) = database.execute("PRAGMA application_id").fetchone()
        (version,) = database.execute("PRAGMA user_version").fetchone()
        (tables,) = database.execute("SELECT count(*) FROM sqlite_master").fetchone()
        if application == 0 and version == 0 and tables == 0:
            with _transaction(database):
                for statement in _TABLES:
                    database.execute(statement)
                database.execute(f"PRAGMA application_id = {_APPLICATION}")
                database.execute(f"PRAGMA user_version = {_VERSION}")
            return
        if application != _APPLICATION:
            raise PersistError(f"{self._path} is a database of something else; move it away")
        if version != _VERSION:
            raise PersistError(
                f"{self._path} is of version {version}, and this is version {_VERSION}"
            )
        (verdict,) = database.execute("PRAGMA quick_check(1)").fetchone()
        if verdict != "ok":
            raise PersistError(f"{self._path} is damaged: {verdict}; {_REMEDY}")

    def _do(self, work: Callable[[sqlite3.Connection], T]) -> T:
        def within() -> T:
            with self._errors(), _transaction(self._database):
                return work(self._database)

        if not self._is_open:
            raise PersistError(f"{self._path} is closed")
        return self._thread.submit(within).result()

    @contextlib.contextmanager
    def _errors(self) -> Iterator[None]:
        try:
            yield
        except sqlite3.OperationalError as error:
            raise PersistError(f"{self._path}: {error}") from None
        except sqlite3.DatabaseError as error:
            raise PersistError(f"{self._path} is damaged: {error}; {_REMEDY}") from None


_REMEDY = "move it away, and clients will not reclaim what they had open"


@contextlib.contextmanager
def _transaction(database: sqlite3.Connection) -> Iterator[None]:
    database.execute("BEGIN IMMEDIATE")
    try:
        yield
        database.execute("COMMIT")
    except BaseException:
        # After some errors SQLite has already rolled back.
        if database.in_transaction:
            database.execute("ROLLBACK")
        raise


def _take(path: Path) -> int:
    fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        owner = os.pread(fd, 32, 0).decode(errors="replace").strip()
        os.close(fd)
        raise PersistError(
            f"another server{f' (process {owner})' if owner else ''} uses the state directory "
            f"{path.parent}; give one of them its own with --state DIR"
        ) from None
    except BaseException:
        os.close(fd)
        raise
    # The process number is for people alone: a full disk must not keep a server from starting.
    with contextlib.suppress(OSError):
        os.ftruncate(fd, 0)
        os.pwrite(fd, b"%d\n" % os.getpid(), 0)
    return fd
