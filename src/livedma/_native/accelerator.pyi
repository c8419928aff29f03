# SPDX-License-Identifier: BSD-2-Clause
from typing import final

from livedma._native.nfs import Changes, SlotTable, WriteVerifier

UID_NONE: int
KINDS: tuple[str, ...]

@final
class Sessions:
    def __init__(self) -> None: ...
    def add(self, table: SlotTable) -> None: ...
    def remove(self, table: SlotTable) -> bool: ...
    def __len__(self) -> int: ...

@final
class Accelerator:
    def __init__(
        self,
        changes: Changes,
        verifier: WriteVerifier,
        *,
        threads: int = 4,
        operations: int = 4096,
        read_max: int = 1048576,
        has_reserve: bool = False,
    ) -> None: ...
    @property
    def sessions(self) -> Sessions: ...
    @property
    def changes(self) -> Changes: ...
    @property
    def verifier(self) -> WriteVerifier: ...
    @property
    def capsule(self) -> object: ...
    def grant(
        self,
        other: bytes,
        seqid: int,
        handle: bytes,
        fd: int,
        readable: bool,
        writable: bool,
        client: int,
        uid: int,
    ) -> None: ...
    def update(self, other: bytes, seqid: int, readable: bool, writable: bool) -> bool: ...
    def revoke(self, other: bytes) -> bool: ...
    @property
    def grants(self) -> int: ...
    store_delay_s: float
    store_width: int
    @property
    def counters(self) -> dict[str, int]: ...
    def served(self, kind: str) -> dict[str, int]: ...
    def storage_times(self, kind: str) -> tuple[int, int, int, list[tuple[int, int]]]: ...
    def close(self, timeout_s: float = 10.0) -> None: ...
