# SPDX-License-Identifier: BSD-2-Clause
from typing import final

_Times = tuple[int, int, int, int, int]

@final
class CallAccount:
    """Counts calls of one connection, the bytes that they moved and the time that they took.
    Python's interpreter lock guards it, so any thread may use it.
    """

    def ended(self, arrived_ns: int, began_ns: int) -> None:
        """Counts a call that is answered now. It came, and a thread began with it, at these times
        of the monotonic clock.
        """
    def moved(self, read_bytes: int, written_bytes: int, storage_ns: int) -> None:
        """Counts what a call read and wrote of files. storage_ns: its time in the store; 0: it did
        not use it.
        """
    def totals(self) -> tuple[int, int, tuple[int, ...], tuple[int, ...]]:
        """Returns, since the connection was made: the bytes read, the bytes written, and two
        histograms, of the latency and of the time in the store. A histogram has the number of calls
        below each of TIMES_BOUNDS_NS, the number of all calls and the sum of their times in ns.
        """

@final
class CallLook:
    """Counts from one look at an account to the next. Each reader keeps a look of its own."""

    def again(self, account: CallAccount) -> tuple[int, int, _Times, _Times, _Times]:
        """Returns, since the last look: the bytes read, the bytes written, and the times of
        latency, of waiting for a thread and in the store, each as (count, sum, half of them within,
        99 of 100 within, longest), in ns.
        """
