# SPDX-License-Identifier: BSD-2-Clause
"""The policy `spread` asks a client to open another connection, for its new sessions alone."""

from __future__ import annotations

from livedma.control.diagnose.forecast import Forecast
from livedma.control.diagnose.limits import Diagnosis
from livedma.control.policy.plan import Demand, NoRoom, Plan, Room, Spread
from livedma.control.policy.remedies import remedy
from livedma.control.words import size
from livedma.monitor.snapshot import Connection, Inside, Snapshot

__all__ = ["SpreadPolicy"]


class SpreadPolicy:
    name = "spread"
    may_refuse = True

    def plan(self, diagnosis: Diagnosis, snapshot: Snapshot, room: Room) -> Plan | NoRoom | None:
        return remedy(diagnosis, snapshot, room, _more_memory)

    def ahead(self, forecast: Forecast, snapshot: Snapshot, room: Room) -> Plan | NoRoom | None:
        return None  # another connection cannot be undone

    def relax(self, connection: Connection, demand: Demand) -> Plan | None:
        return None  # a connection ends with its sessions, and its memory with it


def _more_memory(connection: Connection, inside: Inside, _: Snapshot, room: Room) -> Plan | NoRoom:
    each = size(inside.first_bytes)
    if room.budget_bytes is not None and room.budget_bytes < inside.first_bytes:
        return NoRoom(
            f"another connection takes {each}, and {size(max(room.budget_bytes, 0))} are left of "
            "this host's DMA memory",
            is_of_host=True,
        )
    reason = f"another connection with {each} for new sessions"
    return Plan((Spread(connection.number),), reason)
