"""What a server has to know after a restart: secrets, its instance number, who may reclaim.

A small SQLite database in a directory of its own. Each change is on the disk when its call returns;
one that fails (a full disk) has changed nothing, and may be tried again. A server that is killed
at any point leaves the state before or after a change.

All work is done by a thread of its own, which is the server itself: those that call may be acting
as their clients, who must not touch these files.
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

__all__ = ["Persist", "PersistError", "default_directory"]

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
    """State cannot be read or kept."""


def default_directory(export: Path) -> Path:
    """Where the state of an export is kept unless told otherwise: each export has its own."""
    if os.geteuid() == 0:
        base = Path("/var/lib")
    else:
        home = os.environ.get("XDG_STATE_HOME", "")
        # A relative path there is to be ignored, says the XDG specification.
        base = Path(home) if os.path.isabs(home) else Path.home() / ".local/state"
    name = hashlib.sha256(os.fsencode(export.resolve())).hexdigest()[:16]
    return base / "livedma" / "nfs" / name


class Persist:
    """The state in `directory`, which is made if need be; one server at a time has it."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self._path = directory / "state.sqlite"
        self._is_open = True
        try:
            directory.mkdir(mode=0o700, parents=True, exist_ok=True)
            self._lock = _take(directory / "lock")
        except OSError as error:
            raise PersistError(f"the state directory {directory} cannot be used: {error}") from None
        # Threads inherit whom they act as: this one is made here, not by the first who needs it.
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="nfs-persist")
        try:
            self._database = self._thread.submit(self._open).result()
        except BaseException:
            self._thread.shutdown()
            os.close(self._lock)
            raise

    def close(self) -> None:
        """Lets another server have it."""
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
        """Random bytes that stay the same from one server to the next."""

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
        """Counts an instance of the server; the first is 1."""

        def change(database: sqlite3.Connection) -> int:
            database.execute("UPDATE instance SET boot = boot + 1")
            (boot,) = database.execute("SELECT boot FROM instance").fetchone()
            return int(boot)

        return self._do(change)

    def clients(self) -> frozenset[bytes]:
        """The owners of those who may reclaim."""

        def look(database: sqlite3.Connection) -> frozenset[bytes]:
            rows = database.execute("SELECT owner FROM clients").fetchall()
            return frozenset(bytes(owner) for (owner,) in rows)

        return self._do(look)

    def change_clients(self, boot: int, changes: list[tuple[bytes, bool]], *, purge: bool) -> None:
        """Remembers (True) and forgets (False) owners, in order, at once or not at all.

        purge: before that, all go that no server of instance `boot` has remembered.
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
            # SQLite would let others read it, in a directory that may be there already.
            os.close(os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600))
        except OSError as error:
            raise PersistError(f"{self._path} cannot be opened: {error.strerror}") from None
        with self._errors():
            database = sqlite3.connect(self._path, isolation_level=None, timeout=0)
        try:
            with self._errors():
                # A journal that keeps its place on the disk: who is gone can be forgotten on a full
                # one. The end of a transaction is synced, so what was committed stays so.
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
        # After some errors SQLite has rolled back by itself.
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
            f"{path.parent}; give one of them its own"
        ) from None
    except BaseException:
        os.close(fd)
        raise
    # Who has it is of use to people alone: a full disk must not keep a server from starting.
    with contextlib.suppress(OSError):
        os.ftruncate(fd, 0)
        os.pwrite(fd, b"%d\n" % os.getpid(), 0)
    return fd
