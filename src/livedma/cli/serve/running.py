# SPDX-License-Identifier: BSD-2-Clause
"""Runs a server as a command, from its start to its end."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from livedma.cli import logs
from livedma.cli.serve import metrics, web
from livedma.cli.serve.building import service_options, steering
from livedma.cli.serve.notify import Notifier
from livedma.cli.serve.places import make_control_directory
from livedma.cli.serve.reload import Reloader
from livedma.cli.serve.signals import Signals
from livedma.control.running import controlled
from livedma.errors import LivedmaError
from livedma.nfs.server.service import NfsService, ServiceOptions
from livedma.nfs.server.state.held import allow_all_descriptors

if TYPE_CHECKING:
    from livedma.cli.serve.settings import Settings

__all__ = ["Running", "serve"]

_log = logging.getLogger(__name__)

_END_S = 10.0  # for calls under way to end, and for peers to be told


def serve(settings: Settings) -> int:
    """Serves until a signal ends it. Returns the exit status."""
    args = settings.values
    allow_all_descriptors()
    wanted, steered = service_options(args), steering(args)
    assert wanted.control is not None
    if args.control is None:
        make_control_directory()
    logs.start(args.log_level, args.log_format)
    notifier = Notifier()
    hangup = Signals(hangup="end" if args.config is None else "reload", last=_remove(wanted))
    with (
        hangup as signals,
        web.listening(args) as socket,
        NfsService(args.directory, wanted) as service,
    ):
        _announce(service)
        with (
            controlled(service, steered) as running,
            metrics.rendering(args, service, running) as render,
            web.page(args, socket, running, wanted.control, logs.say, render),
        ):
            server = Running(service, Reloader(settings, service, running), notifier)
            logs.say(f"  control socket {wanted.control}")
            running.start()
            _say_what_is_missing(service)
            server.until_ended(signals)
            notifier.stopping()
            signals.end_within(_END_S)
    return 0


class Running:
    """Runs a server between its start and its end."""

    def __init__(self, service: NfsService, reloader: Reloader, notifier: Notifier) -> None:
        self._service, self._reloader, self._notifier = service, reloader, notifier
        if service.control is not None:
            service.control.add({"reload": self.reload})

    def reload(self) -> dict[str, Any]:
        """Reads the configuration again, and changes what can change; says what cannot."""
        self._notifier.reloading()
        try:
            return self._reloader.reload()
        finally:
            self._notifier.ready(self._status)

    def until_ended(self, signals: Signals) -> None:
        self._notifier.ready(self._status)
        while (meaning := signals.next(self._notifier.watchdog_s)) != "end":
            if meaning == "reload":
                with contextlib.suppress(LivedmaError):  # it was told as an event
                    self.reload()
            if self._notifier.watchdog_s is not None and self._is_alive(self._notifier.watchdog_s):
                self._notifier.alive()

    def _is_alive(self, patience_s: float) -> bool:
        """Tells whether calls can be served: the server's lock, which all need, can be had."""
        lock = self._service.server.lock
        if not lock.acquire(timeout=patience_s):
            return False
        lock.release()
        return True

    @property
    def _status(self) -> str:
        return f"serving {self._service.directory}"


def _remove(wanted: ServiceOptions) -> Callable[[], None]:
    """Returns a function that removes the files which a server that ends at once would leave."""

    def remove() -> None:
        if wanted.control is not None:
            wanted.control.unlink(missing_ok=True)
            web.default_token(wanted.control).unlink(missing_ok=True)

    return remove


def _announce(service: NfsService) -> None:
    where = " ".join(service.options.addresses) or "all addresses"
    logs.say(f"livedma: serving {service.directory}")
    for tcp in service.tcp:
        logs.say(f"  TCP port {tcp.port}, {where}")
    for rdma in service.rdma:
        logs.say(f"  RDMA port {rdma.port}, {rdma.device.address}")


def _say_what_is_missing(service: NfsService) -> None:
    """Logs what the server could do with more capabilities."""
    store = service.server.store
    if not store.actor.is_privileged:
        _log.info("all files are this user's: CAP_SETUID and CAP_SETGID let it act as its clients")
    if not store.is_persistent:
        _log.info(
            "handles do not survive a restart: that takes root, or CAP_DAC_READ_SEARCH and an "
            "export that is mounted by itself"
        )
    if service.rdma and service.pins.why_not:
        _log.info("%s", service.pins.why_not)
    for rdma in service.rdma:
        if rdma.device.port_kind == "udp":
            _log.info("RDMA at %s: %s", rdma.device.address, rdma.device.port_reason)
