# SPDX-License-Identifier: BSD-2-Clause
"""Plans are data: policies return them, and the controller carries them out on a live server."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol

from livedma.control.diagnose.forecast import Forecast
from livedma.control.diagnose.limits import Diagnosis
from livedma.monitor.snapshot import Connection, Snapshot

__all__ = [
    "Action",
    "Cut",
    "Demand",
    "Extend",
    "Migrate",
    "NoRoom",
    "Plan",
    "Policy",
    "RefuseSessions",
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
    """Asks the connection's client to open another connection for its new sessions. The sessions
    that it has stay.
    """

    connection: int


@dataclass(frozen=True, slots=True)
class Migrate:
    """Moves all sessions to a connection with `bytes` of memory mapped. The client is asked to open
    it; one that cannot be asked has its connection cut, and comes back to it by itself.
    """

    connection: int
    bytes: int
    credits: int


@dataclass(frozen=True, slots=True)
class RefuseSessions:
    """Refuses new sessions by NFS4ERR_NOSPC from now on, or admits them again: those that a client
    makes on this connection, or all (None). The one says nothing about the other.
    """

    is_refused: bool
    connection: int | None = None


@dataclass(frozen=True, slots=True)
class Cut:
    """Ends the connection; its sessions may go on by another one."""

    connection: int


Action = Extend | Shrink | SetCredits | SetSlots | Spread | Migrate | RefuseSessions | Cut


@dataclass(frozen=True, slots=True)
class Plan:
    """Holds actions in the order in which they are carried out. `reason` is one line for people,
    without the policy's name.
    """

    actions: tuple[Action, ...]
    reason: str


@dataclass(frozen=True, slots=True)
class NoRoom:
    """Says that a connection needs memory that it cannot have. `is_of_host`: the host has none
    left, so that other connections could not have it, either; otherwise its own window is full."""

    reason: str
    is_of_host: bool = False


@dataclass(frozen=True, slots=True)
class Room:
    """Says what a plan may use. `budget_bytes` is what is left of the budget; None: there is no
    bound. `first_bytes` is what a further connection begins with. `pause_s` is how long the last
    client that could not be asked was away when its connection was cut; None: there was none.
    """

    budget_bytes: int | None
    first_bytes: int = 0
    pause_s: float | None = None

    @property
    def is_used_up(self) -> bool:
        """Returns whether the host has no memory for a further connection."""
        return self.budget_bytes is not None and self.budget_bytes < max(self.first_bytes, 1)


@dataclass(frozen=True, slots=True)
class Demand:
    """Holds the most that a connection has needed in a period, and the credits that it had at
    first.
    """

    buffers: int
    calls: int
    first_credits: int


class Policy(Protocol):
    """Makes a plan from a diagnosis, and what to give back from what was needed. Its methods are
    pure.

    With `may_refuse`, new sessions are refused while existing ones cannot get the memory that they
    need: those of a connection whose window is full, and all of them once the host has none left.
    """

    @property
    def name(self) -> str: ...

    @property
    def may_refuse(self) -> bool: ...

    def plan(self, diagnosis: Diagnosis, snapshot: Snapshot, room: Room) -> Plan | NoRoom | None:
        """Plans for a degraded connection. None: the policy would do nothing."""

    def ahead(self, forecast: Forecast, snapshot: Snapshot, room: Room) -> Plan | NoRoom | None:
        """Plans for a connection whose buffers will run out soon. None: the policy waits until they
        have. What is done ahead may prove wrong, so it has to be something that can be undone.
        """

    def relax(self, connection: Connection, demand: Demand) -> Plan | None:
        """Plans what a connection that is not degraded can give back. None: nothing."""
