# SPDX-License-Identifier: BSD-2-Clause
"""Runs a controller on a live server: `with controlled(service, Options()) as it: it.start()`"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Literal

from livedma.control.act.ahead import AHEAD_S
from livedma.control.act.budget import HostBudget
from livedma.control.act.by_hand import ByHand
from livedma.control.act.controller import Controller
from livedma.control.act.hands import ServiceHands
from livedma.control.diagnose.diagnosis import Diagnostician
from livedma.control.diagnose.limits import Objectives
from livedma.control.events import Events
from livedma.control.methods import Methods
from livedma.control.observe.inside import InsideSource
from livedma.control.observe.observer import Observer
from livedma.control.policy.policies import DEFAULT, by_name
from livedma.control.show.feed import Feed
from livedma.control.show.layout import windows
from livedma.monitor.monitor import Monitor
from livedma.nfs.server.service import NfsService
from livedma.rdma.interface import interface_of

__all__ = ["Controlled", "Options", "controlled"]


@dataclass(frozen=True, slots=True)
class Options:
    """Says how a server is controlled. `budget_bytes` bounds the DMA memory of all connections;
    None: only the system does. `ahead_s` is how long before buffers run out a forecast is acted on;
    0: never. `monitor` "auto" watches the wire by BPF where that is allowed. With
    `history`, the last minutes are kept even while there is no view, for views that open later.
    """

    policy: str = DEFAULT
    dry_run: bool = False
    budget_bytes: int | None = None
    objectives: Objectives = field(default_factory=Objectives)
    monitor: Literal["auto", "server"] = "auto"
    history: bool = False
    ahead_s: float = AHEAD_S


@dataclass(frozen=True, slots=True)
class Controlled:
    """Holds a controller, with what shows it to people and what they steer it by."""

    service: NfsService
    controller: Controller
    feed: Feed
    by_hand: ByHand
    observer: Observer
    budget: HostBudget

    def start(self) -> None:
        self.controller.start()

    def change(self, options: Options, before: Options) -> None:
        """Applies `options` while it runs, in place of `before`. `monitor` and `history` stay."""
        if options.objectives != before.objectives:
            self.controller.diagnose_by(lambda: Diagnostician(options.objectives))
        self.budget.limit_bytes = self.observer.budget_bytes = options.budget_bytes
        self.controller.is_dry = options.dry_run
        self.controller.ahead_s = options.ahead_s
        if options.policy != before.policy:  # else a policy that was set by hand stays
            self.controller.policy = by_name(options.policy)


@contextmanager
def controlled(service: NfsService, options: Options) -> Iterator[Controlled]:
    """Answers on the service's control socket. Watches and steers the service once `start` is
    called.
    """
    events = Events()
    budget = HostBudget(service, options.budget_bytes)
    observer = Observer(
        InsideSource(service),
        partial(_watch, service) if options.monitor == "auto" and service.rdma else None,
        events,
        budget_bytes=options.budget_bytes,
    )
    hands = ServiceHands(service, budget, events)
    controller = Controller(
        observer,
        lambda: Diagnostician(options.objectives),
        hands,
        by_name(options.policy),
        room=lambda: replace(budget.room(), pause_s=hands.pause_s),
        events=events,
        dry_run=options.dry_run,
        ahead_s=options.ahead_s,
    )
    feed = Feed(
        lambda: InsideSource(service).snapshot,
        lambda: windows(service),
        controller,
        server=str(service.directory),
        started_s=service.started_s,
        always=options.history,
    )
    by_hand = ByHand(controller)
    if service.control is not None:
        service.control.add(Methods(controller, feed, by_hand).methods())
    try:
        with budget, controller, feed:
            yield Controlled(service, controller, feed, by_hand, observer, budget)
    finally:
        hands.close()
        observer.close()


def _watch(service: NfsService) -> Monitor:
    """Attaches the monitor to the interfaces that have the server's addresses."""
    interfaces = {interface_of(rdma.device.address).name for rdma in service.rdma}
    ports = sorted({rdma.port for rdma in service.rdma})
    # The server itself knows which connections were made before.
    return Monitor(sorted(interfaces), ports, learns=False)
