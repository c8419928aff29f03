"""What the owner of a server decides."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

__all__ = ["Config", "Squash"]

Squash = Literal["root", "all", "none"]

_MIB = 1 << 20
_ROOM_FOR_HEADERS = 16 << 10


@dataclass(frozen=True, slots=True)
class Config:
    """The defaults are those of Linux's server where it has them.

    lease_s: for how long a silent client's state is safe from others. grace_s: for how long clients
    may reclaim after a restart, which is at least a lease. slots: of a new session, at most;
    a session's owner may have up to `slots_most` given later. request_bytes and response_bytes: a
    whole RPC message with 1 MiB of data. cached_bytes: of a reply that is kept for repetition.
    states_most: opens, lock-owners and locked ranges of a client. open_files_most: descriptors for
    opens; None leaves it to RLIMIT_NOFILE. sync_metadata: changes of names and attributes, too, are
    on the disk before they are acknowledged; else a crash of the host may undo the last seconds of
    them (that of the server never does). delegations: clients may be told that nobody else changes
    a file, and are called back before somebody does; over TCP. store_delay_s: how long each access
    to data takes at least, and store_width: how many there are at a time (0: any number), to have a
    slow disk in a lab.
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
