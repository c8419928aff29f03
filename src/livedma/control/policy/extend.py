# SPDX-License-Identifier: BSD-2-Clause
"""The policy `extend` maps the next part of the same window: no new connection, nothing moves.

More memory helps only if more calls may use it, so credits, with their Receives, and slots grow
with it.
"""

from __future__ import annotations

from livedma.control.diagnose.forecast import Forecast
from livedma.control.diagnose.limits import Diagnosis
from livedma.control.policy.plan import Demand, Extend, NoRoom, Plan, Room
from livedma.control.policy.remedies import no_room, remedy
from livedma.control.policy.sizing import (
    credits_for,
    has_all_useful,
    relaxed,
    short_of_slots,
    slots_of,
    step_bytes,
)
from livedma.control.words import size
from livedma.monitor.snapshot import Connection, Inside, Snapshot
from livedma.wire.words import amount

__all__ = ["ExtendPolicy", "more_of_window"]


class ExtendPolicy:
    name = "extend"
    may_refuse = True

    def plan(self, diagnosis: Diagnosis, snapshot: Snapshot, room: Room) -> Plan | NoRoom | None:
        return remedy(diagnosis, snapshot, room, more_of_window)

    def ahead(self, forecast: Forecast, snapshot: Snapshot, room: Room) -> Plan | NoRoom | None:
        connection = snapshot.connection(forecast.connection)
        if connection is None or connection.inside is None:
            return None
        if has_all_useful(connection, connection.inside):
            return None  # the rise ends where the peer's credits do
        return more_of_window(connection, connection.inside, snapshot, room)

    def relax(self, connection: Connection, demand: Demand) -> Plan | None:
        return relaxed(connection, demand)


def more_of_window(
    connection: Connection, inside: Inside, snapshot: Snapshot, room: Room
) -> Plan | NoRoom:
    """Plans to map the next part of the connection's window."""
    number = connection.number
    length = step_bytes(connection, inside, room)
    if not length:
        return no_room(inside, room)
    wanted = credits_for(inside.buffers + length // inside.buffer_bytes, connection, inside)
    slots = short_of_slots(snapshot, number) if slots_of(snapshot, number) < wanted else {}
    reason = f"map {size(length)} more"
    if wanted > inside.credits:
        reason += f", credits {inside.credits} -> {wanted}"
    if slots:
        reason += f", more slots for {amount(len(slots), 'session')}"
    return Plan((Extend(number, length, wanted, slots),), reason)
