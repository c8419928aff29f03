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
    def connect(self, timeout_ms: int = 0) -> bool: ...
    def poll(self, batch: Batch, timeout_ms: int = 100, limit: int = ...) -> int: ...
    @property
    def gone(self) -> bool: ...
    def detach(self) -> None: ...
    def close(self) -> None: ...
    def counters(self) -> dict[str, int]: ...
