# SPDX-License-Identifier: BSD-2-Clause
"""Calls COMPOUND: an operation comes with the codec of its results."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from livedma.nfs.client.errors import OperationFailed
from livedma.nfs.numbers import Op, Status
from livedma.rpc.client import Buffer
from livedma.rpc.xdr import WORD_BYTES, Decoder, Encoder, XdrError

__all__ = [
    "Operation",
    "Outcome",
    "ReplyDecoder",
    "Results",
    "decode_results",
    "encode_compound",
    "nothing",
    "reply_room",
]

T = TypeVar("T")

_TAG_MOST = 1024
_HEAD_ROOM = 128  # the RPC header of a reply, and what COMPOUND has before its results


class ReplyDecoder(Decoder):
    """Decodes a reply, some of whose data may have been placed already."""

    placed: int | None = None

    def place(self, into: memoryview) -> int:
        """Puts opaque data into a buffer; returns how many bytes there are."""
        start = self.pos
        length = self.u32()
        if length > len(into):
            raise XdrError(f"{length} bytes of data, {len(into)} asked for", start)
        if self.placed is not None:
            if length != self.placed:
                raise XdrError(f"{length} bytes of data, {self.placed} placed", start)
            self.placed = None
            return length
        at = self.pos
        self.skip(length)  # it checks first: nothing is written if data is missing
        into[:length] = memoryview(self.data)[at : at + length]
        return length


def nothing(decoder: ReplyDecoder) -> None:
    """Decodes a result without a body."""


@dataclass(frozen=True, eq=False)
class Operation(Generic[T]):
    """Describes one operation of a COMPOUND.

    data: the last argument, opaque data; `arguments` contain neither it nor its length. into: where
    data of the result goes. room: the most bytes of the result, without such data. failed: decodes
    what follows an error, and may raise a better `OperationFailed`. is_repeatable: executing it
    twice does no harm. keeps_reply: the server should keep its reply, as for a change of state.
    """

    op: Op
    arguments: bytes
    decode: Callable[[ReplyDecoder], T]
    room: int = 64
    data: Buffer | None = None
    into: memoryview | None = None
    failed: Callable[[ReplyDecoder, Status, str], None] | None = None
    is_repeatable: bool = True
    keeps_reply: bool = False


class Results:
    """Holds the results of a COMPOUND, by operation."""

    def __init__(self) -> None:
        self._values: dict[int, Any] = {}

    def __getitem__(self, operation: Operation[T]) -> T:
        value: T = self._values[id(operation)]
        return value

    def add(self, operation: Operation[T], value: T) -> None:
        self._values[id(operation)] = value


def encode_compound(
    minor: int, operations: Sequence[Operation[Any]]
) -> tuple[bytes, Buffer | None, int]:
    """Returns the arguments of COMPOUND, the data that they lack, and the position of that data."""
    out = Encoder()
    out.opaque(b"")
    out.u32(minor, len(operations))
    data: Buffer | None = None
    position = 0
    for operation in operations:
        out.enum(operation.op)
        out.raw(operation.arguments)
        if operation.data is None:
            continue
        out.u32(len(operation.data))
        if data is None:
            data, position = operation.data, len(out)
        else:
            out.fixed(operation.data, len(operation.data))
    return bytes(out), data, position


def reply_room(operations: Sequence[Operation[Any]]) -> int:
    """Returns the most bytes of the reply, without data that may be placed."""
    return _HEAD_ROOM + sum(2 * WORD_BYTES + operation.room for operation in operations)


@dataclass(frozen=True, slots=True)
class Outcome:
    """Holds the results of operations, up to the one that failed, if one failed."""

    results: Results
    status: Status = Status.OK
    failed_at: int = 0  # which operation failed
    error: OperationFailed | None = None


def decode_results(
    decoder: ReplyDecoder,
    operations: Sequence[Operation[Any]],
    path: str = "",
    *,
    only_first: bool = False,
) -> Outcome:
    """Decodes the outcome of a COMPOUND; `XdrError` if the reply is none to these operations.

    only_first: only the first result is decoded, whatever follows.
    """
    results = Results()
    status = _status(decoder)
    decoder.opaque(_TAG_MOST)
    start = decoder.pos
    count = decoder.u32()
    if only_first and count:
        return _first(decoder, operations[0], path)
    if count > len(operations):
        raise XdrError(f"{count} results for {len(operations)} operations", start)
    for index, operation in enumerate(operations[:count]):
        at = decoder.pos
        op = decoder.u32()
        if op != operation.op:
            raise XdrError(f"a result of operation {op} for {operation.op.name}", at)
        at = decoder.pos
        one = _status(decoder)
        is_last = index == count - 1
        if one == Status.OK:
            results.add(operation, operation.decode(decoder))
        if (one != status) if is_last else (one != Status.OK):
            raise XdrError(f"{one.name} within a COMPOUND of {status.name}", at)
        if one != Status.OK:
            error = _error(decoder, operation, one, path)
            return Outcome(results, one, index, error)
    _finish(decoder)
    if status != Status.OK:  # there is no result: the COMPOUND itself was refused
        if count:
            raise XdrError("an error without its operation", start)
        return Outcome(results, status, 0, OperationFailed(None, status, path))
    if count != len(operations):
        raise XdrError(f"{count} results for {len(operations)} operations", start)
    return Outcome(results)


def _first(decoder: ReplyDecoder, operation: Operation[Any], path: str) -> Outcome:
    at = decoder.pos
    if decoder.u32() != operation.op:
        raise XdrError(f"the first result is not one of {operation.op.name}", at)
    status = _status(decoder)
    results = Results()
    if status != Status.OK:
        return Outcome(results, status, 0, OperationFailed(operation.op, status, path))
    results.add(operation, operation.decode(decoder))
    return Outcome(results)


def _error(
    decoder: ReplyDecoder, operation: Operation[Any], status: Status, path: str
) -> OperationFailed:
    error = OperationFailed(operation.op, status, path)
    if operation.failed is not None:
        try:
            operation.failed(decoder, status, path)
        except OperationFailed as said:
            error = said
    _finish(decoder)
    return error


def _finish(decoder: ReplyDecoder) -> None:
    decoder.finish()
    if decoder.placed is not None:
        raise XdrError("data was placed, but no result has any", decoder.pos)


def _status(decoder: Decoder) -> Status:
    return decoder.enum(Status)
