"""What can be done to a live server, as data: policies return it, the controller carries it out."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol

from livedma.control.limits import Diagnosis
from livedma.monitor.snapshot import Connection, Snapshot

__all__ = [
    "Action",
    "Demand",
    "Extend",
    "Migrate",
    "NoRoom",
    "Plan",
    "Policy",
    "Room",
    "SetCredits",
    "SetSlots",
    "Shrink",
    "Spread",
]


@dataclass(frozen=True, slots=True)
class Extend:
    """Maps more of a connection's window; credits and slots grow with it, or it would not help."""

    connection: int
    bytes: int
    credits: int
    slots: Mapping[str, int] = field(default_factory=dict)  #: targets by session


@dataclass(frozen=True, slots=True)
class Shrink:
    """Takes memory out of a connection's window as it becomes free; credits follow."""

    connection: int
    bytes: int
    credits: int


@dataclass(frozen=True, slots=True)
class SetCredits:
    connection: int
    credits: int


@dataclass(frozen=True, slots=True)
class SetSlots:
    session: str
    slots: int


@dataclass(frozen=True, slots=True)
class Spread:
    """New sessions of this connection's client go to a new one; those that it has stay."""

    connection: int


@dataclass(frozen=True, slots=True)
class Migrate:
    """The client opens a connection with so much memory mapped and moves all sessions over."""

    connection: int
    bytes: int
    credits: int


Action = Extend | Shrink | SetCredits | SetSlots | Spread | Migrate


@dataclass(frozen=True, slots=True)
class Plan:
    """Actions, in their order. reason: one line for people, without the name of the policy."""

    actions: tuple[Action, ...]
    reason: str


@dataclass(frozen=True, slots=True)
class NoRoom:
    """Memory is what it takes, and there is none left: in the window, or in the budget."""

    reason: str


@dataclass(frozen=True, slots=True)
class Room:
    """What a plan may use. budget_bytes: left of the host's; None: there is no bound."""

    budget_bytes: int | None


@dataclass(frozen=True, slots=True)
class Demand:
    """What a connection needed at most, over a while; and the credits that it had at first."""

    buffers: int
    calls: int
    first_credits: int


class Policy(Protocol):
    """Pure functions: from a diagnosis to a plan, and from what was needed to what is given back.

    may_refuse: new sessions are refused while there is no memory for those that are there.
    """

    @property
    def name(self) -> str: ...

    @property
    def may_refuse(self) -> bool: ...

    def plan(self, diagnosis: Diagnosis, snapshot: Snapshot, room: Room) -> Plan | NoRoom | None:
        """For a connection that is degraded. None: there is nothing that it would do."""

    def relax(self, connection: Connection, demand: Demand) -> Plan | None:
        """For one that is not: what can be taken back. None: nothing."""
