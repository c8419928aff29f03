"""XDR (RFC 4506) read from untrusted bytes: every step is checked against the end.

A reader never copies more than it was asked for and never moves past its end. Both failures
are `Malformed`; `Short`, its subclass, says that the bytes ended, which is no fault when only
the first packet of a message was captured.
"""

from __future__ import annotations

import struct

_U32 = struct.Struct(">I")
_U64 = struct.Struct(">Q")


class Malformed(ValueError):
    """Bytes that break the format. `what` is the reason, `at` the offset of the culprit."""

    def __init__(self, what: str, at: int) -> None:
        super().__init__(f"{what} at byte {at}")
        self.what = what
        self.at = at


class Short(Malformed):
    """The bytes end before the item that starts at `at` does."""


class Reader:
    """A cursor over `data[pos:end]`. Each method moves it past one item or raises.

    `pos` counts from the start of `data`, so that error offsets are payload offsets. A method
    that raises leaves `pos` where the item that failed starts.
    """

    __slots__ = ("data", "end", "pos")

    def __init__(self, data: bytes, pos: int = 0) -> None:
        self.data = data
        self.end = len(data)
        self.pos = pos

    @property
    def left(self) -> int:
        """Bytes not read yet."""
        return self.end - self.pos

    def u32(self) -> int:
        """An unsigned 32-bit integer (also enum and bool, if any value is to be let through)."""
        pos = self.pos
        if 4 > self.end - pos:
            raise Short("bytes end inside a 4-byte word", pos)
        self.pos = pos + 4
        return int(_U32.unpack_from(self.data, pos)[0])

    def u64(self) -> int:
        """An unsigned 64-bit integer."""
        pos = self.pos
        if 8 > self.end - pos:
            raise Short("bytes end inside an 8-byte word", pos)
        self.pos = pos + 8
        return int(_U64.unpack_from(self.data, pos)[0])

    def boolean(self) -> bool:
        """A bool; any word but 0 and 1 is malformed."""
        value = self.u32()
        if value > 1:
            raise Malformed(f"boolean is {value:#x}", self.pos - 4)
        return value == 1

    def fixed(self, length: int) -> bytes:
        """Opaque data of a fixed length, without its padding."""
        pos = self.pos
        self.skip(length)
        return self.data[pos : pos + length]

    def skip(self, length: int) -> None:
        """Move past `length` bytes and their padding to a multiple of four."""
        padded = length + (-length & 3)
        if padded > self.end - self.pos:
            raise Short(f"bytes end inside {length} bytes of data", self.pos)
        self.pos += padded

    def opaque(self, most: int = 0xFFFFFFFF) -> bytes:
        """Opaque data of variable length; a length word above `most` is malformed."""
        start = self.pos
        length = self.u32()
        if length > most:
            raise Malformed(f"length {length} is above {most}", start)
        try:
            return self.fixed(length)
        except Short:
            self.pos = start
            raise

    def text(self, most: int = 0xFFFFFFFF) -> str:
        """A string; bytes that are not UTF-8 show as escapes."""
        return self.opaque(most).decode("utf-8", "backslashreplace")
