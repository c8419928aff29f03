# SPDX-License-Identifier: BSD-2-Clause
"""Rules the time of grace after a restart, in which clients reclaim what they had (RFC 8881,
8.4.2).

The clients that may reclaim are on the disk, since a server that forgot them could only let all
reclaim, or none. Two rules keep the list right. A client is remembered before it gets its first
state. And before another client gets what it had, it is forgotten: because it is gone (`forget`),
or because it did not come back in time (the end of grace). `forget` may be called under the
server's lock, so it only notes the change; `settle` writes it, and is called before anything is
granted.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from typing import Protocol

from livedma.nfs.numbers import NfsError, Status
from livedma.nfs.server.persist import Persist, PersistError

__all__ = ["Reclaiming", "Recovery"]

_log = logging.getLogger(__name__)


class Reclaiming(Protocol):
    """Holds what recovery needs of a client. has_reclaimed: it has sent RECLAIM_COMPLETE."""

    @property
    def owner(self) -> bytes: ...
    @property
    def has_reclaimed(self) -> bool: ...


class Recovery:
    """Recovers one server instance, which `persist` counts. `clock` gives monotonic seconds."""

    def __init__(self, persist: Persist, clock: Callable[[], float], grace_s: float) -> None:
        self._persist = persist
        self.boot = persist.next_boot()
        self._ends = clock() + grace_s
        # Guards what follows. It is never held while the disk is written; `_writing` is.
        self._mutex = threading.Lock()
        self._writing = threading.Lock()
        self._reclaimers = set(persist.clients())
        self._had_reclaimers = bool(self._reclaimers)
        self._remembered: set[bytes] = set()  # by this instance
        self._is_over = False
        self._is_purge_due = False
        self._due: list[tuple[bytes, bool]] = []
        if self._reclaimers:
            _log.info(
                "grace period until %s: %s may reclaim, and nothing new is granted before",
                time.strftime("%H:%M:%S", time.localtime(time.time() + grace_s)),
                _clients(len(self._reclaimers)),
            )

    def in_grace(self, now: float) -> bool:
        """Returns whether only reclaims are served: until all have reclaimed, or time is up."""
        with self._mutex:
            if self._is_over:
                return False
            missing = len(self._reclaimers)
            if missing and now < self._ends:
                return True
            self._is_over = True
            self._is_purge_due = True
            self._reclaimers.clear()
        if missing:
            _log.info("the grace period is over: %s did not come back", _clients(missing))
        elif self._had_reclaimers:
            _log.info("the grace period is over: no client has anything left to reclaim")
        return False

    def admit(self, client: Reclaiming, *, is_reclaim: bool, now: float) -> None:
        """Admits a client that wants state, new or old; what that rests on is then on the disk.

        A client that has not said that it has nothing to reclaim gets no new state (18.51.3).
        """
        in_grace = self.in_grace(now)
        if not is_reclaim:
            if in_grace or not client.has_reclaimed:
                raise NfsError(Status.GRACE)
            self.settle()
            return
        if not in_grace or client.has_reclaimed:
            raise NfsError(Status.NO_GRACE)
        if not self.may_reclaim(client.owner):
            raise NfsError(Status.RECLAIM_BAD)
        self.remember(client.owner)

    def may_reclaim(self, owner: bytes) -> bool:
        """Returns whether the client had state when the server went down, and has not said that it
        is done."""
        with self._mutex:
            return owner in self._reclaimers

    def remember(self, owner: bytes) -> None:
        """Lets the client reclaim after the next restart. It is on the disk when this returns."""
        change = (owner, True)
        with self._mutex:
            if owner in self._remembered:
                return
            self._due.append(change)
        try:
            self.settle()
        except NfsError:
            # Only this client would rely on it: other clients need not wait for it.
            with self._writing, self._mutex:
                if change in self._due:
                    self._due.remove(change)
            raise

    def forget(self, owner: bytes) -> None:
        """Keeps a client that is gone from reclaiming, now or later. On the disk after `settle`."""
        with self._mutex:
            self._reclaimers.discard(owner)
            self._remembered.discard(owner)
            self._due.append((owner, False))

    def complete(self, owner: bytes) -> None:
        """Notes that the client has reclaimed what it wanted (RECLAIM_COMPLETE)."""
        self.remember(owner)
        with self._mutex:
            self._reclaimers.discard(owner)

    def settle(self) -> None:
        """Writes what is due to the disk. DELAY if it cannot now: then nothing may be granted."""
        with self._mutex:
            if not self._due and not self._is_purge_due:
                return
        # What is being written stays due until it is on the disk, so the check above waits for it.
        with self._writing:
            with self._mutex:
                due, purge = list(self._due), self._is_purge_due
            if not due and not purge:
                return
            try:
                self._persist.change_clients(self.boot, due, purge=purge)
            except PersistError:
                raise NfsError(Status.DELAY) from None
            with self._mutex:
                del self._due[: len(due)]
                self._is_purge_due = False
                latest = dict(due)
                self._remembered |= {owner for owner, is_kept in latest.items() if is_kept}
                self._remembered -= {owner for owner, is_kept in self._due if not is_kept}


def _clients(count: int) -> str:
    return "1 client" if count == 1 else f"{count} clients"
