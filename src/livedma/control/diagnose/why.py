# SPDX-License-Identifier: BSD-2-Clause
"""Answers why a session is slow, in words and figures, from a snapshot and its diagnoses."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from statistics import median
from typing import Any

from livedma.control.diagnose.figures import is_short_of_slots
from livedma.control.diagnose.limits import NOT_MANAGED, Diagnosis, Limit
from livedma.control.words import duration, rate
from livedma.errors import LivedmaError
from livedma.monitor.snapshot import Connection, Session, Snapshot

__all__ = ["Why", "why"]

_PART = 0.3  # of a call's time that is worth a line
_SLOWER = 1.5  # times as slow as others


@dataclass(frozen=True, slots=True)
class Why:
    """Answers the question. `session` is the session's whole id, or None where the question was
    about the connections. `is_slow`: it is slower than it has to be. `lines` is the answer for
    people, of which the first is the shortest. `limit` is a value of `Limit`.
    """

    session: str | None
    is_slow: bool
    limit: str
    lines: tuple[str, ...]
    evidence: dict[str, float] = field(default_factory=dict)

    def as_json(self) -> dict[str, Any]:
        return asdict(self)


def why(snapshot: Snapshot, diagnoses: Sequence[Diagnosis], session: str | None = None) -> Why:
    """Answers for a session, or for all connections. The beginning of the session's id is enough.
    Raises LivedmaError if no session has it, or several have.
    """
    if session is None:
        return _of_connections(snapshot, diagnoses)
    return _of_session(snapshot, diagnoses, _found(snapshot, session))


def _found(snapshot: Snapshot, beginning: str) -> Session:
    if not isinstance(beginning, str) or not beginning:
        raise LivedmaError("a session is named by its id, or the beginning of it")
    found = [one for one in snapshot.sessions if one.id.startswith(beginning.lower())]
    if len(found) == 1:
        return found[0]
    if not found:
        raise LivedmaError(f"there is no session {beginning}")
    raise LivedmaError(f"{len(found)} sessions begin with {beginning}: write more of it")


def _of_connections(snapshot: Snapshot, diagnoses: Sequence[Diagnosis]) -> Why:
    slow = [one for one in diagnoses if one.is_degraded]
    if not diagnoses:
        return Why(None, False, Limit.NOTHING.value, ("no client is connected",))
    lines = []
    for one in diagnoses:
        connection = snapshot.connection(one.connection)
        client = "" if connection is None else f" of {_client(connection)}"
        lines.append(f"connection {one.connection}{client}: {one.verdict}: {one.sentence}")
        if one.room_words:
            lines.append(f"connection {one.connection}: {one.room_words}")
    if any(one.is_tcp for one in snapshot.connections):
        lines.append(f"{NOT_MANAGED}: policies leave them as they are")
    worst = slow[0] if slow else diagnoses[0]
    evidence = {**worst.evidence, **_room(worst)}
    return Why(None, bool(slow), worst.limit.value, tuple(lines), evidence)


def _room(diagnosis: Diagnosis) -> dict[str, float]:
    """Returns the room for more sessions as figures, as far as it is known."""
    room = diagnosis.room
    found = (
        {}
        if room is None
        else {
            "room_least_sessions": room.least,
            "room_most_sessions": room.most,
            "window_room_least_sessions": room.end_least,
            "window_room_most_sessions": room.end_most,
        }
    )
    return {name: value for name, value in found.items() if value is not None}


def _client(connection: Connection) -> str:
    return f"{connection.client_words}{' over TCP' if connection.is_tcp else ''}"


def _of_session(snapshot: Snapshot, diagnoses: Sequence[Diagnosis], session: Session) -> Why:
    its = [one for one in diagnoses if one.connection in session.connections]
    slow = next((one for one in its if one.is_degraded), None)
    is_short = is_short_of_slots(session, snapshot.interval_s)
    limit = Limit.NOTHING
    if slow is not None and slow.limit is not Limit.SLOTS:
        limit, first = slow.limit, f"its connection {slow.connection} is slow: {slow.sentence}"
    elif is_short and session.inside is not None:
        limit = Limit.SLOTS
        first = (
            f"all its {session.inside.slots} slots are in use all the time, and it asked for "
            f"{session.inside.slots_asked or 'more'}: further requests wait at the client"
        )
    elif not session.operations and not session.in_flight:
        first = "it is not slow: nothing is asked of it"
    else:
        first = f"it is not slow: {_doing(session, snapshot.interval_s)}"
    return Why(
        session.id,
        slow is not None or limit is not Limit.NOTHING,
        limit.value,
        (first, *_parts(session), *_compared(snapshot, session)),
        _evidence(session, snapshot.interval_s),
    )


def _doing(session: Session, interval_s: float) -> str:
    per_s = session.operations / interval_s
    return (
        f"{per_s:,.0f} operations/s, {rate(session.bytes / interval_s)}, "
        f"in {duration(session.latency.mean_ns)} each"
    )


def _parts(session: Session) -> list[str]:
    """Returns in words where the session's calls spend their time."""
    inside = session.inside
    if inside is None:
        return []
    calls = session.operations if inside.calls is None else inside.calls
    whole_ns = session.latency.sum_ns if inside.calls_ns is None else inside.calls_ns
    if not whole_ns or not calls:
        return []
    whole, found = f"a call takes {duration(whole_ns / calls)}", []
    for name, spent_ns in (
        ("for DMA memory", inside.memory_waited_ns),
        ("in the store", inside.storage_ns),
    ):
        each = duration(spent_ns / calls)
        if spent_ns > whole_ns:  # several pieces of a long call wait or are stored at once
            found.append(f"{whole}, and its pieces, several at once, {each} together {name}")
        elif spent_ns >= _PART * whole_ns:
            found.append(f"{whole}, {each} of it {name}")
    return found


def _compared(snapshot: Snapshot, session: Session) -> list[str]:
    """Compares a session with the other sessions on its connections, in words."""
    others = [
        one.latency.mean_ns
        for one in snapshot.sessions
        if one.id != session.id and one.operations and set(one.connections) & {*session.connections}
    ]
    if not others or not session.operations:
        return []
    usual_ns = median(others)
    if session.latency.mean_ns < _SLOWER * usual_ns:
        return []
    return [f"others on its connection take {duration(usual_ns)} for a call"]


def _evidence(session: Session, interval_s: float) -> dict[str, float]:
    found = {
        "operations_per_s": session.operations / interval_s,
        "bytes_per_s": session.bytes / interval_s,
        "latency_ms": session.latency.mean_ns / 1e6,
        "p99_ms": session.latency.p99_ns / 1e6,
        "in_progress_calls": session.in_flight,
    }
    if session.inside is not None:
        found |= {
            "slots": session.inside.slots,
            "used_slots": session.inside.slots_used_most,
            "memory_wait_ms": (session.memory_wait_ns or 0.0) / 1e6,
            "storage_ms": (session.storage_ns or 0.0) / 1e6,
        }
    return found
