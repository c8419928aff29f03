# SPDX-License-Identifier: BSD-2-Clause
"""Holds what the owner of a server decides."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

__all__ = ["Config", "Squash"]

Squash = Literal["root", "all", "none"]

_MIB = 1 << 20
_ROOM_FOR_HEADERS = 16 << 10


@dataclass(frozen=True, slots=True)
class Config:
    """Settings of a server. Where Linux's server has them, the defaults are its.

    lease_s: for how long the state of a silent client is safe from others. grace_s: for how long
    clients may reclaim after a restart; it is at least a lease. slots: the most of a new session;
    `slots_most`: the most that it may be given later. request_bytes and response_bytes: a
    whole RPC message with 1 MiB of data. cached_bytes: of a reply that is kept for repetition.
    states_most: opens, lock-owners and locked ranges of a client. open_files_most: descriptors for
    opens; None leaves it to RLIMIT_NOFILE. sync_metadata: changes of names and attributes are also
    on the disk before they are acknowledged; without it a crash of the host may undo the last
    seconds of them (a crash of the server never does). delegations: over TCP, clients may be told
    that no other client changes a file, and are called back before one does. store_delay_s: the
    least time that each access to data takes, and store_width: how many accesses run at a time
    (0: any number); both imitate a slow disk in a lab.
    """

    lease_s: int = 90
    grace_s: int = 90
    read_only: bool = False
    sync_metadata: bool = False
    delegations: bool = False
    squash: Squash = "root"
    anonymous_uid: int = 65534
    anonymous_gid: int = 65534
    slots: int = 64
    slots_most: int = 1024
    request_bytes: int = _MIB + _ROOM_FOR_HEADERS
    response_bytes: int = _MIB + _ROOM_FOR_HEADERS
    cached_bytes: int = 4096
    operations: int = 64
    rdma_ird: int = 16
    clients_most: int = 16384
    sessions_most: int = 16384
    states_most: int = 16384
    open_files_most: int | None = None
    store_delay_s: float = 0.0
    store_width: int = 0

    def __post_init__(self) -> None:
        if self.lease_s < 1 or self.grace_s < self.lease_s:
            raise ValueError("a lease has 1 s or more, and grace is no shorter than a lease")
        if not 1 <= self.slots <= self.slots_most:
            raise ValueError("a session has 1 slot or more, and no more than slots_most")
