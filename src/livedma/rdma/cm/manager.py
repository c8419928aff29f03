# SPDX-License-Identifier: BSD-2-Clause
"""Manages the connections of a device: it has queue pair 1, the engine, and a thread that serves
both."""

from __future__ import annotations

import atexit
import contextlib
import functools
import logging
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

from livedma.rdma.cm import events
from livedma.rdma.cm.connection import Connection, Listener, SidrRequest, State
from livedma.rdma.cm.engine import Engine
from livedma.rdma.cm.gsi import Gsi
from livedma.rdma.cm.messages import Timing
from livedma.rdma.cm.outbox import Limits
from livedma.rdma.device import Device
from livedma.rdma.queues import QueuePair

# How often the thread checks whether accepted connections got data before the confirmation.
_DATA_SECONDS = 0.05
# The longest sleep: a MAD that could not be sent does not wake the thread, though it set a timer.
_IDLE_SECONDS = 1.0

_log = logging.getLogger(__name__)


class Closed:
    """Tells every handler that the device closes."""


About = Connection | Listener | SidrRequest
Handler = Callable[[events.Event | Closed], None]


class Manager:
    """Manages the connections of one device, from first use until the device closes.

    Any thread that causes an event calls its handler, with the lock held: handlers may use the
    engine, and must not wait.
    """

    def __init__(
        self,
        device: Device,
        *,
        slot: int | None = None,
        timing: Timing | None = None,
        limits: Limits | None = None,
    ) -> None:
        self.device = device
        self._engine = Engine(
            device.address,
            slot=device.slot if slot is None else slot,
            timing=timing,
            limits=limits,
        )
        self._gsi = Gsi(device)
        self._lock = threading.RLock()
        self._handlers: dict[About, Handler] = {}
        self._unconfirmed: dict[Connection, QueuePair] = {}
        self._later: list[tuple[float, Callable[[], None]]] = []
        self._is_dispatching = False
        self.is_closed = False
        device.before_close.append(self.close)
        threading.Thread(target=self._serve, name="livedma-cm", daemon=True).start()

    @contextlib.contextmanager
    def engine(self) -> Iterator[tuple[Engine, float]]:
        """Yields the engine and the time; its messages and events go out when the block ends."""
        with self._lock:
            if self.is_closed:
                raise ValueError("the device is closed")
            try:
                yield self._engine, time.monotonic()
            finally:
                self._flush()

    def listen(self, port: int, space: str, handler: Handler, backlog: int = 128) -> Listener:
        """Passes requests to the port to the handler. Raises PortInUseError."""
        with self.engine() as (engine, now):
            listener = engine.listen(port, space, backlog)
            try:
                self.device.claim_port(port, space)
            except BaseException:
                engine.unlisten(listener, now)
                raise
            self.on_event(listener, handler)
        return listener

    def unlisten(self, listener: Listener) -> None:
        """Ends a listener and rejects the requests that wait. A second call has no effect."""
        if self.is_closed:
            return
        with self.engine() as (engine, now):
            if listener in self._handlers:
                self.device.release_port(listener.port, listener.space)
                engine.unlisten(listener, now)
                self.forget(listener)

    def on_event(self, about: About, handler: Handler) -> None:
        """Sets the handler of a connection's, listener's or SIDR request's events.

        A listener's handler gets the requests. It stays until `forget`, a TimewaitExit or the
        device's closing.
        """
        self._handlers[about] = handler

    def watch(self, connection: Connection, queue_pair: QueuePair) -> None:
        """Lets data on an accepted connection establish it, as the confirmation does."""
        self._unconfirmed[connection] = queue_pair

    def later(self, seconds: float, action: Callable[[], None]) -> None:
        """Calls the action after so many seconds, as a handler is called."""
        self._later.append((time.monotonic() + seconds, action))

    def forget(self, about: About) -> None:
        self._handlers.pop(about, None)

    def close(self) -> None:
        """Ends all connections: it tells the peers, and does not wait for their answers."""
        with self._lock:
            if self.is_closed:
                return
            self.is_closed = True
            now = time.monotonic()
            with contextlib.suppress(ValueError):  # the device is closed already
                for connection in self._engine.connections:
                    self._engine.disconnect(connection, now)
                self._flush()
            for handler in list(self._handlers.values()):
                self._guard(functools.partial(handler, Closed()))
            self._handlers.clear()
        with _managers_lock:
            _managers.pop(self.device, None)

    def _serve(self) -> None:
        try:
            while not self.is_closed:
                self._turn(self._gsi.receive(self._patience()))
        except ValueError:
            if not self.device.closed:
                raise
        finally:
            self.close()

    def _patience(self) -> float:
        with self._lock:
            now = time.monotonic()
            due = [now + (_DATA_SECONDS if self._unconfirmed else _IDLE_SECONDS)]
            due += [at for at, _ in self._later]
            if self._engine.next_timer is not None:
                due.append(self._engine.next_timer)
        return max(min(due) - now, 0)

    def _turn(self, mads: list[tuple[bytes, str]]) -> None:
        with self._lock:
            now = time.monotonic()
            for mad, source in mads:
                self._engine.receive(mad, source, now)
            self._engine.expire(now)
            due = [action for at, action in self._later if at <= now]
            self._later = [(at, action) for at, action in self._later if at > now]
            for action in due:
                self._guard(action)
            for connection, queue_pair in list(self._unconfirmed.items()):
                if connection.state is not State.REP_SENT:
                    del self._unconfirmed[connection]
                elif _has_packets(queue_pair):
                    self._engine.establish(connection)
            self._flush()

    def _flush(self) -> None:
        """Sends messages and reports events until handlers cause no more of them."""
        if self._is_dispatching:
            return
        self._is_dispatching = True
        try:
            while True:
                for mad, destination in self._engine.transmits():
                    self._gsi.send(mad, destination)
                happened = self._engine.events()
                if not happened:
                    return
                for event in happened:
                    self._dispatch(event)
        finally:
            self._is_dispatching = False

    def _dispatch(self, event: events.Event) -> None:
        about: About
        if isinstance(event, events.ConnectRequest | events.SidrRequested):
            about = event.listener
        elif isinstance(event, events.SidrResolved | events.SidrUnreachable):
            about = event.request
        else:
            about = event.connection
        handler = self._handlers.get(about)
        if handler is not None:
            self._guard(lambda: handler(event))
        if isinstance(event, events.TimewaitExit):
            self._handlers.pop(about, None)

    def _guard(self, action: Callable[[], None]) -> None:
        try:
            action()
        except Exception:  # one connection's failure must not stop the others
            _log.exception("connection manager of %s", self.device.address)


def _has_packets(queue_pair: QueuePair) -> bool:
    try:
        return queue_pair.counters["rcvd_pkts"] > 0
    except ValueError:  # closed
        return False


_managers: dict[Device, Manager] = {}
_managers_lock = threading.Lock()


def manager(device: Device, **options: Any) -> Manager:
    """Returns the device's manager. The first call makes it, and may set slot, timing, limits."""
    with _managers_lock:
        found = _managers.get(device)
        if found is None:
            found = _managers[device] = Manager(device, **options)
        elif options:
            raise ValueError(f"the device at {device.address} has its connection manager already")
        return found


@atexit.register
def _close_all() -> None:
    """Ends all connections when the program ends, so that peers are told."""
    for one in list(_managers.values()):
        one.close()
