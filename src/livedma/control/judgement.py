"""Which limit the figures of a connection show: a chain of checks, the first that finds one is it.

The order is that of cause and effect. A thread, a store or a wire that is full makes calls pile up
in front of it, and those hold buffers, credits and slots: so what is downstream is asked first, and
that something has run out counts only where nothing behind it explains why.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

from livedma.control.evidence import rest, took
from livedma.control.figures import Figures
from livedma.control.limits import Limit
from livedma.control.saturation import Saturation

__all__ = ["Finding", "Stages", "judge"]

_CPU_FULL = 0.9
_QUEUED = 0.3  # part of the accesses in the store; threads that wait for a CPU make some of it
_QUEUED_LEAST = 0.5
_SENT_AGAIN = 0.05  # packets, for each call
_STALLED = 0.4
_ON_THE_WAY = 0.5  # part of the buffers whose data moves
_WAITING_PART = 0.02  # of the buffers there are, wanted by others
_WAITING_SLOWS = 0.1  # part of a call's time
_SLOTS_SHORT = 0.5
_STORE_LEAST = 4.0
_OBSERVED_LEAST = 20.0  # operations in the span


@dataclass(frozen=True, slots=True)
class Finding:
    """slows: requests take longer than they have to, or wait where the server cannot see them."""

    limit: Limit
    slows: bool
    sentence: str


class Stages:
    """What is remembered of what calls are in: the store, the way to the client, the server."""

    def __init__(self) -> None:
        self.store = Saturation()
        self.way = Saturation()
        self.whole = Saturation()

    def observe(self, figures: Figures) -> None:
        if figures.operations_per_s * figures.span_s < _OBSERVED_LEAST:
            return
        kind, store = kind_of(figures), figures.store
        self.store.observe(kind, store.inside, store.accesses_per_s)
        self.way.observe(kind, figures.moving, figures.operations_per_s)
        self.whole.observe(kind, figures.in_progress, figures.operations_per_s)


def kind_of(figures: Figures) -> tuple[int, bool]:
    """Loads of one kind can be compared: operations of about one size, most reads or most not."""
    connection = figures.connection
    size = figures.bytes_per_s / figures.operations_per_s if figures.operations_per_s else 0.0
    return round(math.log2(size + 1)), connection.read_bytes >= connection.written_bytes


def judge(figures: Figures, stages: Stages) -> Finding:
    if not figures.is_idle:
        for check in _CHECKS:
            found = check(figures, stages)
            if found is not None:
                return found
    return Finding(Limit.NOTHING, False, _nothing(figures))


def _cpu(figures: Figures, _: Stages) -> Finding | None:
    busy = figures.cpu_busy
    if busy is None or busy < _CPU_FULL or not figures.operations_per_s:
        return None
    return Finding(
        Limit.CPU,
        True,
        f"the thread that serves the device is busy {busy:.0%} of the time "
        f"with {figures.operations_per_s:,.0f} operations/s",
    )


def _store_queue(figures: Figures, _: Stages) -> Finding | None:
    store = figures.store
    part = store.queued_part
    if figures.memory.is_starved and store.inside:  # no time to lose: this must not pass for memory
        part = max(part, store.queued / store.inside)
    if store.queued < _QUEUED_LEAST or part < _QUEUED:
        return None
    return Finding(
        Limit.STORAGE,
        True,
        f"accesses wait {part:.0%} of their {took(store.time_s)} in the store for their turn: "
        f"it does {store.inside - store.queued:.0f} at a time, and {store.queued:.0f} more are "
        "there",
    )


def _store_flat(figures: Figures, stages: Stages) -> Finding | None:
    store = figures.store
    if store.inside < _STORE_LEAST:
        return None
    enough = stages.store.did_as_much_with(kind_of(figures), store.inside)
    if enough is None:
        return None
    return Finding(
        Limit.STORAGE,
        True,
        f"{store.inside:.0f} accesses at a time take {took(store.time_s)} each in the store, "
        f"which did as much with {enough:.0f}: it is full",
    )


def _network(figures: Figures, _: Stages) -> Finding | None:
    if figures.sent_again < _SENT_AGAIN:
        return None
    if figures.memory.is_starved and figures.moving < _ON_THE_WAY * figures.memory.taken:
        return None  # buffers are held by the store, not by packets on their way
    return Finding(
        Limit.NETWORK,
        True,
        f"{100 * figures.sent_again:.0f} packets are sent again or refused for 100 calls",
    )


def _send_queue(figures: Figures, _: Stages) -> Finding | None:
    if figures.send_stalled < _STALLED:
        return None
    return Finding(
        Limit.SEND_QUEUE,
        True,
        f"the send queue has no room {min(1.0, figures.send_stalled):.0%} of the time",
    )


def _slow_peer(figures: Figures) -> Finding:
    return Finding(
        Limit.PEER,
        True,
        f"{figures.moving:.0f} DMA buffers hold data that waits to be taken by the client, or to "
        "come from it, and no more is done with more of them",
    )


def _memory(figures: Figures, stages: Stages) -> Finding | None:
    inside, memory = figures.connection.inside, figures.memory
    if inside is None or not memory.is_starved:
        return None
    if memory.waiting < max(_QUEUED_LEAST, _WAITING_PART * inside.buffers):
        return None
    if figures.moving >= _ON_THE_WAY * memory.taken and not stages.way.has_grown(
        kind_of(figures), figures.moving
    ):
        return _slow_peer(figures)
    part = memory.waiting / max(figures.in_progress, memory.waiting)
    return Finding(
        Limit.MEMORY,
        part >= _WAITING_SLOWS or figures.has_all_credits_used,
        f"requests wait {took(memory.wait_s)} for DMA memory ({rest(figures)}): all "
        f"{inside.buffers} buffers are taken, {memory.waiting:.0f} more are wanted",
    )


def _credits(figures: Figures, _: Stages) -> Finding | None:
    if not figures.has_all_credits_used or not figures.wants_credits:
        return None
    granted = figures.connection.credits_granted
    inside = figures.connection.inside
    if inside is None:
        why = "; what they wait for only the server itself would know"
    else:
        why = f", while {inside.buffers - figures.memory.taken:.0f} DMA buffers are free"
    return Finding(Limit.CREDITS, True, f"all {granted} credits are in use all the time{why}")


def _unseen(figures: Figures, stages: Stages) -> Finding | None:
    """From outside: more calls at a time, and no more done."""
    if figures.knows_inside or figures.in_progress < _STORE_LEAST:
        return None
    enough = stages.whole.did_as_much_with(kind_of(figures), figures.in_progress)
    if enough is None:
        return None
    return Finding(
        Limit.NOTHING,
        True,
        f"{figures.in_progress:.0f} calls at a time take {took(figures.latency_s)} each, and "
        f"{enough:.0f} at a time did as much: what they wait for only the server itself would know",
    )


def _slots(figures: Figures, _: Stages) -> Finding | None:
    if figures.slots_short < _SLOTS_SHORT:
        return None
    sessions = figures.sessions_short
    return Finding(
        Limit.SLOTS,
        True,
        f"{sessions} session{'s use' if sessions != 1 else ' uses'} all slots all the time, while "
        f"{figures.in_progress:.0f} of {figures.connection.credits_granted} credits are in use",
    )


_CHECKS: tuple[Callable[[Figures, Stages], Finding | None], ...] = (
    _cpu,
    _store_queue,
    _store_flat,
    _network,
    _send_queue,
    _memory,
    _credits,
    _slots,
    _unseen,
)


def _nothing(figures: Figures) -> str:
    if figures.is_idle:
        return "nothing is asked of it"
    return (
        f"it does all that is asked of it: {figures.operations_per_s:,.0f} operations/s "
        f"in {took(figures.latency_s)} ({rest(figures)})"
    )
