# SPDX-License-Identifier: BSD-2-Clause
"""Shows where in its window a connection's memory is, and how much of it is in use."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Literal

from livedma.control.show.frame import Part, WindowMap
from livedma.memory import Pool
from livedma.nfs.server.service import NfsService
from livedma.rpc.rdma_server import RdmaConnection

__all__ = ["windows"]


def windows(service: NfsService) -> tuple[WindowMap, ...]:
    """Returns the windows of all connections over RDMA, as they are now."""
    return tuple(_windows(service))


def _windows(service: NfsService) -> Iterator[WindowMap]:
    for server in service.rdma:
        for connection in server.connections:
            with contextlib.suppress(ValueError):  # the connection ends; its pools are closed
                if connection.endpoint is not None:
                    yield _window(connection)


def _window(connection: RdmaConnection) -> WindowMap:
    memory = connection.memory
    parts = [
        *_parts(memory.receive_pool, memory.window.va, "calls"),
        *_parts(memory.data_pool, memory.window.va, "data"),
    ]
    return WindowMap(
        connection=connection.number,
        bytes=memory.window.size,
        mapped_bytes=memory.window.linked,
        parts=tuple(sorted(parts, key=lambda part: part.offset)),
    )


def _parts(pool: Pool, begin: int, use: Literal["calls", "data"]) -> Iterator[Part]:
    for va, buffers, taken in pool.shards():
        yield Part(va - begin, buffers * pool.stride, use, buffers, taken)
