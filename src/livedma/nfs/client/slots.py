# SPDX-License-Identifier: BSD-2-Clause
"""Keeps the slots of a session on the client's side (RFC 8881 section 2.10.6.1)."""

from __future__ import annotations

import asyncio
import heapq
from collections import deque
from dataclasses import dataclass

__all__ = ["Slot", "SlotTable"]

SLOTS_MOST = 1024

_SEQUENCE_BITS = 0xFFFFFFFF


@dataclass(slots=True, eq=False)
class Slot:
    """Carries one call at a time.

    sequence: of the call under way, or of the next one. in_doubt: a call was sent with it, and it
    is not known whether the server has seen that; that has to be found out before another call.
    """

    number: int
    sequence: int = 1
    in_doubt: bool = False

    def advance(self) -> None:
        """Counts the call, as the server has."""
        self.sequence = (self.sequence + 1) & _SEQUENCE_BITS
        self.in_doubt = False


class SlotTable:
    """Gives out slots, the lowest first, to callers in the order in which they asked.

    It gives out no more than the server's target. A slot that the server takes back is not used
    again once it is free.
    """

    def __init__(self, session_id: bytes, count: int) -> None:
        self.session_id = session_id
        self._slots = [Slot(number) for number in range(min(count, SLOTS_MOST))]
        self._limit = len(self._slots)
        self._free = [slot.number for slot in self._slots]  # a heap: the numbers are in order
        self._doubtful: list[int] = []
        self._waiting: deque[asyncio.Future[Slot | None]] = deque()
        self._used: set[int] = set()
        self._sent = 0
        self._heard = 0
        self._is_closed = False
        self._is_idle = asyncio.Event()
        self._is_idle.set()

    @property
    def limit(self) -> int:
        """Returns how many may be used at once now."""
        return self._limit

    @property
    def in_use(self) -> int:
        return len(self._used)

    @property
    def waiting(self) -> int:
        """Returns how many calls wait for a slot."""
        return len(self._waiting)

    @property
    def highest_used(self) -> int:
        return max(self._used, default=0)

    @property
    def slots(self) -> tuple[Slot, ...]:
        """Returns the slots that may be used."""
        return tuple(self._slots[: self._limit])

    async def acquire(self) -> Slot | None:
        """Waits for a slot; None if the table is closed, and another takes its place."""
        if self._is_closed:
            return None
        slot = None if self._waiting else self._take()
        if slot is not None:
            return slot
        turn: asyncio.Future[Slot | None] = asyncio.get_running_loop().create_future()
        self._waiting.append(turn)
        try:
            return await turn
        except asyncio.CancelledError:
            slot = turn.result() if turn.done() and not turn.cancelled() else None
            if slot is not None:
                self.release(slot)
            raise

    def release(self, slot: Slot) -> None:
        """Takes a slot back, whatever became of its call."""
        self._used.discard(slot.number)
        is_gone = slot.number >= len(self._slots) or self._slots[slot.number] is not slot
        if not is_gone:
            heapq.heappush(self._doubtful if slot.in_doubt else self._free, slot.number)
        self._wake()
        if not self._used:
            self._is_idle.set()

    async def drained(self) -> None:
        """Waits until no slot is in use. Callers that wait for a slot come first."""
        await self._is_idle.wait()

    def next_call(self) -> int:
        """Counts a call that is about to be sent; `update` needs its number."""
        self._sent += 1
        return self._sent

    def update(self, call: int, highest: int, target: int) -> None:
        """Takes what the server said in its reply to a call; replies may overtake each other."""
        if call < self._heard:
            return
        self._heard = call
        self._limit = max(1, min(highest, target, SLOTS_MOST - 1) + 1)
        # The server forgets slots above its highest: if they come back, they begin anew.
        while len(self._slots) > max(1, highest + 1) and len(self._slots) - 1 not in self._used:
            self._forget(self._slots.pop().number)
        while len(self._slots) < self._limit:
            self._slots.append(Slot(len(self._slots)))
            heapq.heappush(self._free, len(self._slots) - 1)
        self._wake()

    def refuse(self, slot: Slot) -> None:
        """Notes that the server has neither this slot nor any above it."""
        self._limit = max(1, min(self._limit, slot.number))

    def close(self) -> None:
        """Stops giving out slots; the callers that wait get None."""
        self._is_closed = True
        while self._waiting:
            turn = self._waiting.popleft()
            if not turn.done():
                turn.set_result(None)

    def _forget(self, number: int) -> None:
        for heap in (self._free, self._doubtful):
            if number in heap:
                heap.remove(number)
                heapq.heapify(heap)

    def _take(self) -> Slot | None:
        for heap in (self._free, self._doubtful):
            if heap and heap[0] < self._limit:
                slot = self._slots[heapq.heappop(heap)]
                self._used.add(slot.number)
                self._is_idle.clear()
                return slot
        return None

    def _wake(self) -> None:
        while self._waiting:
            if self._waiting[0].done():
                self._waiting.popleft()
                continue
            slot = self._take()
            if slot is None:
                return
            self._waiting.popleft().set_result(slot)
