# SPDX-License-Identifier: BSD-2-Clause
"""Codes the operations on files that 4.2 adds: SEEK, ALLOCATE, DEALLOCATE, COPY."""

from __future__ import annotations

from dataclasses import dataclass

from livedma.nfs.client.operation import Operation, ReplyDecoder, nothing
from livedma.nfs.numbers import VERIFIER_BYTES, Op, Stable, Status
from livedma.nfs.stateid import Stateid
from livedma.rpc.xdr import Encoder, XdrError

__all__ = ["Copied", "allocate", "copy", "deallocate", "seek"]


def seek(stateid: Stateid, offset: int, *, hole: bool) -> Operation[int | None]:
    """Finds where the next hole, or data, begins; None if there is none up to the end."""
    out = Encoder()
    stateid.encode(out)
    out.u64(offset)
    out.u32(hole)

    def found(decoder: ReplyDecoder) -> int | None:
        is_end = decoder.boolean()
        at = decoder.u64()
        return None if is_end and not hole else at

    return Operation(Op.SEEK, bytes(out), found)


def allocate(stateid: Stateid, offset: int, length: int) -> Operation[None]:
    return _range(Op.ALLOCATE, stateid, offset, length)


def deallocate(stateid: Stateid, offset: int, length: int) -> Operation[None]:
    return _range(Op.DEALLOCATE, stateid, offset, length)


def _range(op: Op, stateid: Stateid, offset: int, length: int) -> Operation[None]:
    out = Encoder()
    stateid.encode(out)
    out.u64(offset)
    out.u64(length)
    return Operation(op, bytes(out), nothing)


@dataclass(frozen=True, slots=True)
class Copied:
    """Says how many bytes the server copied, how safe they are, and its verifier, which a restart
    changes.
    """

    count: int
    stable: Stable
    verifier: bytes


def copy(
    source: Stateid, target: Stateid, source_at: int, target_at: int, length: int
) -> Operation[Copied]:
    """Copies from the saved file to the current one on the same server; the reply ends the copy."""
    out = Encoder()
    source.encode(out)
    target.encode(out)
    out.u64(source_at)
    out.u64(target_at)
    out.u64(length)
    out.boolean(True)  # consecutive
    out.boolean(True)  # synchronous
    out.u32(0)  # no other server

    def copied(decoder: ReplyDecoder) -> Copied:
        at = decoder.pos
        if decoder.array(Stateid.decode, most=1, item_bytes=16):
            raise XdrError("a copy in the background, which was not asked for", at)
        at = decoder.pos
        count = decoder.u64()
        if length and count > length:
            raise XdrError(f"{count} of {length} bytes were copied", at)
        stable, verifier = decoder.enum(Stable), decoder.fixed(VERIFIER_BYTES)
        decoder.boolean()
        decoder.boolean()
        return Copied(count, stable, verifier)

    def failed(decoder: ReplyDecoder, status: Status, path: str) -> None:
        if status == Status.OFFLOAD_NO_REQS:
            decoder.boolean()
            decoder.boolean()

    return Operation(Op.COPY, bytes(out), copied, room=128, failed=failed)
