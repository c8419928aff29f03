# SPDX-License-Identifier: BSD-2-Clause
"""Finds the limit that figures of a connection show, by a chain of checks; the first finding
counts.

The order is that of cause and effect. A thread, a store or a wire that is full makes calls pile up
in front of it, and those calls hold buffers, credits and slots. So the checks of what is downstream
come first. Buffers, credits or slots that have run out count only where nothing downstream explains
why.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from livedma.control.diagnose.evidence import rest, took, used
from livedma.control.diagnose.figures import Figures
from livedma.control.diagnose.limits import Limit
from livedma.control.diagnose.saturation import Saturation

__all__ = ["Finding", "Seen", "Stages", "judge"]

_CPU_FULL = 0.9
_PYTHON_BUSY = 0.5
_QUEUED = 0.3  # part of the accesses in a store that is full
_QUEUED_LEAST = 0.5
_SERVED_LEAST = 0.5  # at a time, by the slowest store that is full
_SENT_AGAIN = 0.05  # for each call
_STILL = 0.2  # part of the time
_STALLED = 0.4
_WAITING_PART = 0.02  # of the number of buffers, wanted by more calls
_WAITING_SLOWS = 0.1  # part of a call's time
_SLOTS_SHORT = 0.5
_COMPARED_LEAST = 4.0  # at a time
_OBSERVED_LEAST = 20.0  # operations


@dataclass(frozen=True, slots=True)
class Finding:
    """Names a limit that the figures show. With `slows`, requests take longer than they have to, or
    wait where the server cannot see them.
    """

    limit: Limit
    slows: bool
    sentence: str


class Stages:
    """Remembers how much each stage of a call did: the store, the way to the client, the whole."""

    def __init__(self) -> None:
        self.store = Saturation()
        self.way = Saturation()
        self.whole = Saturation()

    def observe(self, now: Figures) -> None:
        if now.operations_per_s * now.span_s < _OBSERVED_LEAST:
            return
        self.store.observe(now.kind, now.store.inside, now.store.accesses_per_s)
        self.way.observe(now.kind, now.moving, now.operations_per_s)
        self.whole.observe(now.kind, now.in_progress, now.operations_per_s)


@dataclass(frozen=True, slots=True)
class Seen:
    """Holds all that a finding is made of: the figures of the newest snapshots, those of the last
    two seconds, and what was remembered from before.
    """

    now: Figures
    lately: Figures
    stages: Stages


def judge(seen: Seen) -> Finding | None:
    """Returns the limit that the figures show. None: the last snapshots cannot tell, and the
    finding before stays.
    """
    now = seen.now
    if not now.is_idle:
        for check in _DOWNSTREAM:
            if found := check(seen):
                return found
        if now.memory.is_starved and _has_bad_moment(seen):
            return None
        for check in _RUN_OUT:
            if found := check(seen):
                return found
    return Finding(Limit.NOTHING, False, _nothing(now))


def _has_bad_moment(seen: Seen) -> bool:
    """Returns whether buffers are held up that were not held up lately: by a store that has just
    filled up, or by threads, here or at the client, that got no CPU for a while. Later snapshots
    show which.
    """
    now = seen.now
    return now.store.queued_part >= _QUEUED or (
        now.is_moving_most and not seen.lately.is_moving_most
    )


def _cpu(seen: Seen) -> Finding | None:
    busy = seen.now.cpu_busy
    if busy is None or busy < _CPU_FULL or not seen.now.operations_per_s:
        return None
    busiest = "the thread that serves the device is busy"
    if seen.now.connection.is_tcp:
        busiest = "the threads that serve TCP, of which Python runs one at a time, are busy"
    return Finding(
        Limit.CPU,
        True,
        f"{busiest} {min(busy, 1.0):.0%} of the time "
        f"with {seen.now.operations_per_s:,.0f} operations/s",
    )


def _store_queue(seen: Seen) -> Finding | None:
    """Finds a full store by its queue. If there is a queue and the store does almost nothing, its
    threads get no CPU instead.
    """
    store = seen.lately.store
    if seen.now.store.queued < _QUEUED_LEAST or store.queued_part < _QUEUED:
        return None
    if store.served < _SERVED_LEAST:
        return Finding(
            Limit.CPU,
            True,
            f"the host's CPUs are busy: accesses wait {store.queued_part:.0%} of their "
            f"{took(store.time_s)} for a thread, while {store.served:.1f} are made at a time",
        )
    return Finding(
        Limit.STORAGE,
        True,
        f"accesses wait {store.queued_part:.0%} of their {took(store.time_s)} in the store for "
        f"their turn: it does {store.served:.0f} at a time, and {store.queued:.0f} more are there",
    )


def _threads(seen: Seen) -> Finding | None:
    """Finds calls over TCP that wait for a thread. Calls that the store holds up keep their
    threads, and others wait for one.
    """
    now, lately = seen.now, seen.lately
    part = lately.thread_waiting / lately.in_progress if lately.in_progress else 0.0
    if now.thread_waiting < _QUEUED_LEAST or part < _QUEUED:
        return None
    waits = f"calls wait {part:.0%} of their {took(lately.latency_s)} for a thread that serves TCP"
    begun = max(lately.in_progress - lately.thread_waiting, 0.0)
    if _is_in_store(lately) and 2 * lately.store.inside >= begun:
        return Finding(
            Limit.STORAGE,
            True,
            f"{waits}: threads are in the store, {took(lately.store.time_s)} for an access",
        )
    return Finding(Limit.CPU, True, f"CPUs are busy: {waits}, of which Python runs one at a time")


def _is_in_store(now: Figures) -> bool:
    """Returns whether time in the store is the store's own. A thread that serves TCP and comes back
    from the store waits for Python's interpreter, which counts as time in the store. Where Python
    is busy, that may be most of it.
    """
    return not now.connection.is_tcp or now.cpu_busy is None or now.cpu_busy < _PYTHON_BUSY


def _store_flat(seen: Seen) -> Finding | None:
    store = seen.now.store
    if store.inside < _COMPARED_LEAST or not _is_in_store(seen.lately):
        return None
    enough = seen.stages.store.did_as_much_with(seen.now.kind, store.inside)
    if enough is None:
        return None
    return Finding(
        Limit.STORAGE,
        True,
        f"{store.inside:.0f} accesses at a time take {took(store.time_s)} each in the store, "
        f"which did as much with {enough:.0f}: it is full",
    )


def _network(seen: Seen) -> Finding | None:
    """Finds losses. Few packets may be sent again although much is lost: when the last packets of a
    train are lost, the sender waits for its timer, and nothing moves meanwhile.
    """
    lately = seen.lately
    is_still = lately.sent_again > 0 and lately.stalled >= _STILL
    if lately.sent_again < _SENT_AGAIN and not is_still:
        return None
    if seen.now.memory.is_starved and not (seen.now.is_moving_most or is_still):
        return None  # buffers are held by the store, not by packets on their way
    still = f", and nothing moves {lately.stalled:.0%} of the time" if lately.stalled else ""
    return Finding(
        Limit.NETWORK,
        True,
        f"packets get lost: for 100 calls, something is sent again or refused "
        f"{100 * lately.sent_again:.1f} times{still}",
    )


def _send_queue(seen: Seen) -> Finding | None:
    stalled = seen.now.send_stalled
    if stalled < _STALLED:
        return None
    return Finding(
        Limit.SEND_QUEUE, True, f"the send queue has no room {min(1.0, stalled):.0%} of the time"
    )


def _memory(seen: Seen) -> Finding | None:
    now, memory, inside = seen.now, seen.now.memory, seen.now.connection.inside
    if inside is None or not memory.is_starved:
        return None
    if memory.waiting < max(_QUEUED_LEAST, _WAITING_PART * inside.buffers):
        return None
    if now.is_moving_most and not seen.stages.way.has_grown(now.kind, now.moving):
        return Finding(
            Limit.PEER,
            True,
            f"{now.moving:.0f} of {inside.buffers} DMA buffers hold data that waits to be taken "
            "by the client, or to come from it",
        )
    part = memory.waiting / max(now.in_progress, memory.waiting)
    return Finding(
        Limit.MEMORY,
        part >= _WAITING_SLOWS or now.has_all_credits_used,
        f"requests wait {took(memory.wait_s)} for DMA memory ({rest(now)}): all "
        f"{inside.buffers} buffers are taken, {memory.waiting:.0f} more are wanted",
    )


def _credits(seen: Seen) -> Finding | None:
    now, inside = seen.now, seen.now.connection.inside
    if not now.has_all_credits_used or not now.wants_credits:
        return None
    if inside is None:
        rest_ = "; what they wait for only the server itself would know"
    else:
        rest_ = f", while {inside.buffers - now.memory.taken:.0f} DMA buffers are free"
    return Finding(
        Limit.CREDITS,
        True,
        f"all {now.connection.credits_granted} credits are in use all the time{rest_}",
    )


def _slots(seen: Seen) -> Finding | None:
    now = seen.now
    if seen.lately.slots_short < _SLOTS_SHORT:
        return None
    sessions = now.sessions_short
    rest_ = f", while {now.in_progress:.0f} of {now.connection.credits_granted} credits are in use"
    return Finding(
        Limit.SLOTS,
        True,
        f"{sessions} session{'s use' if sessions != 1 else ' uses'} all slots all the time"
        f"{'' if now.connection.is_tcp else rest_}",
    )


def _unseen(seen: Seen) -> Finding | None:
    """Finds, from the wire alone, that more calls at a time get no more done."""
    now = seen.now
    if now.knows_inside or now.in_progress < _COMPARED_LEAST:
        return None
    enough = seen.stages.whole.did_as_much_with(now.kind, now.in_progress)
    if enough is None:
        return None
    return Finding(
        Limit.NOTHING,
        True,
        f"{now.in_progress:.0f} calls at a time take {took(now.latency_s)} each, and "
        f"{enough:.0f} at a time did as much: what they wait for only the server itself would know",
    )


Check = Callable[[Seen], Finding | None]
_DOWNSTREAM: tuple[Check, ...] = (
    _cpu,
    _store_queue,
    _threads,
    _network,
    _store_flat,
    _send_queue,
)
_RUN_OUT: tuple[Check, ...] = (_memory, _credits, _slots, _unseen)


def _nothing(now: Figures) -> str:
    if now.is_idle:
        return "nothing is asked of it"
    return (
        f"it does all that is asked of it: {now.operations_per_s:,.0f} operations/s "
        f"in {took(now.latency_s)} each{_accesses(now)} ({used(now)})"
    )


def _accesses(now: Figures) -> str:
    """Returns the accesses to the store in words, with their own number and mean. Calls have other
    means: many make no access, which makes the mean of all calls shorter, and others make several
    at once.
    """
    if not now.store.accesses_per_s:
        return ""
    per_s, time_s = now.store.accesses_per_s, now.store.time_s
    return f", {per_s:,.0f} accesses/s to the store in {took(time_s)} each"
