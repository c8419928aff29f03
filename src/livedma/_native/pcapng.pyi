# SPDX-License-Identifier: BSD-2-Clause
from collections.abc import Iterable, Sequence
from typing import Self, final

from livedma._native.wire import Batch

@final
class PcapngWriter:
    """Writes batches to a pcapng file with nanosecond times. interfaces: [(name, link type, snap
    length)].
    """

    def __new__(
        cls,
        fd: int,
        interfaces: Iterable[tuple[str, int, int]],
        application: str = "livedma",
        hardware: str | None = None,
        os_name: str | None = None,
    ) -> Self: ...
    def write(self, batch: Batch, interface: int = 0) -> None:
        """Writes the batch's packets in order: a batch of up to a MiB takes one write."""
    def close(self, received: Sequence[int] = (), dropped: Sequence[int] = ()) -> None:
        """Ends the file with statistics: frames seen and dropped, one number per interface. The
        descriptor stays open.
        """
