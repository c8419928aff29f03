# SPDX-License-Identifier: BSD-2-Clause
"""Holds what the operations of one COMPOUND share."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from livedma.nfs.numbers import NfsError, Status
from livedma.nfs.stateid import CURRENT, Stateid
from livedma.rpc.service import Connection

if TYPE_CHECKING:
    from livedma.nfs.server.parts import Server
    from livedma.nfs.server.state.clients import Client
    from livedma.nfs.server.state.sessions import Session
    from livedma.nfs.server.store import Node

__all__ = ["Context", "Credential"]


@dataclass(frozen=True, slots=True)
class Credential:
    """Names the caller: its ids as they came (AUTH_NONE: None), and the principal that owns its
    state."""

    uid: int | None
    gid: int | None
    gids: tuple[int, ...] = ()
    machine: bytes = b""


@dataclass(slots=True)
class Context:
    """Holds the state of a COMPOUND while its operations run, in one thread."""

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
    storage_ns: int = 0  #: in the store, by reading, writing and committing

    @property
    def node(self) -> Node:
        """Returns the file of the current filehandle."""
        if self.current is None:
            raise NfsError(Status.NOFILEHANDLE)
        return self.current

    def resolve(self, stateid: Stateid, *, keep_seqid: bool = False) -> Stateid:
        """Returns the stateid to work with: the current one if `stateid` stands for it.

        keep_seqid: CLOSE and OPEN_DOWNGRADE mean the very version that was current; all other
        operations mean the latest (RFC 8881, 8.2.3).
        """
        if stateid != CURRENT:
            return stateid
        current = self.current_stateid
        if current is None:
            raise NfsError(Status.BAD_STATEID)
        return current if keep_seqid or current.is_special else Stateid(0, current.other)
