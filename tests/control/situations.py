# SPDX-License-Identifier: BSD-2-Clause
"""Situations whose limit is known, since they are made so.

Each resource could do so many operations a second if it were alone, and one of them clearly less
than all others.
"""

from __future__ import annotations

import math
import random
from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from typing import Any

from storage_model import Model

from livedma.control.diagnose.limits import Limit
from livedma.monitor.snapshot import Snapshot, Source

_MARGINS = (1.5, 4.0)  # of what is not the limit
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
    wire_s: float
    client_s: float
    loss: float
    retry_s: float
    size: int
    ramp_s: float = 1.0
    steady_s: float = 1.5

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)

    def model(self, source: Source = "server") -> Model:
        model = Model(self.seed, source)
        model.cpu_s, model.store_s = self.cpu_s, self.store_s
        model.store_spread, model.store.width = self.store_spread, self.store_width
        link = model.add_link(
            credits_=self.credits, buffers=self.buffers, sends=self.sends, size=self.size
        )
        link.way.seconds, link.way.loss, link.way.retry_s = self.way_s, self.loss, self.retry_s
        link.way.wire_s = self.wire_s
        link.client_s = self.client_s
        link.asked = self.sessions * self.depth
        for number in range(self.sessions):
            model.agenda.after(
                self.ramp_s * number / self.sessions,
                lambda: link.add_session(self.depth, self.slots, self.asked) and None,
            )
        return model

    def relieved_of(self, limit: Limit) -> Situation:
        """The same with half as much again of what is a limit, or of what the client wants."""
        more = 1.5
        changes: dict[Limit, dict[str, float]] = {
            Limit.NOTHING: {"sessions": math.ceil(more * self.sessions)},
            Limit.MEMORY: {"buffers": math.ceil(more * self.buffers)},
            Limit.CREDITS: {"credits": math.ceil(more * self.credits)},
            Limit.SLOTS: {"slots": math.ceil(more * self.slots)},
            Limit.SEND_QUEUE: {"sends": math.ceil(more * self.sends)},
            Limit.STORAGE: {"store_width": math.ceil(more * self.store_width)},
            Limit.CPU: {"cpu_s": self.cpu_s / more},
            Limit.NETWORK: {"loss": self.loss / more},
            Limit.PEER: {"client_s": self.client_s / more},
        }
        return replace(self, **changes[limit])  # type: ignore[arg-type]

    def operations_per_s(self) -> float:
        """When all sessions are there."""
        settled = [one for one in self.snapshots() if self.is_settled(one)]
        return sum(one.connections[0].operations for one in settled) / (
            sum(one.interval_s for one in settled)
        )

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

    per_s = chance.uniform(300, 1500)  # of what limits it
    at_a_time = chance.uniform(12, 64)  # calls in what takes longest
    is_store_slow = truth not in (Limit.SEND_QUEUE, Limit.PEER, Limit.NETWORK)
    longest_s, other_s = at_a_time / per_s, at_a_time / per_s * chance.uniform(0.01, 0.3)
    store_s, way_s = (longest_s, other_s / 2) if is_store_slow else (other_s, longest_s / 2)
    cpu_s = 1 / (per_s * margin(Limit.CPU))
    client_s = 1 / (per_s * margin(Limit.PEER))
    hold_s = store_s + way_s + cpu_s / 2 + client_s
    whole_s = hold_s + way_s + cpu_s / 2
    buffers = round(per_s * margin(Limit.MEMORY) * hold_s)
    credits_ = round(per_s * margin(Limit.CREDITS) * whole_s)
    retry_s = chance.uniform(3, 10) / per_s
    loss = chance.choice((0.0, 0.0, 1e-4))
    wire_s = cpu_s * chance.uniform(0.1, 0.5)
    if truth is Limit.NETWORK:
        loss = (1 / per_s - wire_s) / retry_s
    depth = chance.choice((1, 2, 3, 4, 8, 16))
    slots = asked = depth if chance.random() < 0.7 else 64  # as the kernel's client asks
    wanted = per_s * margin(Limit.NOTHING) * whole_s
    if truth is Limit.MEMORY:
        credits_ = max(credits_, buffers + 2)
        wanted = (
            max(wanted, 1.3 * credits_) if chance.random() < 0.7 else max(wanted, 1.2 * buffers)
        )
    elif truth is Limit.CREDITS:
        buffers = max(buffers, credits_ + 2)
        wanted = max(wanted, 1.3 * credits_)
    elif truth is Limit.SLOTS:
        depth, slots, asked = max(2 * depth, 4), depth, max(2 * depth, 4)
        wanted = per_s * whole_s * depth / slots
    elif truth is Limit.PEER:
        credits_ = max(credits_, round(1.2 * buffers + 1.5 * per_s * (whole_s - hold_s)))
        wanted = max(wanted, 1.2 * credits_)  # with less, nothing runs out
    elif truth is Limit.NOTHING:
        wanted = min(wanted * chance.uniform(0.02, 1), 0.8 * credits_, 0.8 * buffers)
        depth = min(depth, math.ceil(wanted))
        slots = asked = max(asked, depth)
    return Situation(
        truth=truth,
        seed=seed,
        sessions=max(1, round(wanted / depth)),
        depth=depth,
        slots=slots,
        asked=asked,
        credits=credits_,
        buffers=buffers,
        sends=round(per_s * (way_s + client_s)) if truth is Limit.SEND_QUEUE else 4096,
        cpu_s=cpu_s,
        store_s=store_s,
        store_spread=chance.choice((0.0, 0.1, 0.5, 1.0)),
        store_width=max(1, round(per_s * store_s)) if truth is Limit.STORAGE else 0,
        way_s=way_s,
        wire_s=wire_s,
        client_s=client_s,
        loss=loss,
        retry_s=retry_s,
        size=chance.choice((4096, 65536, 65536, 262144)),
    )
