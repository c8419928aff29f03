"""A controller on a live server: `with controlled(service, Options()) as it: it.start()`"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Literal

from livedma.control.budget import HostBudget
from livedma.control.by_hand import ByHand
from livedma.control.controller import Controller
from livedma.control.diagnosis import Diagnostician
from livedma.control.events import Events
from livedma.control.feed import Feed
from livedma.control.hands import ServiceHands
from livedma.control.inside import InsideSource
from livedma.control.layout import windows
from livedma.control.limits import Objectives
from livedma.control.methods import Methods
from livedma.control.observer import Observer
from livedma.control.policies import DEFAULT, by_name
from livedma.monitor.monitor import Monitor
from livedma.nfs.service import NfsService
from livedma.rdma.interface import interface_of

__all__ = ["Controlled", "Options", "controlled"]


@dataclass(frozen=True, slots=True)
class Options:
    """budget_bytes: DMA memory of all connections; None: what the system allows. monitor: "auto"
    watches the wire by BPF where that is allowed. history: of the last minutes is kept for those
    who look later.
    """

    policy: str = DEFAULT
    dry_run: bool = False
    budget_bytes: int | None = None
    objectives: Objectives = field(default_factory=Objectives)
    monitor: Literal["auto", "server"] = "auto"
    history: bool = False


@dataclass(frozen=True, slots=True)
class Controlled:
    """A controller, what people see of it and what they do by it."""

    service: NfsService
    controller: Controller
    feed: Feed
    by_hand: ByHand
    observer: Observer
    budget: HostBudget

    def start(self) -> None:
        self.controller.start()

    def change(self, options: Options, before: Options) -> None:
        """Other options than `before` while it runs, except for `monitor` and `history`."""
        if options.objectives != before.objectives:
            self.controller.diagnose_by(lambda: Diagnostician(options.objectives))
        self.budget.limit_bytes = self.observer.budget_bytes = options.budget_bytes
        self.controller.is_dry = options.dry_run
        if options.policy != before.policy:  # else what somebody set by hand stays
            self.controller.policy = by_name(options.policy)


@contextmanager
def controlled(service: NfsService, options: Options) -> Iterator[Controlled]:
    """Answers on its control socket; watches and steers it once it is started."""
    events = Events()
    budget = HostBudget(service, options.budget_bytes)
    observer = Observer(
        InsideSource(service),
        partial(_watch, service) if options.monitor == "auto" and service.rdma else None,
        events,
        budget_bytes=options.budget_bytes,
    )
    controller = Controller(
        observer,
        lambda: Diagnostician(options.objectives),
        ServiceHands(service, budget),
        by_name(options.policy),
        room=budget.room,
        events=events,
        dry_run=options.dry_run,
    )
    feed = Feed(
        lambda: InsideSource(service).snapshot,
        lambda: windows(service),
        controller,
        server=str(service.directory),
        started_s=service.started_s,
        always=options.history,
    )
    if service.control is not None:
        service.control.add(Methods(controller, feed).methods())
    try:
        with budget, controller, feed:
            yield Controlled(service, controller, feed, ByHand(controller), observer, budget)
    finally:
        observer.close()


def _watch(service: NfsService) -> Monitor:
    """BPF on the interfaces that have the server's addresses."""
    interfaces = {interface_of(rdma.device.address).name for rdma in service.rdma}
    return Monitor(sorted(interfaces), sorted({rdma.port for rdma in service.rdma}))
