# SPDX-License-Identifier: BSD-2-Clause
"""Holds a server's parts, and what they share."""

from __future__ import annotations

import contextlib
import hashlib
import logging
import re
import threading
import time
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING

from livedma.nfs.numbers import NfsError
from livedma.nfs.server.config import Config
from livedma.nfs.server.state.callbacks import Callbacks
from livedma.nfs.server.state.clients import Client, Clients
from livedma.nfs.server.state.delegations import Delegations
from livedma.nfs.server.state.locks import Locks
from livedma.nfs.server.state.opens import Opens
from livedma.nfs.server.state.recovery import Recovery
from livedma.nfs.server.state.sessions import Session, Sessions
from livedma.rpc.connection_log import ConnectionLog

if TYPE_CHECKING:
    from livedma.nfs.server.persist import Persist
    from livedma.nfs.server.state.grants import Accelerating
    from livedma.nfs.server.store import Store

__all__ = ["Server"]

_log = logging.getLogger(__name__)

TICK_S = 1.0
_OWNER_SHOWN = 64  # bytes of what a client calls itself
_CAME_MOST = 1000  # clients that the log of one tick may name
ACCELERATED_OPERATIONS = 4  # of the longest COMPOUND that is served without Python


class Server:
    """Serves an export. `lock` guards all state in memory; its holder never waits for files.

    clock: monotonic seconds. accelerator: serves some requests without Python, or None; it has the
    store's change attributes and write verifier.
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
        self.clients.may_reclaim = self.sessions.may_reclaim = self.recovery.may_reclaim
        self._log = ConnectionLog()
        self._came: deque[tuple[int, str, str]] = deque(maxlen=_CAME_MOST)
        self.sessions.on_made.append(self._note)
        self.sessions.on_made.append(_tell_made)
        self.sessions.on_gone.append(_tell_gone)
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
        """Sets other rules for calls and other limits for sessions. Leases, delegations and whether
        clients may write have to stay as they were: clients rely on them.
        """
        self.config = self.sessions.config = config
        self.store.obey(config)

    def _has_state(self, client: Client) -> bool:
        return self.opens.held_by(client) + self.delegations.held_by(client) > 0

    def flags(self, session: Session) -> int:
        """Returns SEQ4_STATUS_*: what the results of SEQUENCE have to tell a client."""
        if not self.config.delegations:
            return 0
        with self.lock:
            return self.delegations.flags(session.client) | self.callbacks.flags(session)

    def flags_changed(self, client: Client) -> None:
        """Lets the accelerator serve the client's sessions only while they have no flags.

        It knows of none; Python tells them. The caller holds the lock.
        """
        for session in client.sessions.values():
            self._slow_down(session)
            self._accelerate(session)

    def _accelerate(self, session: Session) -> None:
        # A session that was made for fewer operations needs Python, which enforces that limit.
        if (
            self.accelerator is not None
            and session.fore.operations >= ACCELERATED_OPERATIONS
            and not self.flags(session)
        ):
            self.accelerator.sessions.add(session.slots)

    def _slow_down(self, session: Session) -> None:
        if self.accelerator is not None:
            self.accelerator.sessions.remove(session.slots)

    def _note(self, session: Session) -> None:
        """Has the name of a client logged with the connection of its first session. The next tick
        logs it: a caller that holds the lock does not wait for the log.
        """
        client = session.client
        if len(client.sessions) != 1:
            return
        for connection in session.connections.values():
            if client.logged_at != connection.number:
                client.logged_at = connection.number
                self._came.append((connection.number, connection.peer, _name(client)))

    def _forget(self, client: Client) -> None:
        self.recovery.forget(client.owner)

    def tick(self) -> None:
        """Ends what time alone ends: leases, grace, and the wait for clients that were asked."""
        while self._came:
            self._log.client(*self._came.popleft())
        self._log.tick()
        self.clients.tick()
        if self.config.delegations:
            self.callbacks.tick(self.sessions.all())
            self.delegations.tick()
        self.recovery.in_grace(self.clock())
        with contextlib.suppress(NfsError):  # The disk may be full now; the next tick tries again.
            self.recovery.settle()

    def start(self) -> None:
        """Starts the thread that calls `tick`."""
        self._ticker = threading.Thread(target=self._run, name="nfs-ticker", daemon=True)
        self._ticker.start()

    def stop(self) -> None:
        """Stops it and closes all files. Clients that are there may reclaim; those that are gone
        are not waited for by the next server.
        """
        self._is_stopping.set()
        if self._ticker is not None:
            self._ticker.join()
        self.delegations.end()
        self.opens.end()
        with contextlib.suppress(NfsError):  # The disk may be full; the next server waits, then.
            self.recovery.settle()

    def _run(self) -> None:
        while not self._is_stopping.wait(TICK_S):
            try:
                self.tick()
            except Exception:  # The next tick has to end leases, too.
                _log.exception("a tick failed")


def _name(client: Client) -> str:
    """Returns what a client calls itself, as far as it is readable: it may have any bytes."""
    found = re.match(rb"[ -~]*", client.owner[:_OWNER_SHOWN])
    return "" if found is None else found[0].decode().strip()


def _tell_made(session: Session) -> None:
    _log.debug(
        "session %s made by connection %s: %d slots, client %d (%s)",
        session.id.hex(),
        " ".join(map(str, session.connections)),
        session.slots.size,
        session.client.number,
        _name(session.client),
    )


def _tell_gone(session: Session) -> None:
    _log.debug("session %s of client %d gone", session.id.hex(), session.client.number)
