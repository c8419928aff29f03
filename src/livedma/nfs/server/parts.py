"""A server's parts, and what they share."""

from __future__ import annotations

import contextlib
import hashlib
import logging
import threading
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

from livedma.nfs.callbacks import Callbacks
from livedma.nfs.clients import Client, Clients
from livedma.nfs.config import Config
from livedma.nfs.delegations import Delegations
from livedma.nfs.locks import Locks
from livedma.nfs.numbers import NfsError
from livedma.nfs.opens import Opens
from livedma.nfs.recovery import Recovery
from livedma.nfs.sessions import Session, Sessions

if TYPE_CHECKING:
    from livedma.nfs.grants import Accelerating
    from livedma.nfs.persist import Persist
    from livedma.nfs.store import Store

__all__ = ["Server"]

_log = logging.getLogger(__name__)

TICK_S = 1.0
ACCELERATED_OPERATIONS = 4  # of the longest COMPOUND that is served without Python


class Server:
    """What serves an export. `lock` guards all state in memory; who holds it never waits for files.

    clock: monotonic seconds. accelerator: who serves some requests without Python, or None; it has
    the store's change attributes and write verifier.
    """

    def __init__(
        self,
        store: Store,
        persist: Persist,
        config: Config | None = None,
        *,
        clock: Callable[[], float] = time.monotonic,
        accelerator: Accelerating | None = None,
    ) -> None:
        self.config = Config() if config is None else config
        self.store = store
        self.clock = clock
        self.accelerator = accelerator
        self.lock = threading.RLock()
        self.recovery = Recovery(persist, clock, self.config.grace_s)
        self.clients = Clients(self.config, self.recovery.boot, clock, self.lock)
        self.callbacks = Callbacks(clock, self.lock)
        self.callbacks.on_path.append(lambda session: self.flags_changed(session.client))
        self.sessions = Sessions(self.config, self.clients, self.callbacks, self.lock)
        if accelerator is not None:
            self.sessions.on_made.append(self._accelerate)
            self.sessions.on_gone.append(self._slow_down)
        self.clients.on_gone.append(self._forget)
        self.opens = Opens(self)
        self.locks = Locks(self)
        self.delegations = Delegations(self)
        self.clients.has_state = self._has_state
        # The same in every instance of this server, and in no other (2.10.4).
        self.owner = hashlib.sha256(persist.secret("server owner")).hexdigest()[:32].encode()
        self._is_stopping = threading.Event()
        self._ticker: threading.Thread | None = None

    def change(self, config: Config) -> None:
        """Other rules for calls, and other limits for sessions, that come from now on. What is
        about leases, delegations and writing at all has to be as it was: clients rely on it.
        """
        self.config = self.sessions.config = config
        self.store.obey(config)

    def _has_state(self, client: Client) -> bool:
        return self.opens.held_by(client) + self.delegations.held_by(client) > 0

    def flags(self, session: Session) -> int:
        """SEQ4_STATUS_*: what a client has to be told by the results of SEQUENCE."""
        if not self.config.delegations:
            return 0
        with self.lock:
            return self.delegations.flags(session.client) | self.callbacks.flags(session)

    def flags_changed(self, client: Client) -> None:
        """Flags are told by Python: the accelerator knows of none. Under the lock."""
        for session in client.sessions.values():
            self._slow_down(session)
            self._accelerate(session)

    def _accelerate(self, session: Session) -> None:
        # Sessions that are made for fewer operations are told so by Python.
        if (
            self.accelerator is not None
            and session.fore.operations >= ACCELERATED_OPERATIONS
            and not self.flags(session)
        ):
            self.accelerator.sessions.add(session.slots)

    def _slow_down(self, session: Session) -> None:
        if self.accelerator is not None:
            self.accelerator.sessions.remove(session.slots)

    def _forget(self, client: Client) -> None:
        self.recovery.forget(client.owner)

    def tick(self) -> None:
        """What time alone brings about: leases and grace end, and patience with who is asked."""
        self.clients.tick()
        if self.config.delegations:
            self.callbacks.tick(self.sessions.all())
            self.delegations.tick()
        self.recovery.in_grace(self.clock())
        with contextlib.suppress(NfsError):  # The disk may be full now; the next one tries again.
            self.recovery.settle()

    def start(self) -> None:
        """Has `tick` called from now on."""
        self._ticker = threading.Thread(target=self._run, name="nfs-ticker", daemon=True)
        self._ticker.start()

    def stop(self) -> None:
        """Ends that, and closes all files. Nothing is forgotten that clients may reclaim."""
        self._is_stopping.set()
        if self._ticker is not None:
            self._ticker.join()
        self.delegations.end()
        self.opens.end()

    def _run(self) -> None:
        while not self._is_stopping.wait(TICK_S):
            try:
                self.tick()
            except Exception:  # Leases have to end next time, too.
                _log.exception("a tick failed")
