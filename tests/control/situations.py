"""Situations whose limit is known, since they are made so: each resource could do so many operations
a second on its own, and one of them clearly less than the others.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass

from storage_model import Model
from livedma.control.limits import Limit
from livedma.monitor.snapshot import Snapshot, Source

LIMITS = tuple(Limit)
_MARGINS = (1.35, 4.0)  # of what is not the limit
_INTERVAL_S = 0.1
_SETTLED_S = 0.5


@dataclass(frozen=True, slots=True)
class Situation:
    """Per operation in seconds; loss is of messages. The client's sessions begin within ramp_s."""

    truth: Limit
    seed: int
    sessions: int
    depth: int
    slots: int
    asked: int
    credits: int
    buffers: int
    sends: int
    cpu_s: float
    store_s: float
    store_spread: float
    store_width: int
    way_s: float
    client_s: float
    loss: float
    retry_s: float
    size: int
    ramp_s: float = 1.0
    steady_s: float = 1.5

    def model(self, source: Source = "server") -> Model:
        model = Model(self.seed, source)
        model.cpu_s, model.store_s = self.cpu_s, self.store_s
        model.store_spread, model.store.width = self.store_spread, self.store_width
        link = model.add_link(
            credits_=self.credits, buffers=self.buffers, sends=self.sends, size=self.size
        )
        link.way.seconds, link.way.loss, link.way.retry_s = self.way_s, self.loss, self.retry_s
        link.client_s = self.client_s
        link.asked = self.sessions * self.depth
        for number in range(self.sessions):
            model.agenda.after(
                self.ramp_s * number / self.sessions,
                lambda: link.add_session(self.depth, self.slots, self.asked) and None,
            )
        return model

    def snapshots(self, source: Source = "server") -> Iterator[Snapshot]:
        model = self.model(source)
        for _ in range(round((self.ramp_s + self.steady_s) / _INTERVAL_S)):
            yield model.run(_INTERVAL_S)

    def is_settled(self, snapshot: Snapshot) -> bool:
        return snapshot.at_s > self.ramp_s + _SETTLED_S


def situation(truth: Limit, seed: int) -> Situation:
    """One of endlessly many."""
    chance = random.Random(f"{truth.name} {seed}")

    def margin(limit: Limit) -> float:
        return 1.0 if limit is truth else chance.uniform(*_MARGINS)

    per_s = chance.uniform(200, 1000)
    store_s = chance.choice((0.002, 0.005, 0.02, 0.05)) * chance.uniform(0.7, 1.4)
    way_s = store_s * chance.uniform(0.01, 0.1)
    retry_s = chance.uniform(0.004, 0.02)
    if truth in (Limit.SEND_QUEUE, Limit.PEER, Limit.NETWORK):
        way_s = chance.uniform(0.002, 0.01)
        store_s = way_s * chance.uniform(0.05, 0.5)
    cpu_s = 1 / (per_s * margin(Limit.CPU))
    client_s = 1 / (per_s * margin(Limit.PEER))
    loss = 1 / (per_s * retry_s) if truth is Limit.NETWORK else chance.choice((0, 0, 1e-4))
    hold_s = store_s + way_s + client_s + cpu_s
    whole_s = hold_s + way_s + cpu_s
    buffers = max(2, round(per_s * margin(Limit.MEMORY) * hold_s))
    # More credits than buffers, or calls could not wait for any.
    credits_ = max(buffers + 2, round(per_s * margin(Limit.CREDITS) * whole_s))
    if truth is Limit.CREDITS:
        credits_ = max(2, round(per_s * whole_s))
        buffers = max(buffers, round(1.2 * credits_))
    depth = chance.choice((1, 2, 3, 4, 8, 16))
    wanted = max(2.0, per_s * margin(Limit.NOTHING) * whole_s)
    if truth is Limit.NOTHING:
        wanted = max(1.0, min(wanted, credits_ * chance.uniform(0.05, 0.7)))
        depth = min(depth, max(1, round(wanted)))
    elif truth is not Limit.SLOTS:
        wanted = max(wanted, chance.uniform(1.3, 4) * max(credits_ if truth in _IN_FRONT else 0, 2))
    slots = asked = depth
    if truth is Limit.SLOTS:
        slots, asked = depth, chance.choice((2 * depth, 4 * depth, 64))
        wanted = max(1.0, per_s * whole_s)
        credits_, buffers = max(credits_, round(1.5 * wanted) + 2), buffers + 2
    elif chance.random() < 0.3:
        slots = asked = max(64, depth)  # as the kernel's client asks, whatever it will use
    sessions = max(1, round(wanted / depth))
    return Situation(
        truth=truth,
        seed=seed,
        sessions=sessions,
        depth=asked if truth is Limit.SLOTS else depth,
        slots=slots,
        asked=asked,
        credits=credits_,
        buffers=buffers,
        sends=max(1, round(per_s * (way_s + client_s))) if truth is Limit.SEND_QUEUE else 4096,
        cpu_s=cpu_s,
        store_s=store_s,
        store_spread=chance.choice((0.0, 0.1, 0.5, 1.0)),
        store_width=max(1, round(per_s * store_s)) if truth is Limit.STORAGE else 0,
        way_s=way_s,
        client_s=client_s,
        loss=loss,
        retry_s=retry_s,
        size=chance.choice((4096, 65536, 65536, 262144)),
    )


_IN_FRONT = (Limit.MEMORY, Limit.CREDITS)  # calls have to pile up before them
