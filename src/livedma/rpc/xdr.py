# SPDX-License-Identifier: BSD-2-Clause
"""Decodes and encodes XDR (RFC 4506), for peers that are not trusted.

`Decoder` extends the cursor of `livedma.wire.xdr` with what a service needs beyond a look at a
capture: a count has to fit into the bytes that are left before anything is made for it, and strings
may have to be UTF-8. After an `XdrError` a decoder is of no further use. It ignores the value of
padding: it should be zero (RFC 4506, section 3), but some servers send what was there.

`Encoder` gathers bytes. What XDR cannot express (a number out of range, data above its maximum)
raises `XdrError`, too; `at` is then the length of what was encoded before.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable, Sequence
from typing import TypeVar

from livedma.wire.xdr import Malformed as XdrError
from livedma.wire.xdr import Reader

__all__ = ["Decoder", "Encoder", "XdrError"]

T = TypeVar("T")

WORD_BYTES = 4
_MOST = 0xFFFFFFFF
_WORDS = [struct.Struct(f">{count}I") for count in range(9)]


class Decoder(Reader):
    """Moves a cursor over `data[pos:]`; each method moves it past one item or raises `XdrError`."""

    def i32(self) -> int:
        """Reads a signed 32-bit integer."""
        value = self.u32()
        return value - (value >> 31 << 32)

    def i64(self) -> int:
        """Reads a signed 64-bit integer."""
        value = self.u64()
        return value - (value >> 63 << 64)

    def enum(self, kind: Callable[[int], T]) -> T:
        """Reads a member of `kind`, an IntEnum; a value that it does not have is an error."""
        start = self.pos
        value = self.i32()
        try:
            return kind(value)
        except ValueError as wrong:
            raise XdrError(str(wrong), start) from None

    def string(self, most: int = _MOST) -> str:
        """Reads a string of at most `most` bytes, which have to be UTF-8."""
        start = self.pos + WORD_BYTES
        try:
            return self.opaque(most).decode()
        except UnicodeDecodeError as wrong:
            raise XdrError("string is not UTF-8", start + wrong.start) from None

    def array(
        self, item: Callable[[Decoder], T], most: int = _MOST, item_bytes: int = WORD_BYTES
    ) -> list[T]:
        """Reads a count, at most `most`, and so many items, none shorter than `item_bytes`."""
        start = self.pos
        count = self.u32()
        if count > most:
            raise XdrError(f"count {count} is above {most}", start)
        if count > self.left // item_bytes:
            raise XdrError(f"{count} items cannot be in {self.left} bytes", start)
        return [item(self) for _ in range(count)]

    def optional(self, item: Callable[[Decoder], T]) -> T | None:
        """Reads an item that need not be there."""
        return item(self) if self.boolean() else None

    def chain(self, item: Callable[[Decoder], T], most: int = _MOST) -> list[T]:
        """Reads a linked list: items, each behind a true, up to a false; at most `most` of them."""
        ret: list[T] = []
        while self.boolean():
            if len(ret) == most:
                raise XdrError(f"list has more than {most} items", self.pos - WORD_BYTES)
            ret.append(item(self))
        return ret

    def finish(self) -> None:
        """Raises XdrError unless all bytes have been read."""
        if self.left:
            raise XdrError(f"{self.left} bytes too many", self.pos)


class Encoder:
    """Gathers bytes; `bytes(encoder)` are those so far."""

    def __init__(self) -> None:
        self._out = bytearray()

    def __len__(self) -> int:
        return len(self._out)

    def __bytes__(self) -> bytes:
        return bytes(self._out)

    def _integer(self, value: int, size: int, signed: bool) -> None:
        try:
            self._out += value.to_bytes(size, "big", signed=signed)
        except OverflowError:
            kind = "a signed" if signed else "an unsigned"
            raise XdrError(f"{value} is not {kind} {8 * size}-bit integer", len(self)) from None

    def u32(self, *values: int) -> None:
        """Appends unsigned 32-bit integers, one after the other."""
        try:
            self._out += _WORDS[len(values)].pack(*values)
        except (struct.error, IndexError):  # One of them is out of range, or they are many.
            for value in values:
                self._integer(value, 4, signed=False)

    def i32(self, value: int) -> None:
        """Appends a signed 32-bit integer, or an enum."""
        self._integer(value, 4, signed=True)

    enum = i32

    def u64(self, value: int) -> None:
        """Appends an unsigned 64-bit integer."""
        self._integer(value, 8, signed=False)

    def i64(self, value: int) -> None:
        """Appends a signed 64-bit integer."""
        self._integer(value, 8, signed=True)

    def boolean(self, value: bool) -> None:
        """Appends a bool."""
        self.u32(1 if value else 0)

    def raw(self, data: bytes | bytearray | memoryview) -> None:
        """Appends data that is XDR already."""
        if len(data) % WORD_BYTES:
            raise XdrError(f"{len(data)} bytes are no XDR", len(self))
        self._out += data

    def fixed(self, data: bytes | bytearray | memoryview, length: int) -> None:
        """Appends opaque data whose length both sides know, and zeros up to a multiple of four."""
        if len(data) != length:
            raise XdrError(f"{len(data)} bytes instead of {length}", len(self))
        self._out += data
        self._out += bytes(-length % WORD_BYTES)

    def opaque(self, data: bytes | bytearray | memoryview, most: int = _MOST) -> None:
        """Appends opaque data of variable length."""
        self._bounded("length", len(data), most)
        self.u32(len(data))
        self.fixed(data, len(data))

    def string(self, text: str, most: int = _MOST) -> None:
        """Appends a string as UTF-8, of at most `most` bytes."""
        try:
            self.opaque(text.encode(), most)
        except UnicodeEncodeError:
            raise XdrError("string cannot be UTF-8", len(self)) from None

    def array(
        self, items: Sequence[T], item: Callable[[Encoder, T], None], most: int = _MOST
    ) -> None:
        """Appends a count and so many items."""
        self._bounded("count", len(items), most)
        self.u32(len(items))
        for one in items:
            item(self, one)

    def optional(self, value: T | None, item: Callable[[Encoder, T], None]) -> None:
        """Appends an item that need not be there."""
        self.boolean(value is not None)
        if value is not None:
            item(self, value)

    def chain(self, items: Iterable[T], item: Callable[[Encoder, T], None]) -> None:
        """Appends a linked list."""
        for one in items:
            self.boolean(True)
            item(self, one)
        self.boolean(False)

    def _bounded(self, what: str, value: int, most: int) -> None:
        if value > most:
            raise XdrError(f"{what} {value} is above {most}", len(self))
