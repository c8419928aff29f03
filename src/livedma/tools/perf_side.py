# SPDX-License-Identifier: BSD-2-Clause
"""Holds what both sides of a measurement need: memory, queue pairs, and loops that can be ended."""

from __future__ import annotations

import concurrent.futures
import os
import threading
from collections.abc import Callable
from contextlib import ExitStack
from typing import TypeVar

from livedma._native.perf import CompletionError, Measurement
from livedma.errors import LivedmaError
from livedma.rdma import Device, cm
from livedma.tools.perf_control import PeerError, why
from livedma.tools.perf_memory import allocate
from livedma.tools.perf_plan import Plan, Remote

__all__ = ["Side", "supervised"]

T = TypeVar("T")

_TAIL_BYTES = 8
_TIMES_MAX = 20_000  # with more, perftest knows no peak either


class Side:
    """Has memory (it sends from the start, and receives at the middle) and connections.

    span: the least that the other side uses.
    """

    def __init__(self, device: Device, plan: Plan, memory: str, span: int = 0) -> None:
        self.device, self.plan = device, plan
        self._connections = ExitStack()
        self.connections: list[cm.Connection] = []
        self._middle = max(*plan.sizes, span)
        pd = device.protection_domain()
        self._memory = allocate(pd, memory, 2 * self._middle)
        self._cq = device.completion_queue(plan.qps * (plan.depth + plan.receives))
        self.setup: cm.Setup = {
            "pd": pd,
            "cq": self._cq,
            "max_send": max(plan.depth, 16),  # replies are not waited for
            "max_recv": plan.receives,
            "max_send_sge": 1,
            "max_recv_sge": 1,
        }

    def add(self, connection: cm.Connection) -> None:
        self.connections.append(self._connections.enter_context(connection))

    def close(self) -> None:
        self._connections.close()
        self._cq.close()
        self._memory.close()

    def __enter__(self) -> Side:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def remote(self) -> Remote:
        return Remote(self._memory.va, self._memory.key, len(self._memory.view))

    def measurement(self, size: int, remote: Remote, spin: float) -> Measurement:
        plan = self.plan
        # A READ takes what the other side would send; a WRITE goes to where it would receive.
        offset = 0 if plan.operation == "read" else remote.length // 2
        return Measurement(
            self.device.engine,
            self._cq,
            [(connection.qp, remote.va + offset, remote.rkey) for connection in self.connections],
            plan.operation.upper(),
            self._memory.handle,
            size,
            iterations=plan.total,
            depth=plan.depth,
            receives=plan.receives,
            span=plan.span,
            spin=spin,
            keeps_times=plan.kind == "bw" and plan.total <= _TIMES_MAX,
        )

    def mark(self, size: int) -> str:
        """Puts new bytes at the end of what is sent, for the other side to look for."""
        start, end = self._tail(size)
        tail = os.urandom(end - start)
        stride = Measurement.stride(size)
        # A READ may take it from any place that READs go round, as far as this side's memory goes.
        room = self._middle if self.plan.operation == "read" else size
        for place in range(0, room - size + 1, stride):
            self._memory.view[place + start : place + end] = tail
        return tail.hex()

    def sees(self, size: int, tail: str) -> bool:
        """Returns whether the end of what arrived is as the other side marked it."""
        start, end = self._tail(size)
        offset = 0 if self.plan.operation == "read" else self._middle
        return self._memory.view[start + offset : end + offset].hex() == tail

    def _tail(self, size: int) -> tuple[int, int]:
        # The last byte of a WRITE that is answered counts.
        end = size - 1 if self.plan.test == "write-lat" else size
        return max(end - _TAIL_BYTES, 0), end


def supervised(
    measurement: Measurement, loop: Callable[[], T], peer: str, tick: Callable[[int], None]
) -> T:
    """Runs the loop in a thread, so that Ctrl-C can end it and tick can report its progress.

    When this returns or raises, the loop does not run any more: an interrupt may come while the
    thread starts, and the executor then does not know the loop.
    """
    turn, is_over = threading.Lock(), False

    def run() -> T:
        with turn:
            if is_over:
                raise concurrent.futures.CancelledError
            return loop()

    with concurrent.futures.ThreadPoolExecutor(1) as threads:
        try:
            running = threads.submit(run)
            while not concurrent.futures.wait([running], 0.5).done:
                tick(measurement.done)
            return running.result()
        except CompletionError as error:
            raise PeerError(f"{peer} {why(str(error))}") from None
        except TimeoutError:
            raise LivedmaError(
                f"{peer} sent nothing for ten seconds: see if it still runs"
            ) from None
        finally:
            measurement.cancel()
            with turn:
                is_over = True
