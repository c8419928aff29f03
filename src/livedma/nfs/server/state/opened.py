# SPDX-License-Identifier: BSD-2-Clause
"""Holds what a server knows of an open file: its openers, their access, and the locked ranges."""

from __future__ import annotations

from typing import TYPE_CHECKING

from livedma.nfs.server.state.byteranges import ByteRanges
from livedma.nfs.server.state.held import Held, OpenFds
from livedma.nfs.server.state.mirror import Mirror
from livedma.nfs.server.state.shares import WRITE, Share
from livedma.nfs.server.state.states import Versioned

if TYPE_CHECKING:
    from livedma.nfs.server.state.clients import Client
    from livedma.nfs.server.store import Node

__all__ = ["Delegation", "LockState", "OpenFile", "OpenState", "open_of"]


class OpenFile:
    """Represents a file that clients have open; its inode number is not used again meanwhile."""

    def __init__(self, node: Node) -> None:
        self.key = node.key
        self.handle = node.handle
        self.opens: dict[tuple[int, bytes], OpenState] = {}
        self.ranges: ByteRanges[LockState] = ByteRanges()
        self.mirror: Mirror | None = None

    def released(self, first: int, last: int) -> None:
        """Takes from the mirror what an owner has unlocked, unless another owner has it locked."""
        if self.mirror is not None:
            for gap in self.ranges.unheld(first, last):
                self.mirror.unlock(*gap)


class OpenState(Versioned):
    """Holds all opens of one file by one open-owner."""

    def __init__(
        self, other: bytes, client: Client, owner: bytes, file: OpenFile, uid: int | None
    ) -> None:
        super().__init__(other)
        self.client = client
        self.owner = owner
        self.file = file
        self.uid = uid
        self.share = Share(0)
        self.opened: frozenset[Share] = frozenset()
        self.fds = OpenFds()
        self.locks: dict[bytes, LockState] = {}

    @property
    def client_number(self) -> int:
        """Returns the client ID that it belongs to."""
        return self.client.number

    @property
    def key(self) -> tuple[int, int]:
        """Returns the key of the file it is about."""
        return self.file.key


class LockState(Versioned):
    """Holds all locks of a lock-owner that came by one open."""

    def __init__(self, other: bytes, open_state: OpenState, owner: bytes) -> None:
        super().__init__(other)
        self.open_state = open_state
        self.owner = owner

    @property
    def client_number(self) -> int:
        """Returns the client ID that it belongs to."""
        return self.open_state.client.number

    @property
    def key(self) -> tuple[int, int]:
        """Returns the key of the file it is about."""
        return self.open_state.file.key

    @property
    def lock_owner(self) -> tuple[int, bytes]:
        """Returns the owner, whose own locks never conflict."""
        return self.open_state.client.number, self.owner


class Delegation(Versioned):
    """Represents a client's right to rely on a file: no other writes to it, or (is_write) has it
    open.

    held: a descriptor that has a lease of the kernel (has_lease) and keeps the file's number from
    being used again; its own, or (is_write) that of the open that it came with. recalled_s: since
    when the client is to give it back. is_asked: the client was told so, or is being told now.
    is_broken: a local program waits for it, or a client that came by another way. is_granted: the
    accelerator knows it. watch: the number of its watch in `Watches`.
    """

    def __init__(
        self,
        other: bytes,
        client: Client,
        node: Node,
        held: Held,
        uid: int | None,
        watch: int,
    ) -> None:
        super().__init__(other)
        self.client = client
        self.key = node.key
        self.watch = watch
        self.is_write = bool(held.access & WRITE)
        self.handle = node.handle
        self.held = held
        self.uid = uid
        self.has_lease = True
        self.recalled_s: float | None = None
        self.is_asked = False
        self.is_broken = False
        self.is_granted = False

    @property
    def client_number(self) -> int:
        """Returns the client ID that it belongs to."""
        return self.client.number


def open_of(state: OpenState | LockState) -> OpenState:
    """Returns the open that a state belongs to, which may be the state itself."""
    return state if isinstance(state, OpenState) else state.open_state
