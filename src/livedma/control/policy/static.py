"""Does nothing: what others are measured against."""

from __future__ import annotations

from livedma.control.limits import Diagnosis
from livedma.control.plan import Demand, NoRoom, Plan, Room
from livedma.monitor.snapshot import Connection, Snapshot

__all__ = ["StaticPolicy"]


class StaticPolicy:
    """A connection keeps what it began with, and nobody is refused."""

    name = "static"
    may_refuse = False

    def plan(self, diagnosis: Diagnosis, snapshot: Snapshot, room: Room) -> Plan | NoRoom | None:
        return None

    def relax(self, connection: Connection, demand: Demand) -> Plan | None:
        return None
