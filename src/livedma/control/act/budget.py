"""How much DMA memory all connections of a server may have together."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from typing import Self

from livedma.control.plan import Room
from livedma.control.words import size
from livedma.errors import BudgetError
from livedma.nfs.service import NfsService

__all__ = ["HostBudget"]


class HostBudget:
    """limit_bytes: None means that there is no bound but the host's memory, which is found out by
    mapping it. It may change at any time: what is mapped stays.

    While it is open, it binds new connections as well: a client that opens many does not get around
    it. A context manager.
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
        limit_bytes = self.limit_bytes
        if limit_bytes is None:
            return Room(None)
        return Room(max(limit_bytes - self.mapped_bytes, 0))

    @contextmanager
    def taking(self, length: int) -> Iterator[None]:
        """Whoever is in here maps so many bytes, one at a time. BudgetError: they are not left."""
        limit_bytes = self.limit_bytes
        if limit_bytes is None:
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
