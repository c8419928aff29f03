# SPDX-License-Identifier: BSD-2-Clause
from collections.abc import Sequence

from livedma._native.wire import Batch

RING_BYTES: int
MODES: tuple[str | None, ...]

class CaptureSession:
    """Holds the loaded programs of a capture, attached to one interface at a time.

    An OSError carries one sentence that says what is wrong and what to do.
    """

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
    def attach(self, ifindex: int) -> None:
        """Attaches to an interface, detaching from the one before."""
    def detach(self) -> None:
        """Detaches from the interface; the programs stay loaded."""
    def close(self) -> None:
        """Detaches and frees everything. Calling it again has no effect."""
    @property
    def rx_mode(self) -> str | None:
        """Names how received packets are captured, one of `MODES`; None: not at all."""
    @property
    def tx_mode(self) -> str | None:
        """Names how sent packets are captured, one of `MODES`; None: not at all."""
    @property
    def foreign(self) -> tuple[int, str, bool] | None:
        """Describes the XDP program that the last attach found: (id, name, held by a link), or
        None.
        """
    def poll(self, batch: Batch, timeout_ms: int = 100, limit: int = ...) -> int:
        """Refills the batch with at most `limit` packets; returns how many, 0 after the timeout or
        a signal.
        """
    def counters(self) -> dict[str, int]:
        """Returns what the programs counted since they were loaded."""
