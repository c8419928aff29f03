"""What a single connection gets, where that is not what all of them do."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from livedma.rpc.rdma_server import RdmaConnection

__all__ = ["Expected", "Terms"]


@dataclass(frozen=True, slots=True)
class Terms:
    """A connection's window, what of it is memory from the start, and its credits to begin with."""

    window_bytes: int
    mapped_bytes: int
    credits: int


class Expected(Protocol):
    """A connection that was asked for. Any thread may call its methods."""

    @property
    def terms(self) -> Terms | None:
        """None: as everybody's."""

    def came(self, connection: RdmaConnection) -> None:
        """Here it is, but for its peer's last word."""

    def refused(self, why: str) -> None:
        """It could not be had, or the last word did not come."""
