# SPDX-License-Identifier: BSD-2-Clause
from typing import final

_Times = tuple[int, int, int, int, int]

@final
class CallAccount:
    def ended(self, latency_ns: int, waited_ns: int) -> None: ...
    def moved(self, read_bytes: int, written_bytes: int, storage_ns: int) -> None: ...
    def totals(self) -> tuple[int, int, tuple[int, ...], tuple[int, ...]]: ...

@final
class CallLook:
    def again(self, account: CallAccount) -> tuple[int, int, _Times, _Times, _Times]: ...
