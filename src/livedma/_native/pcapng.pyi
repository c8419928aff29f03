# SPDX-License-Identifier: BSD-2-Clause
from collections.abc import Iterable, Sequence
from typing import Self, final

from livedma._native.wire import Batch

@final
class PcapngWriter:
    def __new__(
        cls,
        fd: int,
        interfaces: Iterable[tuple[str, int, int]],
        application: str = "livedma",
        hardware: str | None = None,
        os_name: str | None = None,
    ) -> Self: ...
    def write(self, batch: Batch, interface: int = 0) -> None: ...
    def close(self, received: Sequence[int] = (), dropped: Sequence[int] = ()) -> None: ...
