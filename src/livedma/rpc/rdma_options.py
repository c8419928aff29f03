# SPDX-License-Identifier: BSD-2-Clause
"""Defines the options by which a server of RPC-over-RDMA serves its connections."""

from __future__ import annotations

from dataclasses import dataclass, field

from livedma._native.storage import SPARE_RECEIVES
from livedma.rpc.rdma_memory import Kind, least_bytes
from livedma.rpc.rdma_terms import Terms

__all__ = ["Options"]

_LEAST_CREDITS = 4  # of a connection whose peer is to be refused a session


@dataclass(frozen=True, slots=True)
class Options:
    """Says how connections are served.

    `window_bytes`: the most memory that a connection may have, of which `mapped_bytes` (None: a
    quarter) are mapped at the start. `credits`: calls that a peer may have under way at the start;
    `credits_max`: what they may be raised to. `message_bytes`: the longest call for Python whose
    parts have to be fetched; `gathered_bytes`: what such calls of a connection may take together.
    `reserve`: data buffers of each connection that are kept back for control traffic; with them,
    one thread more serves nothing else. 0: there is no reserve at all.
    `kind`: of memory that connections get; each peer's address is a tenant.
    `stall_s`: a peer that takes no reply for so long is cut. `idle_s`: so is one that makes no call
    for so long, since it may be gone without a word; a live one connects again.
    """

    window_bytes: int = 64 << 20
    mapped_bytes: int | None = None
    buffer_bytes: int = 64 << 10
    inline_bytes: int = 4096
    credits: int = 64
    credits_max: int = 1024
    connections: int = 64
    workers: int = 4
    message_bytes: int = (1 << 20) + (64 << 10)
    gathered_bytes: int = 16 << 20
    reserve: int = 1
    kind: Kind = field(default_factory=Kind)
    stall_s: float = 60.0
    idle_s: float = 600.0
    remote_invalidation: bool = True
    spin_s: float = 50e-6

    def __post_init__(self) -> None:
        if not 1 <= self.credits <= self.credits_max:
            raise ValueError(f"credits are 1 to {self.credits_max}, not {self.credits}")

    @property
    def max_send(self) -> int:
        """Is the greatest number of requests that a queue pair takes at a time."""
        return _ring(2 * self.credits_max)

    @property
    def max_recv(self) -> int:
        return _ring(self.credits_max + SPARE_RECEIVES)

    @property
    def terms(self) -> Terms:
        """Says what a connection gets, unless it is `Expected` with terms of its own."""
        mapped_bytes = self.window_bytes // 4 if self.mapped_bytes is None else self.mapped_bytes
        return Terms(self.window_bytes, mapped_bytes, self.credits)

    @property
    def least_terms(self) -> Terms:
        """Says what a connection gets for which there is no memory: enough to refuse a session."""
        credits_ = min(self.credits, _LEAST_CREDITS)
        least = least_bytes(self.inline_bytes, self.buffer_bytes, credits_, self.reserve)
        return Terms(self.window_bytes, least, credits_)

    @property
    def first_bytes(self) -> int:
        """Counts the bytes that a connection maps when it begins."""
        return self.bytes_for(self.terms)

    def bytes_for(self, terms: Terms) -> int:
        """Returns what a connection with these terms maps when it begins."""
        granule = self.kind.granule
        least = least_bytes(
            self.inline_bytes, self.buffer_bytes, terms.credits, self.reserve, granule
        )
        return max(terms.mapped_bytes, least)

    @property
    def completions(self) -> int:
        """Is the greatest number of completions that one connection can have outstanding."""
        return self.max_send + self.max_recv


def _ring(least: int) -> int:
    """Returns the places of a ring: a power of two, and `least` or more."""
    return 1 << (least - 1).bit_length()
