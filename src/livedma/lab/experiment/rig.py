# SPDX-License-Identifier: BSD-2-Clause
"""Joins two devices on loopback in one process, each on its own processor, by connections."""

from __future__ import annotations

import mmap
import os
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from types import TracebackType
from typing import Self

from livedma._native.mapped import Mapped
from livedma._native.perf import CompletionError, Measurement
from livedma.errors import LivedmaError
from livedma.rdma import Device, ProtectionDomain, QueuePair

__all__ = ["MTU", "Received", "Rig", "on_processor"]

MTU = 4096

_ALL_RIGHTS = ("remote_read", "remote_write")
_TIMEOUT = 19  # two seconds: a busy machine keeps to that
_SLICE_S = 0.05
_SPIN_S = 10.0
_SIZE_MAX = 1 << 20


@contextmanager
def on_processor(number: int) -> Iterator[None]:
    """Keeps the calling thread on one of the processors that this process may use."""
    allowed = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {sorted(allowed)[number % len(allowed)]})
    try:
        yield
    finally:
        os.sched_setaffinity(0, allowed)


@dataclass(frozen=True)
class Received:
    """Holds times for each message."""

    elapsed_ns: float
    refill_ns: float  #: the part for giving its buffer back, taking another one and posting it


class Rig:
    """Joins two devices: `here` asks, `there` has the memory that is measured.

    They have UDP ports and addresses of their own, so they need no privilege and disturb no other
    program.
    """

    def __init__(
        self, connections: int = 1, *, depth: int = 64, receives: int = 16, number: int = 0
    ) -> None:
        """number: of this rig, where a process has several."""
        net = f"127.{1 + os.getpid() // 250 % 250}.{1 + os.getpid() % 250}"
        self.depth = depth
        with ExitStack() as stack:
            self.here, self.there = (
                stack.enter_context(Device(f"{net}.{2 * number + host}", port="udp", share=False))
                for host in (1, 2)
            )
            self.source = mmap.mmap(-1, 2 * _SIZE_MAX)
            self.pd_here, self.pd = self.here.protection_domain(), self.there.protection_domain()
            self._region = self.pd_here.register(self.source)
            self.cq_here = self.here.completion_queue(connections * depth)
            self.cq = self.there.completion_queue(connections * max(receives, 1))
            self.senders, self.receivers = [], []
            for _ in range(connections):
                one = self._queue_pair(self.pd_here, self.cq_here, depth, 1)
                other = self._queue_pair(self.pd, self.cq, 16, receives)
                _connect(one, other.number, self.there.address)
                _connect(other, one.number, self.here.address)
                self.senders.append(one)
                self.receivers.append(other)
            stack.callback(self._region.close)
            self._stack = stack.pop_all()

    def _queue_pair(self, pd: ProtectionDomain, cq: object, send: int, recv: int) -> QueuePair:
        return pd.queue_pair(
            "RC",
            cq,  # type: ignore[arg-type]
            max_send=send,
            max_recv=recv,
            max_send_sge=1,
            max_recv_sge=1,
        )

    def stream(
        self,
        operation: str,
        size: int,
        iterations: int,
        *,
        va: int = 0,
        rkey: int = 0,
        span: int = 0,
        depth: int | None = None,
    ) -> int:
        """Returns the ns that so many messages of all connections took, `depth` under way on each.

        WRITE and READ go round `span` bytes at va, as if at random. The caller sees to it that
        `there` is served; `serving` does that.
        """
        measurement = Measurement(
            self.here.engine,
            self.cq_here,
            [(qp, va, rkey) for qp in self.senders],
            operation,
            (self._region.key, self._region.va, memoryview(self.source)),
            size,
            iterations=iterations,
            depth=depth or self.depth,
            span=span,
            spin=_SPIN_S,
        )
        try:
            with on_processor(0):
                measurement.stream()
        except CompletionError as error:
            raise LivedmaError(f"a {operation} ended with {error}") from None
        except TimeoutError:
            raise LivedmaError(f"no {operation} was done for ten seconds") from None
        return measurement.elapsed_ns

    @contextmanager
    def receiving(
        self, size: int, iterations: int, pools: Sequence[Mapped], receives: int
    ) -> Iterator[Callable[[], Received]]:
        """Posts Receives with buffers of the connections' pools. What it yields receives a stream
        of SENDs of all connections each time that it is called.
        """
        local = mmap.mmap(-1, 2 * size)
        with self.pd.register(local) as region:
            receiving = Measurement(
                self.there.engine,
                self.cq,
                [(qp, 0, 0) for qp in self.receivers],
                "SEND",
                (region.key, region.va, memoryview(local)),
                size,
                iterations=iterations,
                receives=receives,
                spin=_SPIN_S,
                pools=pools,
            )
            receiving.prepare()
            yield lambda: self._receive(receiving, size, iterations)
            for qp in self.receivers:
                qp.close()
            receiving.release()

    def _receive(self, receiving: Measurement, size: int, iterations: int) -> Received:
        with ThreadPoolExecutor(1) as threads:
            draining = threads.submit(_on_second_processor, receiving.drain)
            try:
                self.stream("SEND", size, iterations)
            except BaseException:
                receiving.cancel()
                raise
            draining.result()
        return Received(receiving.elapsed_ns / iterations, receiving.refill_ns / iterations)

    @contextmanager
    def serving(self) -> Iterator[None]:
        """Serves `there` in a thread on another processor, so that no wake-up is measured."""
        is_over = threading.Event()

        def serve() -> None:
            with on_processor(1):
                while not is_over.is_set():
                    self.there.engine.wait(self.cq, _SLICE_S, _SLICE_S)

        thread = threading.Thread(target=serve)
        thread.start()
        try:
            yield
        finally:
            is_over.set()
            thread.join()

    def close(self) -> None:
        self._stack.close()
        self.source.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()


def _on_second_processor(loop: Callable[[], None]) -> None:
    with on_processor(1):
        loop()


def _connect(qp: QueuePair, number: int, address: str) -> None:
    qp.modify("INIT", access=_ALL_RIGHTS)
    qp.modify("RTR", mtu=MTU, dst=address, dest_qp=number, rq_psn=7)
    qp.modify("RTS", sq_psn=7, timeout=_TIMEOUT)
