# SPDX-License-Identifier: BSD-2-Clause
"""Chunks of RPC-over-RDMA: remote memory that carries parts of an RPC message (RFC 8166, 3.4).

A *reduced* message lacks the data that is moved by chunks. A read chunk's position says where in
the whole message its data belongs; `layout` puts the pieces in order. A responder tells by the
lengths of the segments it returns how much it has written: `filled` makes them, `filled_bytes`
checks them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from livedma.rpc.xdr import XdrError

__all__ = [
    "Inline",
    "Padding",
    "ReadChunk",
    "Segment",
    "filled",
    "filled_bytes",
    "layout",
    "position_error",
]


@dataclass(frozen=True, slots=True)
class Segment:
    """A range of the requester's memory: the key, how many bytes, from which address."""

    handle: int
    length: int
    offset: int


@dataclass(frozen=True, slots=True)
class ReadChunk:
    """Data that the responder fetches, and where in the message it belongs."""

    position: int
    segments: tuple[Segment, ...]

    @property
    def length_bytes(self) -> int:
        """The bytes of all segments."""
        return sum(segment.length for segment in self.segments)


@dataclass(frozen=True, slots=True)
class Inline:
    """Bytes `start` to `end` of the reduced message."""

    start: int
    end: int


@dataclass(frozen=True, slots=True)
class Padding:
    """Zeros that XDR wants behind a chunk, and that a chunk need not carry (section 3.4.5)."""

    length: int


def position_error(reads: Sequence[ReadChunk]) -> str | None:
    """What is wrong with the positions of read chunks, whatever the message is like.

    They have to be in order. All data starts at a multiple of four, and behind the data of the
    chunk before; only the chunk at position 0, which is the reduced message itself, has others
    in it.
    """
    end = 0
    for before, chunk in zip((None, *reads), reads, strict=False):
        if chunk.position % 4:
            return f"read chunk at position {chunk.position}, which XDR does not have"
        if before is not None and chunk.position == before.position:
            return f"two read chunks at position {chunk.position}"
        if end > chunk.position:
            return f"read chunk at position {chunk.position} overlaps the one before"
        if not chunk.segments:
            return f"read chunk at position {chunk.position} without segments"
        if chunk.position:
            end = chunk.position + chunk.length_bytes
    return None


def layout(
    reads: Sequence[ReadChunk], reduced_bytes: int
) -> tuple[Inline | ReadChunk | Padding, ...]:
    """The pieces of a whole message in their order.

    `reads`: read chunks in the order of their positions, without the one at position 0;
    `reduced_bytes`: the length of what is inline, or came by the chunk at position 0. `XdrError`
    if a position is beyond the message.
    """
    wrong = position_error(reads)
    if wrong:
        raise XdrError(wrong, 0)
    pieces: list[Inline | ReadChunk | Padding] = []
    used = end = 0  # of the reduced message; of the whole one
    for chunk in reads:
        wanted = chunk.position - end
        if wanted > reduced_bytes - used:
            raise XdrError(f"read chunk at position {chunk.position} of a shorter message", 0)
        if wanted:
            pieces.append(Inline(used, used + wanted))
        used += wanted
        length = chunk.length_bytes
        pieces.append(chunk)
        if length % 4:
            pieces.append(Padding(-length % 4))
        end = chunk.position + length + -length % 4
    if reduced_bytes > used:
        pieces.append(Inline(used, reduced_bytes))
    return tuple(pieces)


def filled(offered: Sequence[Segment], length: int) -> tuple[Segment, ...]:
    """The chunk to return when `length` bytes were written to it: segments are used in order, and
    those that were not needed have length 0. `XdrError` if it has not so much room.
    """
    ret = []
    left = length
    for segment in offered:
        used = min(left, segment.length)
        ret.append(Segment(segment.handle, used, segment.offset))
        left -= used
    if left:
        raise XdrError(f"chunk has no room for {left} of {length} bytes", 0)
    return tuple(ret)


def filled_bytes(offered: Sequence[Segment], returned: Sequence[Segment]) -> int:
    """How many bytes a responder says it has written to a chunk; `XdrError` if that cannot be."""
    length = sum(segment.length for segment in returned)
    if tuple(returned) != filled(offered, length):
        raise XdrError("returned chunk is not the one that was offered, filled in order", 0)
    return length
