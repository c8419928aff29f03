"""A controller on a live server: `with controlled(service, Options()): ...`"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from livedma.control import budget
from livedma.control.controller import Controller
from livedma.control.diagnosis import Diagnostician
from livedma.control.events import Events
from livedma.control.hands import ServiceHands
from livedma.control.inside import InsideSource
from livedma.control.limits import Objectives
from livedma.control.methods import Methods
from livedma.control.observer import Observer
from livedma.control.policies import DEFAULT, by_name
from livedma.nfs.service import NfsService

__all__ = ["Options", "controlled"]


@dataclass(frozen=True, slots=True)
class Options:
    """budget_bytes: DMA memory of all connections; None: what the system allows."""

    policy: str = DEFAULT
    dry_run: bool = False
    budget_bytes: int | None = None
    objectives: Objectives = field(default_factory=Objectives)


@contextmanager
def controlled(service: NfsService, options: Options) -> Iterator[Controller]:
    """Watches and steers it, and answers on its control socket."""
    events = Events()
    observer = Observer(InsideSource(service), None, events, budget_bytes=options.budget_bytes)
    controller = Controller(
        observer,
        lambda: Diagnostician(options.objectives),
        ServiceHands(service),
        by_name(options.policy),
        room=budget.room,
        events=events,
        dry_run=options.dry_run,
    )
    if service.control is not None:
        service.control.add(Methods(controller).methods())
    try:
        with budget.limited(options.budget_bytes), controller:
            controller.start()
            yield controller
    finally:
        observer.close()
