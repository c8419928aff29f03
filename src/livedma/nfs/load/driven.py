# SPDX-License-Identifier: BSD-2-Clause
"""Lets another program drive a run: it sets how many sessions run, and where intervals end.

Orders are lines, and each is answered by one line once it was done:

    sessions N [R]   so many run: those that are missing begin, R a second or all at once, each
                     when it has written its file; those beyond rest after what they have under way
    interval         the figures since the interval before; of connections: since it began

The run ends with the orders, or when its time is up.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable
from typing import Any

from livedma._native.latency import Latency
from livedma._native.load import Figures
from livedma.errors import LivedmaError
from livedma.nfs.client import Client
from livedma.nfs.load.plan import Plan
from livedma.nfs.load.result import Interval
from livedma.nfs.load.runner import Runner
from livedma.rdma import Device
from livedma.wire.words import amount

__all__ = ["Driven", "orders_from_stdin"]

Answer = Callable[[dict[str, Any]], None]


class Driven(Runner):
    """Obeys orders. plan.sessions is the most there can be. answer: is called with the result of an
    order."""

    def __init__(
        self,
        plan: Plan,
        address: str,
        port: int,
        *,
        orders: asyncio.StreamReader,
        answer: Answer,
        device: Device | None = None,
        spin: float = 200e-6,
    ) -> None:
        super().__init__(plan, address, port, device=device, spin=spin)
        self._orders, self._answer = orders, answer
        self._latency = Latency()  # of the interval, up to the last look
        self._asked = 0  # sessions that were ordered; some of them may have been refused

    async def _prepare(self, client: Client) -> None:
        self._answer({"ready": True})

    async def _go_on(self, client: Client, before: Figures, total: Latency) -> Figures:
        try:
            async with asyncio.timeout(self.plan.seconds):
                while line := (await self._next_order()).decode(errors="replace").split():
                    before = await self._obey(line, before, total)
        except TimeoutError:
            pass
        return self._cut(before, total)[0]

    async def _next_order(self) -> bytes:
        """Returns the next order; nothing if there are no more, or if the run is to stop."""
        order = asyncio.create_task(self._orders.readline())
        stopped = asyncio.create_task(self._is_stopped.wait())
        try:
            await asyncio.wait({order, stopped}, return_when=asyncio.FIRST_COMPLETED)
            return order.result() if order.done() else b""
        finally:
            order.cancel()
            stopped.cancel()

    async def _obey(self, order: list[str], before: Figures, total: Latency) -> Figures:
        match order:
            case ["interval"]:
                before, interval = self._cut(before, total)
                self._answer({**interval.as_json(), **self._so_far()})
            case ["sessions", *numbers] if (
                all(map(str.isdecimal, numbers)) and 0 < len(numbers) < 3
            ):
                await self._have(*map(int, numbers))
            case _:
                self._answer({"error": f"no such order: {' '.join(order)}"})
        return before

    def _look(self) -> Figures:
        figures = super()._look()
        self._latency.merge(figures.latency)
        return figures

    def _cut(self, before: Figures, total: Latency) -> tuple[Figures, Interval]:
        after = self._look()._replace(latency=self._latency)
        self._latency = Latency()
        total.merge(after.latency)
        return after, Interval.between(before, after)

    def _so_far(self) -> dict[str, Any]:
        """Returns what became of connections and moves between them, since the run began."""
        figures = (self._load.session(number) for number in self._places.sessions)
        pauses_us = [one.pause_ns / 1000 for one in figures if one.moves]
        return {
            "connections": self._places.opened,
            "lost": len(self._lost()) + self._places.replaced,
            "moved": len(pauses_us),
            "pause_us": max(pauses_us, default=None),
        }

    async def _have(self, number: int, rate: int = 0) -> None:
        if number > self.plan.sessions:
            self._answer({"error": f"up to {amount(self.plan.sessions, 'session')}"})
            return
        self._load.set_active(number)
        try:
            numbers = range(self._asked, number)
            self._asked = max(self._asked, number)
            if rate:
                await self._ramp(numbers, rate)
            elif numbers:
                async with self._control.use() as client:
                    await self._add(client, numbers)
            figures = await self._filled()
            if number:
                self._check(figures)
        except LivedmaError as error:
            self._answer({"error": str(error)})
            raise
        self._answer({"sessions": figures.running, "refused": len(self._sessions.refused)})


async def orders_from_stdin() -> asyncio.StreamReader:
    orders = asyncio.StreamReader()
    await asyncio.get_running_loop().connect_read_pipe(
        lambda: asyncio.StreamReaderProtocol(orders), sys.stdin
    )
    return orders
