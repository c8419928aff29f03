"""What the operations of one COMPOUND share."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from livedma.nfs.numbers import NfsError, Status
from livedma.rpc.service import Connection

if TYPE_CHECKING:
    from livedma.nfs.clients import Client
    from livedma.nfs.server import Server
    from livedma.nfs.sessions import Session
    from livedma.nfs.stateid import Stateid
    from livedma.nfs.store import Node

__all__ = ["Context", "Credential"]


@dataclass(frozen=True, slots=True)
class Credential:
    """Who asks: ids as they came (AUTH_NONE: None), and the principal that state belongs to."""

    uid: int | None
    gid: int | None
    gids: tuple[int, ...] = ()
    machine: bytes = b""


@dataclass(slots=True)
class Context:
    """The state of a COMPOUND while its operations run, in one thread."""

    server: Server
    connection: Connection
    credential: Credential
    minor: int
    client: Client | None = None
    session: Session | None = None
    current: Node | None = None
    saved: Node | None = None
    current_stateid: Stateid | None = None
    saved_stateid: Stateid | None = None
    read_bytes: int = 0  #: of files, so far
    written_bytes: int = 0

    @property
    def node(self) -> Node:
        """What the current filehandle stands for."""
        if self.current is None:
            raise NfsError(Status.NOFILEHANDLE)
        return self.current
