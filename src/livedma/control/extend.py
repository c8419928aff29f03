"""Maps the next part of the same window: no new connection, nothing moves.

More memory helps only if calls may come for it, so credits, with their Receives, and slots grow
with it. Where one of those is the limit, it grows alone.
"""

from __future__ import annotations

from livedma.control.limits import Diagnosis, Limit
from livedma.control.plan import (
    Action,
    Demand,
    Extend,
    NoRoom,
    Plan,
    Room,
    SetCredits,
    SetSlots,
)
from livedma.control.sizing import (
    credits_for,
    credits_in,
    relaxed,
    short_of_slots,
    slots_of,
    step_bytes,
)
from livedma.control.words import size
from livedma.monitor.snapshot import Connection, Inside, Snapshot

__all__ = ["ExtendPolicy", "plan_credits", "plan_slots"]


class ExtendPolicy:
    name = "extend"
    may_refuse = True

    def plan(self, diagnosis: Diagnosis, snapshot: Snapshot, room: Room) -> Plan | NoRoom | None:
        connection = snapshot.connection(diagnosis.connection)
        if connection is None or connection.inside is None:
            return None
        match diagnosis.limit:
            case Limit.MEMORY:
                return _plan_memory(connection, connection.inside, snapshot, room)
            case Limit.CREDITS if _are_most_taken(connection.inside):
                return _plan_memory(connection, connection.inside, snapshot, room)
            case Limit.CREDITS:
                return plan_credits(connection, connection.inside, room)
            case Limit.SLOTS:
                return plan_slots(snapshot, connection.number)
        return None

    def relax(self, connection: Connection, demand: Demand) -> Plan | None:
        return relaxed(connection, demand)


def _are_most_taken(inside: Inside) -> bool:
    """Buffers: more credits alone would only let calls wait for those."""
    return 4 * inside.buffers_taken >= 3 * inside.buffers


def _plan_memory(
    connection: Connection, inside: Inside, snapshot: Snapshot, room: Room
) -> Plan | NoRoom:
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
        reason += f", more slots for {len(slots)} sessions"
    return Plan((Extend(number, length, wanted, slots),), reason)


def no_room(inside: Inside, room: Room) -> NoRoom:
    if room.budget_bytes is not None and room.budget_bytes < inside.room_bytes:
        return NoRoom(f"{size(max(room.budget_bytes, 0))} are left of this host's DMA memory")
    return NoRoom(
        f"{size(inside.room_bytes)} are left of its window of {size(inside.window_bytes)}"
    )


def plan_credits(connection: Connection, inside: Inside, room: Room) -> Plan | NoRoom | None:
    """Twice as many, as far as the peer has asked for them and their Receives have room."""
    wanted = min(2 * inside.credits, inside.credits_max)
    if connection.credits_asked:
        wanted = min(wanted, connection.credits_asked)
    if wanted <= inside.credits:
        return None
    wanted = min(wanted, inside.credits + credits_in(inside, room))
    if wanted <= inside.credits:
        return no_room(inside, room)
    reason = f"credits {inside.credits} -> {wanted}"
    return Plan((SetCredits(connection.number, wanted),), reason)


def plan_slots(snapshot: Snapshot, connection: int) -> Plan | None:
    short = short_of_slots(snapshot, connection)
    actions: tuple[Action, ...] = tuple(SetSlots(one, slots) for one, slots in short.items())
    return Plan(actions, f"twice the slots for {len(short)} sessions") if short else None
