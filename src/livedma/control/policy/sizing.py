# SPDX-License-Identifier: BSD-2-Clause
"""Computes for policies how much memory and how many credits a connection should have."""

from __future__ import annotations

from collections.abc import Iterator

from livedma.control.policy.plan import Action, Demand, Plan, Room, SetCredits, Shrink
from livedma.control.words import size
from livedma.monitor.snapshot import Connection, Inside, InsideSession, Session, Snapshot

__all__ = [
    "bytes_per_credit",
    "credits_for",
    "credits_in",
    "has_all_useful",
    "relaxed",
    "short_of_slots",
    "slots_of",
    "slots_used",
    "step_bytes",
    "useful_buffers",
]

_MARGIN_PART = 8  # 1/8 of the credits are on their way, or for calls that need no buffer
_MARGIN_LEAST = 8
_NOTICEABLE_PART = 8  # 1/8 of a step; the effect of less could not be told from noise
_SPARE_PART = 4  # 1/4 more than was needed stays when memory is taken back


def _balanced_credits(buffers: int) -> int:
    """Returns the fewest credits with which buffers run out before credits do, plus a margin."""
    return buffers + max(buffers // _MARGIN_PART, _MARGIN_LEAST)


def credits_for(buffers: int, connection: Connection, inside: Inside) -> int:
    """Returns the credits for so many buffers, as far as the peer has asked for them, and never
    fewer than there are.
    """
    most = min(inside.credits_max, connection.credits_asked or inside.credits_max)
    return max(inside.credits, min(_balanced_credits(buffers), most))


def useful_buffers(connection: Connection, inside: Inside) -> int | None:
    """Returns how many buffers the peer can use with all the credits that it has asked for. None:
    that is not known, or the result is wrong, since it is no more than the buffers that there are.
    """
    if not connection.credits_asked or not connection.operations:
        return None
    of_a_call = -(-connection.bytes // connection.operations // inside.buffer_bytes)
    found = connection.credits_asked * max(of_a_call, 1)
    return found if found > inside.buffers else None


def has_all_useful(connection: Connection, inside: Inside) -> bool:
    """Returns whether there are as many buffers as the peer can use with the credits that it has
    asked for, as far as its operations show that, or so nearly that the rest would make no
    noticeable difference.
    """
    if not connection.credits_asked or not connection.operations:
        return False
    useful = useful_buffers(connection, inside)
    return useful is None or useful - inside.buffers < _noticeable(_step_buffers(inside))


def bytes_per_credit(inside: Inside) -> int:
    """Returns the memory for the Receive and the reply behind one credit: what is mapped and is
    neither for data nor kept back, divided by the credits.
    """
    others = inside.mapped_bytes - inside.kept_back_bytes - inside.buffers * inside.buffer_bytes
    return max(others, 0) // max(inside.credits, 1)


def left_bytes(inside: Inside, room: Room) -> int:
    """Returns what is left of the window or of the budget, whichever is less."""
    if room.budget_bytes is None:
        return inside.room_bytes
    return max(min(inside.room_bytes, room.budget_bytes), 0)


def credits_in(inside: Inside, room: Room) -> int:
    """Returns how many more credits there is room for."""
    return left_bytes(inside, room) // max(bytes_per_credit(inside), 1)


def step_bytes(connection: Connection, inside: Inside, room: Room) -> int:
    """Returns how much more to map for data, in whole buffers: what the connection began with, what
    the peer can use, or what is left beside the credits that go with it, whichever is least.
    0: what is left would make no noticeable difference.
    """
    per_buffer = inside.buffer_bytes
    step = _step_buffers(inside)
    useful = useful_buffers(connection, inside)
    wanted = step if useful is None else min(step, useful - inside.buffers)
    left = left_bytes(inside, room)
    each = bytes_per_credit(inside)
    buffers = min(wanted, left // per_buffer)
    while buffers > 0:
        more_credits = credits_for(inside.buffers + buffers, connection, inside) - inside.credits
        if buffers * per_buffer + more_credits * each <= left:
            break
        buffers -= 1
    is_noticeable = buffers >= min(_noticeable(step), wanted)
    return buffers * per_buffer if is_noticeable else 0


def _step_buffers(inside: Inside) -> int:
    return max(inside.first_bytes // inside.buffer_bytes, 1)


def _noticeable(step_buffers: int) -> int:
    return max(step_buffers // _NOTICEABLE_PART, 1)


def short_of_slots(snapshot: Snapshot, connection: int) -> dict[str, int]:
    """Returns twice the slots for those sessions of a connection that used all their slots, as far
    as their clients have asked for them.
    """
    return {
        one.id: min(2 * inside.slots_target, inside.slots_asked or 0)
        for one, inside in _sessions(snapshot, connection)
        if inside.slots_used_most >= inside.slots_target < (inside.slots_asked or 0)
    }


def slots_of(snapshot: Snapshot, connection: int) -> int:
    """Returns the target slots of all sessions of a connection together."""
    return sum(inside.slots_target for _, inside in _sessions(snapshot, connection))


def slots_used(snapshot: Snapshot, connection: int) -> int:
    """Returns the sum of the most slots that each session has used. It exceeds the credits where
    these are too few.
    """
    return sum(inside.slots_used_most for _, inside in _sessions(snapshot, connection))


def _sessions(snapshot: Snapshot, connection: int) -> Iterator[tuple[Session, InsideSession]]:
    for one in snapshot.sessions:
        if connection in one.connections and one.inside is not None:
            yield one, one.inside


def relaxed(connection: Connection, demand: Demand) -> Plan | None:
    """Plans to take back what was not needed, down to what the connection began with."""
    inside = connection.inside
    if inside is None:
        return None
    spared = _spared_buffers(inside, demand)
    fewest = max(_balanced_credits(inside.buffers - spared), demand.first_credits)
    wanted = min(fewest, inside.credits)
    action: Action
    if spared:
        length = spared * inside.buffer_bytes
        action = Shrink(connection.number, length, wanted)
        said = f"give {size(length)} back"
    elif wanted < inside.credits and demand.calls <= wanted * 3 // 4:
        action = SetCredits(connection.number, wanted)
        said = f"credits {inside.credits} -> {wanted}"
    else:
        return None
    return Plan((action,), f"{said}: {demand.buffers} of {inside.buffers} buffers were needed")


def _first_buffers(inside: Inside, demand: Demand) -> int:
    """Returns the buffers that the connection began with. What is mapped now cannot tell where the
    server does not say it: late replies and shards that are still leaving are in it, too.
    """
    if inside.first_buffers is not None:
        return inside.first_buffers
    data = inside.first_bytes - inside.kept_back_bytes
    data -= demand.first_credits * bytes_per_credit(inside)
    return max(data // inside.buffer_bytes, 1)


def _spared_buffers(inside: Inside, demand: Demand) -> int:
    """Returns the buffers to take back. 0 if they are less than half a step and not all that was
    added, since that is not worth the trouble.
    """
    added = inside.buffers - _first_buffers(inside, demand)
    needed = demand.buffers + max(demand.buffers // _SPARE_PART, _MARGIN_LEAST)
    spared = min(inside.buffers - needed, added)
    half_a_step = inside.first_bytes // inside.buffer_bytes // 2
    return spared if spared > 0 and (spared >= half_a_step or spared == added) else 0
