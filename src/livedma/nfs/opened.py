"""What a server knows of a file that is open: by whom, for what, and which ranges are locked."""

from __future__ import annotations

from typing import TYPE_CHECKING

from livedma.nfs.byteranges import ByteRanges
from livedma.nfs.held import OpenFds
from livedma.nfs.mirror import Mirror
from livedma.nfs.shares import Share
from livedma.nfs.states import Versioned

if TYPE_CHECKING:
    from livedma.nfs.clients import Client
    from livedma.nfs.store import Node

__all__ = ["LockState", "OpenFile", "OpenState", "open_of"]


class OpenFile:
    """A file that somebody has open, which keeps its number from being used again."""

    def __init__(self, node: Node) -> None:
        self.key = node.key
        self.handle = node.handle
        self.opens: dict[tuple[int, bytes], OpenState] = {}
        self.ranges: ByteRanges[LockState] = ByteRanges()
        self.mirror: Mirror | None = None

    def released(self, first: int, last: int) -> None:
        """Somebody has unlocked this: local processes see what the others have left."""
        if self.mirror is not None:
            for gap in self.ranges.unheld(first, last):
                self.mirror.unlock(*gap)


class OpenState(Versioned):
    """All opens of one file by one open-owner."""

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
        """The client ID that it belongs to."""
        return self.client.number


class LockState(Versioned):
    """All locks of a lock-owner that it got by one open."""

    def __init__(self, other: bytes, open_state: OpenState, owner: bytes) -> None:
        super().__init__(other)
        self.open_state = open_state
        self.owner = owner

    @property
    def client_number(self) -> int:
        """The client ID that it belongs to."""
        return self.open_state.client.number

    @property
    def lock_owner(self) -> tuple[int, bytes]:
        """Who never is in its own way."""
        return self.open_state.client.number, self.owner


def open_of(state: OpenState | LockState) -> OpenState:
    """The open by which a state was got, which may be itself."""
    return state if isinstance(state, OpenState) else state.open_state
