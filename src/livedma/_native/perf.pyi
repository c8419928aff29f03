# SPDX-License-Identifier: BSD-2-Clause
from array import array
from collections.abc import Sequence

from livedma._native.pool import Pool
from livedma._native.port import Port
from livedma._native.rdma import OPERATIONS as OPERATIONS
from livedma._native.rdma import STATUSES as STATUSES
from livedma._native.rdma import CompletionQueue, QueuePair

class CompletionError(Exception): ...

class Measurement:
    def __init__(
        self,
        port: Port,
        cq: CompletionQueue,
        peers: Sequence[tuple[QueuePair, int, int]],
        operation: str,
        memory: tuple[int, int, memoryview],
        size: int,
        *,
        iterations: int,
        depth: int = 1,
        receives: int = 1,
        span: int = 0,
        spin: float = 0.0,
        keeps_times: bool = False,
        pools: Sequence[Pool] | None = None,
    ) -> None: ...
    @staticmethod
    def stride(size: int) -> int: ...
    def cancel(self) -> None: ...
    @property
    def done(self) -> int: ...
    @property
    def elapsed_ns(self) -> int: ...
    @property
    def longest_gap_ns(self) -> int: ...
    @property
    def refill_ns(self) -> int: ...
    @property
    def best_ns(self) -> float: ...
    def prepare(self) -> None: ...
    def stream(self) -> None: ...
    def drain(self) -> None: ...
    def release(self) -> None: ...
    def ping(self, is_first: bool) -> array[int]: ...
