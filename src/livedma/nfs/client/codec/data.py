# SPDX-License-Identifier: BSD-2-Clause
"""Codes READ, WRITE and COMMIT."""

from __future__ import annotations

from dataclasses import dataclass

from livedma.nfs.client.operation import Operation, ReplyDecoder
from livedma.nfs.numbers import VERIFIER_BYTES, Op, Stable
from livedma.nfs.stateid import Stateid
from livedma.rpc.client import Buffer
from livedma.rpc.xdr import Encoder, XdrError

__all__ = ["ReadDone", "Written", "commit", "read", "write"]


@dataclass(frozen=True, slots=True)
class ReadDone:
    """Says how many bytes came, and whether the file ends behind them."""

    count: int
    is_end: bool


@dataclass(frozen=True, slots=True)
class Written:
    """Says how many bytes the server took, how safe they are, and its verifier, which a restart
    changes.
    """

    count: int
    stable: Stable
    verifier: bytes


def read(stateid: Stateid, offset: int, into: memoryview) -> Operation[ReadDone]:
    out = Encoder()
    stateid.encode(out)
    out.u64(offset)
    out.u32(len(into))

    def done(decoder: ReplyDecoder) -> ReadDone:
        is_end = decoder.boolean()
        return ReadDone(decoder.place(into), is_end)

    return Operation(Op.READ, bytes(out), done, into=into)


def write(stateid: Stateid, offset: int, data: Buffer, stable: Stable) -> Operation[Written]:
    out = Encoder()
    stateid.encode(out)
    out.u64(offset)
    out.enum(stable)

    def written(decoder: ReplyDecoder) -> Written:
        at = decoder.pos
        count, how = decoder.u32(), decoder.enum(Stable)
        if count > len(data):
            raise XdrError(f"{count} of {len(data)} bytes were written", at)
        if how < stable:
            raise XdrError(f"{how.name} instead of {stable.name}", at + 4)
        return Written(count, how, decoder.fixed(VERIFIER_BYTES))

    return Operation(Op.WRITE, bytes(out), written, data=data)


def commit(offset: int = 0, count: int = 0) -> Operation[bytes]:
    """Returns a COMMIT of the current file, by default all of it; its result is the verifier."""
    out = Encoder()
    out.u64(offset)
    out.u32(count)
    return Operation(Op.COMMIT, bytes(out), lambda decoder: decoder.fixed(VERIFIER_BYTES))
