# SPDX-License-Identifier: BSD-2-Clause
"""The policy `migrate` asks a client to open a connection with more memory and move to it.

The connection of a client that cannot be asked is extended as long as its window has room. Then it
is cut, if that is worth the pause, and the client comes back to a larger one.
"""

from __future__ import annotations

from dataclasses import replace

from livedma.control.diagnose.forecast import Forecast
from livedma.control.diagnose.limits import Diagnosis
from livedma.control.policy.extend import more_of_window
from livedma.control.policy.plan import Demand, Migrate, NoRoom, Plan, Room
from livedma.control.policy.remedies import remedy
from livedma.control.policy.sizing import (
    bytes_per_credit,
    credits_for,
    relaxed,
    slots_used,
    useful_buffers,
)
from livedma.control.policy.waiting import waiting_share
from livedma.control.words import duration, size
from livedma.monitor.snapshot import Connection, Inside, Snapshot

__all__ = ["MigratePolicy"]

_TIMES = 4  # what is mapped now; moving is expensive, so one move should last
_PAYS_S = 60.0  # calls have to wait, in this time, _WORTH times as long as a pause is
_WORTH = 10
_PAUSE_S = 1.0  # where none was measured so far


class MigratePolicy:
    name = "migrate"
    may_refuse = True

    def plan(self, diagnosis: Diagnosis, snapshot: Snapshot, room: Room) -> Plan | NoRoom | None:
        return remedy(diagnosis, snapshot, room, _more_memory)

    def ahead(self, forecast: Forecast, snapshot: Snapshot, room: Room) -> Plan | NoRoom | None:
        return None  # a move pauses sessions and cannot be undone

    def relax(self, connection: Connection, demand: Demand) -> Plan | None:
        return relaxed(connection, demand)


def _more_memory(
    connection: Connection, inside: Inside, snapshot: Snapshot, room: Room
) -> Plan | NoRoom:
    if inside.follows:
        return _move(connection, inside, room)
    extended = more_of_window(connection, inside, snapshot, room)
    if isinstance(extended, Plan) or extended.is_of_host:
        return extended
    share = waiting_share((connection,), slots_used(snapshot, connection.number))
    pause_s = room.pause_s or _PAUSE_S
    if share * _PAYS_S < _WORTH * pause_s:
        return NoRoom(
            f"{extended.reason}; its client cannot be asked to move, and a pause of "
            f"{duration(pause_s * 1e9)} is too much for {share:.0%} of waiting"
        )
    # Its memory is free before the new connection takes any.
    left_bytes = room.budget_bytes
    freed = None if left_bytes is None else left_bytes + inside.mapped_bytes
    plan = _move(connection, inside, replace(room, budget_bytes=freed))
    if isinstance(plan, Plan):
        pause = f"its client cannot be asked, and is cut off for about {duration(pause_s * 1e9)}"
        plan = replace(plan, reason=f"{plan.reason}; {pause}")
    return plan


def _move(connection: Connection, inside: Inside, room: Room) -> Plan | NoRoom:
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
