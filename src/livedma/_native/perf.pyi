# SPDX-License-Identifier: BSD-2-Clause
from array import array
from collections.abc import Sequence

from livedma._native.mapped import Mapped
from livedma._native.pool import Pool
from livedma._native.port import Port
from livedma._native.rdma import OPERATIONS as OPERATIONS
from livedma._native.rdma import STATUSES as STATUSES
from livedma._native.rdma import CompletionQueue, QueuePair

class CompletionError(Exception):
    """Reports that a request of a measurement failed; the argument is the name of its status."""

class Measurement:
    """Measures from one side, for one message size.

    It sends from the start of the memory and receives at its middle. The methods run without the
    interpreter's lock. One thread at a time may use them; another one ends them with cancel.
    """

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
        pools: Sequence[Pool] | Sequence[Mapped] | None = None,
    ) -> None: ...
    @staticmethod
    def stride(size: int) -> int:
        """Returns the bytes from one place to the next that requests of this size use in turn."""
    def cancel(self) -> None:
        """Ends the loop that runs, and all that follow, with a KeyboardInterrupt."""
    @property
    def done(self) -> int:
        """Counts the operations that have completed. Another thread may read it."""
    @property
    def elapsed_ns(self) -> int:
        """Is the time that the last loop took."""
    @property
    def longest_gap_ns(self) -> int:
        """Is the longest time in which nothing completed; 0 unless times were kept."""
    @property
    def refill_ns(self) -> int:
        """Is the time in which `drain` posted Receives in place of those that were used."""
    @property
    def best_ns(self) -> float:
        """Is the shortest time that a message took when many were under way; 0 unless times were
        kept.
        """
    def prepare(self) -> None:
        """Posts the Receives. It is called once for all sizes, before the other side begins to
        SEND.
        """
    def stream(self) -> None:
        """Keeps depth requests under way on every connection."""
    def drain(self) -> None:
        """Receives the other side's stream of SENDs."""
    def release(self) -> None:
        """Gives the Receives' buffers back to their pools, once their queue pairs are closed."""
    def ping(self, is_first: bool) -> array[int]:
        """Sends one message at a time, on the first connection. The first side gets the nanoseconds
        of each.
        """
