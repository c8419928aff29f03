# SPDX-License-Identifier: BSD-2-Clause
"""The policy `migrate` asks a client to open a connection with more memory and move to it."""

from __future__ import annotations

from livedma.control.diagnose.forecast import Forecast
from livedma.control.diagnose.limits import Diagnosis
from livedma.control.policy.plan import Demand, Migrate, NoRoom, Plan, Room
from livedma.control.policy.remedies import remedy
from livedma.control.policy.sizing import bytes_per_credit, credits_for, relaxed, useful_buffers
from livedma.control.words import size
from livedma.monitor.snapshot import Connection, Inside, Snapshot

__all__ = ["MigratePolicy"]

_TIMES = 4  # what is mapped now; moving is expensive, so one move should last


class MigratePolicy:
    name = "migrate"
    may_refuse = True

    def plan(self, diagnosis: Diagnosis, snapshot: Snapshot, room: Room) -> Plan | NoRoom | None:
        return remedy(diagnosis, snapshot, room, _more_memory)

    def ahead(self, forecast: Forecast, snapshot: Snapshot, room: Room) -> Plan | NoRoom | None:
        return None  # a move pauses sessions and cannot be undone

    def relax(self, connection: Connection, demand: Demand) -> Plan | None:
        return relaxed(connection, demand)


def _more_memory(connection: Connection, inside: Inside, _: Snapshot, room: Room) -> Plan | NoRoom:
    """Plans a move. Both connections exist for a while, so the new one has to fit beside the old
    one.
    """
    each = inside.buffer_bytes + bytes_per_credit(inside)
    wanted = _TIMES * inside.mapped_bytes
    useful = useful_buffers(connection, inside)
    if useful is not None:
        wanted = max(min(wanted, useful * each), inside.mapped_bytes + inside.first_bytes)
    if room.budget_bytes is not None:
        wanted = min(wanted, room.budget_bytes)
    if wanted <= inside.mapped_bytes:
        return NoRoom(
            f"a larger connection takes more than {size(inside.mapped_bytes)}, and "
            f"{size(max(wanted, 0))} are left of this host's DMA memory",
            is_of_host=True,
        )
    granted = credits_for(wanted // each, connection, inside)
    reason = f"move to a connection with {size(wanted)}, credits {inside.credits} -> {granted}"
    return Plan((Migrate(connection.number, wanted, granted),), reason)
