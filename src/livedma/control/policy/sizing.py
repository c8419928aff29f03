"""How much memory and how many credits a connection should have: the arithmetic of policies."""

from __future__ import annotations

from collections.abc import Iterator

from livedma.control.plan import Action, Demand, Plan, Room, SetCredits, Shrink
from livedma.control.words import size
from livedma.monitor.snapshot import Connection, Inside, InsideSession, Session, Snapshot

__all__ = [
    "bytes_per_credit",
    "credits_for",
    "credits_in",
    "relaxed",
    "short_of_slots",
    "slots_of",
    "slots_used",
    "step_bytes",
    "useful_buffers",
]

_MARGIN_PART = 8  # one credit in so many is on its way, or for a call that needs no buffer
_MARGIN_LEAST = 8
_NOTICEABLE_PART = 8  # of a step: what is less could not be told from noise afterwards
_SPARE_PART = 4  # so much more than was needed stays when memory is taken back


def _balanced_credits(buffers: int) -> int:
    """So many that buffers run out before credits do, and hardly more."""
    return buffers + max(buffers // _MARGIN_PART, _MARGIN_LEAST)


def credits_for(buffers: int, connection: Connection, inside: Inside) -> int:
    """What goes with so many, as far as the peer has asked for it; never fewer than there are."""
    most = min(inside.credits_max, connection.credits_asked or inside.credits_max)
    return max(inside.credits, min(_balanced_credits(buffers), most))


def useful_buffers(connection: Connection, inside: Inside) -> int | None:
    """What the peer can use with all the credits that it has asked for. None: that is not known, or
    cannot be right, since all there are were taken.
    """
    if not connection.credits_asked or not connection.operations:
        return None
    of_a_call = -(-connection.bytes // connection.operations // inside.buffer_bytes)
    found = connection.credits_asked * max(of_a_call, 1)
    return found if found > inside.buffers else None


def bytes_per_credit(inside: Inside) -> int:
    """For the Receive and the reply behind a credit: what is mapped and not for data."""
    others = inside.mapped_bytes - inside.buffers * inside.buffer_bytes
    return max(others, 0) // max(inside.credits, 1)


def left_bytes(inside: Inside, room: Room) -> int:
    """Of the window and of the budget."""
    if room.budget_bytes is None:
        return inside.room_bytes
    return max(min(inside.room_bytes, room.budget_bytes), 0)


def credits_in(inside: Inside, room: Room) -> int:
    """More credits for whose Receives there is room."""
    return left_bytes(inside, room) // max(bytes_per_credit(inside), 1)


def step_bytes(connection: Connection, inside: Inside, room: Room) -> int:
    """For data, in whole buffers: as much as was there at first, or what can be used, or what is
    left with the credits that it takes. 0: too little is left to be noticed.
    """
    per_buffer = inside.buffer_bytes
    step = max(inside.first_bytes // per_buffer, 1)
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
    is_noticeable = buffers >= min(max(step // _NOTICEABLE_PART, 1), wanted)
    return buffers * per_buffer if is_noticeable else 0


def short_of_slots(snapshot: Snapshot, connection: int) -> dict[str, int]:
    """Twice the slots for those sessions of a connection that used all that they have, as far as
    their clients have asked for them.
    """
    return {
        one.id: min(2 * inside.slots_target, inside.slots_asked or 0)
        for one, inside in _sessions(snapshot, connection)
        if inside.slots_used_most >= inside.slots_target < (inside.slots_asked or 0)
    }


def slots_of(snapshot: Snapshot, connection: int) -> int:
    """Of all its sessions together."""
    return sum(inside.slots_target for _, inside in _sessions(snapshot, connection))


def slots_used(snapshot: Snapshot, connection: int) -> int:
    """The most of each session together: more than there are credits, if these do not suffice."""
    return sum(inside.slots_used_most for _, inside in _sessions(snapshot, connection))


def _sessions(snapshot: Snapshot, connection: int) -> Iterator[tuple[Session, InsideSession]]:
    for one in snapshot.sessions:
        if connection in one.connections and one.inside is not None:
            yield one, one.inside


def relaxed(connection: Connection, demand: Demand) -> Plan | None:
    """Takes back what was not needed, down to what was there at first."""
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


def _spared_buffers(inside: Inside, demand: Demand) -> int:
    """Worth the trouble only by half of a step, or if all that was added can go."""
    first = inside.first_bytes - demand.first_credits * bytes_per_credit(inside)
    added = inside.buffers - max(first // inside.buffer_bytes, 1)
    needed = demand.buffers + max(demand.buffers // _SPARE_PART, _MARGIN_LEAST)
    spared = min(inside.buffers - needed, added)
    half_a_step = inside.first_bytes // inside.buffer_bytes // 2
    return spared if spared > 0 and (spared >= half_a_step or spared == added) else 0
