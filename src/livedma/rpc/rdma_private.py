# SPDX-License-Identifier: BSD-2-Clause
"""Codes what both sides of RPC-over-RDMA version 1 tell each other when they connect (RFC 8797).

It is the private data of the connection manager's REQ and REP. A peer that sends none, or that of
another version, counts as having sent `DEFAULT`.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass

from livedma.wire.private import RPC_MAGIC

__all__ = ["DEFAULT", "PRIVATE_BYTES", "Inline", "PrivateData", "agree"]

_FORMAT = struct.Struct(">IBBBB")
PRIVATE_BYTES = _FORMAT.size  #: what follows them has other meanings
_VERSION = 1
_REMOTE_INVALIDATION = 1
UNIT_BYTES = 1024
MOST_BYTES = 256 * UNIT_BYTES


@dataclass(frozen=True, slots=True)
class PrivateData:
    """Holds one side's data: the most that it sends inline, what its Receives take, and whether the
    peer may invalidate its keys by SEND. Sizes are multiples of 1024, up to 256 KiB.
    """

    send_bytes: int = UNIT_BYTES
    receive_bytes: int = UNIT_BYTES
    remote_invalidation: bool = False

    def encode(self) -> bytes:
        """Returns the 8 bytes. Raises ValueError for sizes that they cannot express."""
        send, receive = _units(self.send_bytes), _units(self.receive_bytes)
        flags = _REMOTE_INVALIDATION if self.remote_invalidation else 0
        return _FORMAT.pack(RPC_MAGIC, _VERSION, flags, send, receive)

    @staticmethod
    def decode(data: bytes) -> PrivateData:
        """Decodes what a peer sent; never raises. Flags without a meaning are ignored."""
        if _FORMAT.size > len(data):
            return DEFAULT
        magic, version, flags, send, receive = _FORMAT.unpack_from(data)
        if (magic, version) != (RPC_MAGIC, _VERSION):
            return DEFAULT
        sizes = ((send + 1) * UNIT_BYTES, (receive + 1) * UNIT_BYTES)
        return PrivateData(*sizes, bool(flags & _REMOTE_INVALIDATION))


DEFAULT = PrivateData()  # RFC 8166 section 3.3


@dataclass(frozen=True, slots=True)
class Inline:
    """Holds the inline thresholds of one side of a connection, and whether it may invalidate."""

    send_bytes: int
    receive_bytes: int
    remote_invalidation: bool


def agree(own: PrivateData, peer: PrivateData) -> Inline:
    """Returns what both sides' data allow: no SEND is longer than its receiver takes; the peer's
    remote keys are invalidated only if both sides can do so.
    """
    return Inline(
        min(own.send_bytes, peer.receive_bytes),
        min(own.receive_bytes, peer.send_bytes),
        own.remote_invalidation and peer.remote_invalidation,
    )


def _units(size: int) -> int:
    if not 0 < size <= MOST_BYTES or size % UNIT_BYTES:
        raise ValueError(f"{size} is not a multiple of 1024 up to {MOST_BYTES}")
    return size // UNIT_BYTES - 1
