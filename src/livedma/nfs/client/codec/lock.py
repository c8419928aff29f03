# SPDX-License-Identifier: BSD-2-Clause
"""Codes LOCK, LOCKT and LOCKU."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from livedma.nfs.client.errors import Conflict
from livedma.nfs.client.operation import Operation, ReplyDecoder, nothing
from livedma.nfs.numbers import OPAQUE_MOST, TO_THE_END, LockType, Op, Status
from livedma.nfs.stateid import Stateid
from livedma.rpc.xdr import Encoder

__all__ = ["LockOwner", "Range", "lock", "lock_first", "lockt", "locku"]


@dataclass(frozen=True, slots=True)
class Range:
    """Holds a range of a file's bytes, for reading or writing; a length of None goes to the end."""

    start: int
    length: int | None
    write: bool

    @property
    def end(self) -> int | None:
        return None if self.length is None else self.start + self.length

    def encode_bytes(self, out: Encoder) -> None:
        out.u64(self.start)
        out.u64(TO_THE_END if self.length is None else self.length)


@dataclass(frozen=True, slots=True)
class LockOwner:
    client_id: int
    owner: bytes

    def encode(self, out: Encoder) -> None:
        out.u64(self.client_id)
        out.opaque(self.owner, OPAQUE_MOST)


def lock_first(
    wanted: Range, open_stateid: Stateid, owner: LockOwner, *, waits: bool, reclaim: bool = False
) -> Operation[Stateid]:
    """Takes the first lock of an owner in an open."""
    out = _begin(wanted, waits, reclaim)
    out.boolean(True)
    out.u32(0)
    open_stateid.encode(out)
    out.u32(0)
    owner.encode(out)
    return _lock(out)


def lock(
    wanted: Range, stateid: Stateid, *, waits: bool, reclaim: bool = False
) -> Operation[Stateid]:
    """Takes another lock of an owner that has some."""
    out = _begin(wanted, waits, reclaim)
    out.boolean(False)
    stateid.encode(out)
    out.u32(0)
    return _lock(out)


def _begin(wanted: Range, waits: bool, reclaim: bool) -> Encoder:
    out = Encoder()
    # A server may serve clients in turn if they say that they wait.
    out.u32(_kind(wanted, waits))
    out.boolean(reclaim)
    wanted.encode_bytes(out)
    return out


def _kind(wanted: Range, waits: bool = False) -> LockType:
    if waits:
        return LockType.WRITE_WAITING if wanted.write else LockType.READ_WAITING
    return LockType.WRITE if wanted.write else LockType.READ


def _lock(out: Encoder) -> Operation[Stateid]:
    return Operation(
        Op.LOCK, bytes(out), Stateid.decode, room=1200, failed=_denied(Op.LOCK), keeps_reply=True
    )


def lockt(wanted: Range, owner: LockOwner) -> Operation[None]:
    """Raises `Conflict` if a lock of another owner is in the way."""
    out = Encoder()
    out.u32(_kind(wanted))
    wanted.encode_bytes(out)
    owner.encode(out)
    return Operation(Op.LOCKT, bytes(out), nothing, room=1200, failed=_denied(Op.LOCKT))


def locku(bytes_of: Range, stateid: Stateid) -> Operation[Stateid]:
    out = Encoder()
    out.u32(_kind(bytes_of), 0)
    stateid.encode(out)
    bytes_of.encode_bytes(out)
    return Operation(Op.LOCKU, bytes(out), Stateid.decode, keeps_reply=True)


def _denied(op: Op) -> Callable[[ReplyDecoder, Status, str], None]:
    def failed(decoder: ReplyDecoder, status: Status, path: str) -> None:
        if status != Status.DENIED:
            return
        start, length, kind = decoder.u64(), decoder.u64(), decoder.u32()
        decoder.u64()  # the other's client id
        owner = decoder.opaque(OPAQUE_MOST)
        is_write = kind in (LockType.WRITE, LockType.WRITE_WAITING)
        raise Conflict(op, path, start, None if length == TO_THE_END else length, is_write, owner)

    return failed
