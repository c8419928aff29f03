"""A run that somebody drives: how many sessions there are, and where intervals end, is told to it.

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

__all__ = ["Driven", "orders_from_stdin"]

Answer = Callable[[dict[str, Any]], None]


class Driven(Runner):
    """plan.sessions is the most there can be. answer: is told what came of an order."""

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
        self._asked = 0  # sessions that were to be made; some may have been refused

    async def _prepare(self, client: Client) -> None:
        self._answer({"ready": True})

    async def _go_on(self, client: Client, before: Figures, total: Latency) -> Figures:
        try:
            async with asyncio.timeout(self.plan.seconds):
                while line := (await self._orders.readline()).decode(errors="replace").split():
                    before = await self._obey(line, client, before, total)
        except TimeoutError:
            pass
        return self._cut(before, total)[0]

    async def _obey(
        self, order: list[str], client: Client, before: Figures, total: Latency
    ) -> Figures:
        match order:
            case ["interval"]:
                before, interval = self._cut(before, total)
                self._answer({**interval.as_json(), **self._so_far()})
            case ["sessions", *numbers] if (
                all(map(str.isdecimal, numbers)) and 0 < len(numbers) < 3
            ):
                await self._have(client, *map(int, numbers))
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
        """Of connections and what moved between them, since the run began."""
        figures = (self._load.session(number) for number in self._places.sessions)
        pauses_us = [one.pause_ns / 1000 for one in figures if one.moves]
        return {
            "connections": self._places.opened,
            "lost": len(self._lost()),
            "moved": len(pauses_us),
            "pause_us": max(pauses_us, default=None),
        }

    async def _have(self, client: Client, number: int, rate: int = 0) -> None:
        if number > self.plan.sessions:
            self._answer({"error": f"up to {self.plan.sessions} sessions are possible"})
            return
        self._load.set_active(number)
        try:
            numbers = range(self._asked, number)
            self._asked = max(self._asked, number)
            if rate:
                await self._ramp(client, numbers, rate)
            else:
                await self._add_some(client, numbers)
            figures = await self._filled()
            if number:
                self._check(figures)
        except LivedmaError as error:
            self._answer({"error": str(error)})
            raise
        self._answer({"sessions": figures.running, "refused": len(self._state.refused)})


async def orders_from_stdin() -> asyncio.StreamReader:
    orders = asyncio.StreamReader()
    await asyncio.get_running_loop().connect_read_pipe(
        lambda: asyncio.StreamReaderProtocol(orders), sys.stdin
    )
    return orders
