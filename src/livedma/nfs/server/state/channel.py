# SPDX-License-Identifier: BSD-2-Clause
"""Negotiates the attributes of a session's channels, from what a client asks for (18.36)."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from livedma.nfs.numbers import NfsError, Status
from livedma.rpc.xdr import Decoder, Encoder

if TYPE_CHECKING:
    from livedma.nfs.server.config import Config

__all__ = [
    "COMPOUND_REPLY_BYTES",
    "RPC_REPLY_BYTES",
    "SEQUENCE_REPLY_BYTES",
    "ChannelAttributes",
    "negotiate_back",
    "negotiate_fore",
]

_RPC_CALL_BYTES = 40  # with AUTH_NONE
RPC_REPLY_BYTES = 24
COMPOUND_REPLY_BYTES = 12  # status, an empty tag, a count
SEQUENCE_REPLY_BYTES = 44
# What a COMPOUND of SEQUENCE alone takes: a channel with less can serve no request.
_REQUEST_LEAST = _RPC_CALL_BYTES + 12 + 36
_RESPONSE_LEAST = RPC_REPLY_BYTES + COMPOUND_REPLY_BYTES + SEQUENCE_REPLY_BYTES
# CB_COMPOUND of CB_SEQUENCE and CB_RECALL with the largest handle.
_BACK_REQUEST_LEAST = _RPC_CALL_BYTES + 16 + 44 + 156
_BACK_RESPONSE_LEAST = RPC_REPLY_BYTES + COMPOUND_REPLY_BYTES + 40 + 8
_BACK_OPERATIONS_LEAST = 2


@dataclass(frozen=True, slots=True)
class ChannelAttributes:
    """Holds channel_attrs4."""

    header_pad: int
    request_bytes: int
    response_bytes: int
    cached_bytes: int
    operations: int
    requests: int
    rdma_ird: tuple[int, ...] = ()

    @staticmethod
    def decode(decoder: Decoder) -> ChannelAttributes:
        """Decodes the attributes of a channel from the wire."""
        return ChannelAttributes(
            header_pad=decoder.u32(),
            request_bytes=decoder.u32(),
            response_bytes=decoder.u32(),
            cached_bytes=decoder.u32(),
            operations=decoder.u32(),
            requests=decoder.u32(),
            rdma_ird=tuple(decoder.array(Decoder.u32, most=1)),
        )

    def encode(self, out: Encoder) -> None:
        """Encodes them for the wire."""
        out.u32(self.header_pad, self.request_bytes, self.response_bytes, self.cached_bytes)
        out.u32(self.operations, self.requests)
        out.array(self.rdma_ird, Encoder.u32)


def negotiate_fore(asked: ChannelAttributes, config: Config, *, is_rdma: bool) -> ChannelAttributes:
    """Returns what the client gets; TOOSMALL if no request could be served."""
    if (
        asked.request_bytes < _REQUEST_LEAST
        or asked.response_bytes < _RESPONSE_LEAST
        or asked.operations < 1
    ):
        raise NfsError(Status.TOOSMALL)
    response_bytes = min(asked.response_bytes, config.response_bytes)
    return ChannelAttributes(
        header_pad=0,
        request_bytes=min(asked.request_bytes, config.request_bytes),
        response_bytes=response_bytes,
        cached_bytes=min(asked.cached_bytes, config.cached_bytes, response_bytes),
        operations=min(asked.operations, config.operations),
        requests=max(1, min(asked.requests, config.slots)),
        rdma_ird=tuple(min(ird, config.rdma_ird) for ird in asked.rdma_ird) if is_rdma else (),
    )


def negotiate_back(asked: ChannelAttributes) -> ChannelAttributes:
    """Does the same for the back channel, even if it is not used: clients learn of errors early."""
    if (
        asked.request_bytes < _BACK_REQUEST_LEAST
        or asked.response_bytes < _BACK_RESPONSE_LEAST
        or asked.operations < _BACK_OPERATIONS_LEAST
    ):
        raise NfsError(Status.TOOSMALL)
    return replace(asked, header_pad=0, cached_bytes=0, requests=1, rdma_ird=())
