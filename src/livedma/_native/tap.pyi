# SPDX-License-Identifier: BSD-2-Clause
from collections.abc import Sequence

from livedma._native.wire import Batch

PREFIXES_MAX: int
QPS_MAX: int
SNAPLEN_MIN: int
SNAPLEN_MAX: int
OPERATIONS: dict[str, int]
TAPS_MAX: int
RING_BYTES: int
LINK: int

class Selection:
    """Picks those packets of a batch that a live capture with the same filters takes."""
    def __init__(
        self,
        *,
        prefixes: Sequence[tuple[int, int, bytes, bytes]] = (),
        qps: Sequence[int] = (),
        operations: int = 0,
    ) -> None: ...
    def keep(self, batch: Batch) -> int:
        """Takes all other packets out of the batch; returns how many those were."""

class TapSession:
    """Receives the packets of the device at an address in a ring, once connect() returned True."""

    def __init__(
        self,
        address: str,
        *,
        scope: int = 0,
        rx: bool = True,
        tx: bool = True,
        ring_bytes: int = 0,
        snaplen: int = ...,
        sample: int = 1,
        prefixes: Sequence[tuple[int, int, bytes, bytes]] = (),
        qps: Sequence[int] = (),
        operations: int = 0,
    ) -> None: ...
    def connect(self, timeout_ms: int = 0) -> bool:
        """Returns whether the device is tapped now; False if there was none within the timeout.
        OSError: it will not be.
        """
    def poll(self, batch: Batch, timeout_ms: int = 100, limit: int = ...) -> int:
        """Refills the batch with at most `limit` packets; returns how many, 0 after the timeout or
        a signal.
        """
    @property
    def gone(self) -> bool:
        """Tells whether the tap has ended: the device closed, or detach() was called."""
    def detach(self) -> None:
        """Ends the tap; what is in the ring can still be polled."""
    def close(self) -> None:
        """Ends the tap and frees its ring. Calling it again has no effect."""
    def counters(self) -> dict[str, int]:
        """Returns what the device counted for this tap; the figures are final once it is gone."""
