# SPDX-License-Identifier: BSD-2-Clause
"""Declares what a source of snapshots is to `livedma watch`, wherever it looks."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol, runtime_checkable

from livedma.monitor.snapshot import Snapshot

__all__ = ["Source"]


@runtime_checkable
class Source(Protocol):
    """Watches the sessions of servers and clients on this host. One thread uses it at a time.

    It is made without effect. `attach` begins it, and may be called again when `is_attached` says
    that another program took it away; what the source knows stays. `close` leaves nothing behind,
    and calling it a second time has no effect.
    """

    @property
    def name(self) -> str:
        """Returns the word by which people choose it."""

    def attach(self) -> None:
        """Raises PrivilegeError, or LivedmaError with one sentence that says what to do."""

    @property
    def is_attached(self) -> bool: ...

    @property
    def where(self) -> str:
        """Returns what is watched, in a few words: `lo, eth0`. Valid once it is attached."""

    def snapshot(self) -> Snapshot:
        """Returns what happened since the snapshot before, or since `attach`. Its `losses` count
        from the start.
        """

    def unseen(self) -> Sequence[str]:
        """Returns a sentence for each thing that it cannot see, or not yet, as of the last
        snapshot.
        """

    def close(self) -> None: ...
