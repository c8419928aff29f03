# SPDX-License-Identifier: BSD-2-Clause
"""Receive buffers that are mapped in different ways. Contracts: native/memory/mapped.h."""

from collections.abc import Sequence

from livedma._native.rdma import Engine, ProtectionDomain

class Mapped:
    """Maps the Receive buffers of one connection into a window: each by itself, in shards, all by
    one mapping, or each only while it is used.
    """

    def __init__(
        self,
        engine: Engine,
        buffers: int,
        buffer_size: int,
        mapping_size: int,
        *,
        pd: ProtectionDomain | None = None,
        piece_size: int = 0,
        per_use: bool = False,
    ) -> None:
        """Maps the buffers, those of a mapping together.

        piece_size: of the pieces in which a mapping's memory comes; 0: it is one piece. per_use: a
        buffer is mapped when it is taken. OSError: ENOSPC, ENOMEM, EINVAL.
        """
    def close(self) -> int:
        """Unmaps them; returns the nanoseconds of processor time that it took."""
    @property
    def address(self) -> int:
        """Is the lowest address of the memory in this process."""
    @property
    def length(self) -> int:
        """Counts the bytes of memory, in whole mappings."""
    @property
    def mappings(self) -> int:
        """Counts the mappings that were made so far."""
    @property
    def pieces(self) -> int:
        """Counts the pieces of memory that were mapped at first."""
    @property
    def memory_ns(self) -> int:
        """Is the processor time to find the memory and fill it with zeros."""
    @property
    def map_ns(self) -> int:
        """Is the processor time to map it, and to put its buffers into the pool."""

def receive(connections: Sequence[Mapped], data: bytes, messages: int) -> tuple[int, int]:
    """Receives messages with this content, without a wire, a batch on each connection in turn.

    Returns the nanoseconds of the host (buffers returned, taken and posted) and of the device
    (messages written). All connections are of one engine.
    """
