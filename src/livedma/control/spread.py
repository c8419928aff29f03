"""Asks a connection's client to open another one, for its new sessions; those that it has stay."""

from __future__ import annotations

from livedma.control.extend import plan_credits, plan_slots
from livedma.control.limits import Diagnosis, Limit
from livedma.control.plan import Demand, NoRoom, Plan, Room, Spread
from livedma.control.words import size
from livedma.monitor.snapshot import Connection, Snapshot

__all__ = ["SpreadPolicy"]


class SpreadPolicy:
    name = "spread"
    may_refuse = True

    def plan(self, diagnosis: Diagnosis, snapshot: Snapshot, room: Room) -> Plan | NoRoom | None:
        connection = snapshot.connection(diagnosis.connection)
        if connection is None or connection.inside is None:
            return None
        inside = connection.inside
        match diagnosis.limit:
            case Limit.MEMORY:
                if room.budget_bytes is not None and room.budget_bytes < inside.first_bytes:
                    left = size(max(room.budget_bytes, 0))
                    return NoRoom(
                        f"another connection takes {size(inside.first_bytes)}, and {left} are left "
                        "of this host's DMA memory"
                    )
                reason = f"another connection with {size(inside.first_bytes)} for new sessions"
                return Plan((Spread(connection.number),), reason)
            case Limit.CREDITS:
                return plan_credits(connection, inside, room)
            case Limit.SLOTS:
                return plan_slots(snapshot, connection.number)
        return None

    def relax(self, connection: Connection, demand: Demand) -> Plan | None:
        return None  # a connection goes with its sessions
