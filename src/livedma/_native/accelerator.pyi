# SPDX-License-Identifier: BSD-2-Clause
from typing import final

from livedma._native.nfs import Changes, SlotTable, WriteVerifier

UID_NONE: int
KINDS: tuple[str, ...]

@final
class Sessions:
    """Holds the sessions whose requests may be served without Python."""

    def __init__(self) -> None: ...
    def add(self, table: SlotTable) -> None:
        """Adds a session, by its table of slots."""
    def remove(self, table: SlotTable) -> bool:
        """Removes a session; returns whether it was there."""
    def __len__(self) -> int: ...

@final
class Accelerator:
    """Serves READ, WRITE and COMMIT on granted files, without Python.

    Threads make the storage calls that may block; with a reserve, a COMMIT does not wait behind all
    of the others. It serves up to `operations` calls at a time, and one READ gives up to `read_max`
    bytes. It shares change attributes and the write verifier with the Python code that answers all
    other calls.
    """

    def __init__(
        self,
        changes: Changes,
        verifier: WriteVerifier,
        *,
        threads: int = 4,
        operations: int = 4096,
        read_max: int = 1048576,
        has_reserve: bool = False,
    ) -> None: ...
    @property
    def sessions(self) -> Sessions:
        """Holds the sessions whose requests it may serve."""
    @property
    def changes(self) -> Changes:
        """Makes the change attributes of the files that it writes."""
    @property
    def verifier(self) -> WriteVerifier:
        """Holds the write verifier; a sync that fails changes it."""
    @property
    def capsule(self) -> object:
        """Wraps its struct ldma_program for `Service.set_program`, and keeps it alive."""
    def grant(
        self,
        other: bytes,
        seqid: int,
        handle: bytes,
        fd: int,
        readable: bool,
        writable: bool,
        client: int,
        uid: int,
    ) -> None:
        """Lets READ, WRITE and COMMIT by this stateid, of this client and user (UID_NONE:
        AUTH_NONE), use a duplicate of fd. ValueError: there is such a grant, or it is no regular
        file.
        """
    def update(self, other: bytes, seqid: int, readable: bool, writable: bool) -> bool:
        """Changes a grant; returns whether there is such a grant."""
    def revoke(self, other: bytes) -> bool:
        """Takes a grant back; returns whether there was one. Calls that have begun go on."""
    @property
    def grants(self) -> int:
        """Counts the grants that it has now."""
    store_delay_s: float
    store_width: int
    @property
    def counters(self) -> dict[str, int]:
        """Counts the calls taken, those left to Python by reason, and the storage calls
        (native/nfs/accelerator.h).
        """
    def served(self, kind: str) -> dict[str, int]:
        """Returns the calls, bytes and errors of one of KINDS."""
    def storage_times(self, kind: str) -> tuple[int, int, int, list[tuple[int, int]]]:
        """Returns how long storage calls took: (count, sum, longest, [(least of a bucket, how
        many)]), in ns.
        """
    def close(self, timeout_s: float = 10.0) -> None:
        """Takes no more calls, and waits for those that it has taken. TimeoutError: some have not
        ended.
        """
