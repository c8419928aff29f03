# SPDX-License-Identifier: BSD-2-Clause
"""Describes what one connection gets, if that is not what all connections get."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from livedma.rpc.rdma_server import RdmaConnection

__all__ = ["Expected", "Terms"]


@dataclass(frozen=True, slots=True)
class Terms:
    """Holds a connection's window, what of it is mapped at the start, and its credits then."""

    window_bytes: int
    mapped_bytes: int
    credits: int


class Expected(Protocol):
    """Follows a connection that the server asked for. Any thread may call its methods."""

    @property
    def terms(self) -> Terms | None:
        """What the connection gets. None: the same as all others."""

    def came(self, connection: RdmaConnection) -> None:
        """The connection has been made; its peer has yet to confirm it."""

    def refused(self, why: str) -> None:
        """The connection could not be made, or its peer did not confirm it."""
