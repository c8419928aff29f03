# SPDX-License-Identifier: BSD-2-Clause
"""Bounds the DMA memory of all connections of a server together."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from typing import Self

from livedma.control.policy.plan import Room
from livedma.control.words import size
from livedma.errors import BudgetError
from livedma.nfs.server.service import NfsService

__all__ = ["HostBudget"]


class HostBudget:
    """Bounds what the connections of a service have mapped. `limit_bytes` may change at
    any time, and what is mapped stays; None: the host's memory is the only bound, and mapping fails
    where it ends.

    It is a context manager. While it is open it binds whatever is mapped for connections, old and
    new, so neither a lever nor a client that opens many gets around it.
    """

    def __init__(self, service: NfsService, limit_bytes: int | None = None) -> None:
        self.limit_bytes = limit_bytes
        self._service = service
        self._lock = threading.Lock()

    def __enter__(self) -> Self:
        for server in self._service.rdma:
            server.admitting = self.taking
        return self

    def __exit__(self, *_: object) -> None:
        for server in self._service.rdma:
            server.admitting = lambda _: nullcontext()

    @property
    def mapped_bytes(self) -> int:
        return sum(
            connection.memory.window.linked
            for server in self._service.rdma
            for connection in server.connections
        )

    def room(self) -> Room:
        first_bytes = min((one.options.first_bytes for one in self._service.rdma), default=0)
        limit_bytes = self.limit_bytes
        if limit_bytes is None:
            return Room(None, first_bytes)
        return Room(max(limit_bytes - self.mapped_bytes, 0), first_bytes)

    @contextmanager
    def taking(self, length: int) -> Iterator[None]:
        """Holds the budget while one caller maps `length` bytes. Raises BudgetError if fewer are
        left.
        """
        limit_bytes = self.limit_bytes
        if limit_bytes is None or not length:
            yield
            return
        with self._lock:
            mapped = self.mapped_bytes
            if mapped + length > limit_bytes:
                raise BudgetError(
                    f"{size(length)} more would exceed the budget for DMA memory: {size(mapped)} "
                    f"of {size(limit_bytes)} are mapped"
                )
            yield
