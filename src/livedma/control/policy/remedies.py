# SPDX-License-Identifier: BSD-2-Clause
"""Plans what helps against each limit. All policies share it, except their ways to more memory."""

from __future__ import annotations

from collections.abc import Callable

from livedma.control.diagnose.limits import Diagnosis, Limit
from livedma.control.policy.plan import Action, NoRoom, Plan, Room, SetCredits, SetSlots
from livedma.control.policy.sizing import credits_in, short_of_slots
from livedma.control.words import size
from livedma.monitor.snapshot import Connection, Inside, Snapshot
from livedma.wire.words import amount

__all__ = ["MoreMemory", "no_room", "remedy"]

MoreMemory = Callable[[Connection, Inside, Snapshot, Room], Plan | NoRoom]


def remedy(
    diagnosis: Diagnosis, snapshot: Snapshot, room: Room, more_memory: MoreMemory
) -> Plan | NoRoom | None:
    """Plans against the limit of a diagnosis. None: nothing that a server can give would help, or
    the snapshot comes from the wire alone.
    """
    connection = snapshot.connection(diagnosis.connection)
    if connection is None or connection.inside is None:
        return None
    inside = connection.inside
    match diagnosis.limit:
        case Limit.MEMORY:
            return more_memory(connection, inside, snapshot, room)
        case Limit.CREDITS if _are_most_taken(inside):
            return more_memory(connection, inside, snapshot, room)
        case Limit.CREDITS:
            return _more_credits(connection, inside, room)
        case Limit.SLOTS:
            return _more_slots(snapshot, connection.number)
    return None


def _are_most_taken(inside: Inside) -> bool:
    """Returns whether three quarters of the buffers are taken. Then more credits alone would only
    make calls wait for buffers.
    """
    return 4 * inside.buffers_taken >= 3 * inside.buffers


def no_room(inside: Inside, room: Room) -> NoRoom:
    if room.budget_bytes is not None and room.budget_bytes < inside.room_bytes:
        left = size(max(room.budget_bytes, 0))
        return NoRoom(f"{left} are left of this host's DMA memory", is_of_host=True)
    return NoRoom(
        f"{size(inside.room_bytes)} are left of its window of {size(inside.window_bytes)}"
    )


def _more_credits(connection: Connection, inside: Inside, room: Room) -> Plan | NoRoom | None:
    """Doubles the credits, as far as the peer has asked for them and their Receives have room."""
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


def _more_slots(snapshot: Snapshot, connection: int) -> Plan | None:
    short = short_of_slots(snapshot, connection)
    actions: tuple[Action, ...] = tuple(SetSlots(one, slots) for one, slots in short.items())
    return Plan(actions, f"twice the slots for {amount(len(short), 'session')}") if short else None
