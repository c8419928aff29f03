"""Why is this session slow? The answer in words and figures, from a snapshot and its diagnoses."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from statistics import median
from typing import Any

from livedma.control.figures import is_short_of_slots
from livedma.control.limits import Diagnosis, Limit
from livedma.control.words import duration, rate
from livedma.errors import LivedmaError
from livedma.monitor.snapshot import Session, Snapshot

__all__ = ["Why", "why"]

_PART = 0.3  # of a call's time: worth a word
_SLOWER = 1.5  # times as slow as others


@dataclass(frozen=True, slots=True)
class Why:
    """session: its whole id, or None where the connections were asked for. is_slow: slower than it
    has to be. lines: the answer, for people; the first is the shortest. limit: a word of `Limit`.
    """

    session: str | None
    is_slow: bool
    limit: str
    lines: tuple[str, ...]
    evidence: dict[str, float] = field(default_factory=dict)

    def as_json(self) -> dict[str, Any]:
        return asdict(self)


def why(snapshot: Snapshot, diagnoses: Sequence[Diagnosis], session: str | None = None) -> Why:
    """session: the beginning of its id is enough. Raises LivedmaError if there is none, or more."""
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
        raise LivedmaError(f"there is no session {beginning} over RDMA")
    raise LivedmaError(f"{len(found)} sessions begin with {beginning}: write more of it")


def _of_connections(snapshot: Snapshot, diagnoses: Sequence[Diagnosis]) -> Why:
    slow = [one for one in diagnoses if one.is_degraded]
    if not diagnoses:
        return Why(None, False, Limit.NOTHING.value, ("there is no connection over RDMA",))
    lines = []
    for one in diagnoses:
        connection = snapshot.connection(one.connection)
        client = "" if connection is None else f" of {connection.client}"
        lines.append(f"connection {one.connection}{client}: {one.verdict}: {one.sentence}")
    worst = slow[0] if slow else diagnoses[0]
    return Why(None, bool(slow), worst.limit.value, tuple(lines), dict(worst.evidence))


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
    """Where its calls spend their time."""
    inside, whole_ns = session.inside, session.latency.sum_ns
    if inside is None or not whole_ns or not session.operations:
        return []
    found = []
    for name, spent_ns in (
        ("for DMA memory", inside.memory_waited_ns),
        ("in the store", inside.storage_ns),
    ):
        if spent_ns >= _PART * whole_ns:
            each = duration(spent_ns / session.operations)
            found.append(f"a call takes {duration(session.latency.mean_ns)}, {each} of it {name}")
    return found


def _compared(snapshot: Snapshot, session: Session) -> list[str]:
    """With the others of its connections."""
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
        calls = max(1, session.operations)
        found |= {
            "slots": session.inside.slots,
            "used_slots": session.inside.slots_used_most,
            "memory_wait_ms": session.inside.memory_waited_ns / calls / 1e6,
            "storage_ms": session.inside.storage_ns / calls / 1e6,
        }
    return found
