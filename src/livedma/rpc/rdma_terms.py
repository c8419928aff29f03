# SPDX-License-Identifier: BSD-2-Clause
"""Describes what one connection gets, if that is not what all connections get."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from livedma.rpc.rdma_server import RdmaConnection

__all__ = ["Expected", "Terms", "larger_terms"]


@dataclass(frozen=True, slots=True)
class Terms:
    """Holds a connection's window, what of it is mapped at the start, and its credits then."""

    window_bytes: int
    mapped_bytes: int
    credits: int


def larger_terms(connection: RdmaConnection, mapped_bytes: int, credits_wanted: int) -> Terms:
    """Returns the terms of a connection that is to take another one's place. Its window is no
    smaller. Raises ValueError for memory or credits that no connection could have.
    """
    options, host_bytes = connection.options, _host_bytes()
    if not 0 < credits_wanted <= options.credits_max:
        raise ValueError(f"credits are 1 to {options.credits_max}, not {credits_wanted}")
    if not options.buffer_bytes <= mapped_bytes <= host_bytes:
        raise ValueError(
            f"a connection has {options.buffer_bytes} to {host_bytes} bytes here, "
            f"not {mapped_bytes}"
        )
    window_bytes = max(connection.memory.window.size, mapped_bytes)
    return Terms(window_bytes, mapped_bytes, credits_wanted)


def _host_bytes() -> int:
    return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")


class Expected(Protocol):
    """Follows a connection that the server asked for. Any thread may call its methods."""

    @property
    def terms(self) -> Terms | None:
        """Says what the connection gets. None: the same as all others."""

    def came(self, connection: RdmaConnection) -> None:
        """Learns that the connection was made; its peer has yet to confirm it."""

    def refused(self, why: str) -> None:
        """Learns that the connection could not be made, or that its peer did not confirm it."""
