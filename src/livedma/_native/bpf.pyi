# SPDX-License-Identifier: BSD-2-Clause
from collections.abc import Sequence

from livedma._native.wire import Batch

RING_BYTES: int
MODES: tuple[str | None, ...]

class CaptureSession:
    def __init__(
        self,
        *,
        rx: bool,
        tx: bool,
        rx_by_tc: bool = False,
        native_only: bool = False,
        replace: bool = False,
        without_links: bool = False,
        verbose: bool = False,
        ring_bytes: int = 0,
        snaplen: int = ...,
        sample: int = 1,
        prefixes: Sequence[tuple[int, int, bytes, bytes]] = (),
        qps: Sequence[int] = (),
        operations: int = 0,
    ) -> None: ...
    def attach(self, ifindex: int) -> None: ...
    def detach(self) -> None: ...
    def close(self) -> None: ...
    @property
    def rx_mode(self) -> str | None: ...
    @property
    def tx_mode(self) -> str | None: ...
    @property
    def foreign(self) -> tuple[int, str, bool] | None: ...
    def poll(self, batch: Batch, timeout_ms: int = 100, limit: int = ...) -> int: ...
    def counters(self) -> dict[str, int]: ...
