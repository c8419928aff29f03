"""After a restart: the time of grace, in which clients reclaim what they had (RFC 8881, 8.4.2).

Who may reclaim is on the disk, since a server that forgot would have to let everybody, or nobody.
Two rules keep it truthful. A client is remembered before it gets its first state. And before
anybody gets what a client had before, that client is forgotten: because it is gone (`forget`), or
because it did not come back in time (the end of grace). `forget` may be called under the
server's lock, so it only notes; `settle` writes, and who is about to grant something calls
it before.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Protocol

from livedma.nfs.numbers import NfsError, Status
from livedma.nfs.persist import Persist, PersistError

__all__ = ["Reclaiming", "Recovery"]


class Reclaiming(Protocol):
    """What matters of a client here. has_reclaimed: it has sent RECLAIM_COMPLETE."""

    @property
    def owner(self) -> bytes: ...
    @property
    def has_reclaimed(self) -> bool: ...


class Recovery:
    """Of one instance of the server, which `persist` counts. `clock` gives monotonic seconds."""

    def __init__(self, persist: Persist, clock: Callable[[], float], grace_s: float) -> None:
        self._persist = persist
        self.boot = persist.next_boot()
        self._ends = clock() + grace_s
        # Guards what follows, and is never held while the disk is written: _writing is.
        self._mutex = threading.Lock()
        self._writing = threading.Lock()
        self._reclaimers = set(persist.clients())
        self._remembered: set[bytes] = set()  # by this instance
        self._is_over = False
        self._is_purge_due = False
        self._due: list[tuple[bytes, bool]] = []

    def in_grace(self, now: float) -> bool:
        """Reclaims alone are served; ends once all those who may reclaim are done, or by time."""
        with self._mutex:
            if not self._is_over and (not self._reclaimers or now >= self._ends):
                self._is_over = True
                self._is_purge_due = True
                self._reclaimers.clear()
            return not self._is_over

    def admit(self, client: Reclaiming, *, is_reclaim: bool, now: float) -> None:
        """Whether a client may get state now, new or old; on the disk is then what that rests on.

        Whoever has not said that it has nothing to reclaim gets nothing new (18.51.3).
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
        """It had state when the server went down, and has not said that it is done."""
        with self._mutex:
            return owner in self._reclaimers

    def remember(self, owner: bytes) -> None:
        """The client may reclaim after the next restart. On the disk when this returns."""
        change = (owner, True)
        with self._mutex:
            if owner in self._remembered:
                return
            self._due.append(change)
        try:
            self.settle()
        except NfsError:
            # Others need not wait for what only this client would rely on.
            with self._writing, self._mutex:
                if change in self._due:
                    self._due.remove(change)
            raise

    def forget(self, owner: bytes) -> None:
        """The client is gone: it may not reclaim, now or later. On the disk after `settle`."""
        with self._mutex:
            self._reclaimers.discard(owner)
            self._remembered.discard(owner)
            self._due.append((owner, False))

    def complete(self, owner: bytes) -> None:
        """The client has reclaimed what it wanted (RECLAIM_COMPLETE), and is remembered."""
        self.remember(owner)
        with self._mutex:
            self._reclaimers.discard(owner)

    def settle(self) -> None:
        """Puts on the disk what is due. DELAY if that is not possible now: grant nothing then."""
        with self._mutex:
            if not self._due and not self._is_purge_due:
                return
        # What is being written stays due until it is there: nobody passes by above meanwhile.
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
