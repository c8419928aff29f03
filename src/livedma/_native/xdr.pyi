# SPDX-License-Identifier: BSD-2-Clause
class Malformed(ValueError):
    """Reports bytes that break the format. `what` is the reason, `at` the offset of the first wrong
    byte.
    """

    what: str
    at: int
    def __init__(self, what: str, at: int) -> None: ...

class Short(Malformed):
    """Reports that the bytes end before the item that starts at `at` does."""

class Reader:
    """Moves a cursor over `data[pos:]`. Each method moves it past one item or raises.

    `pos` counts from the start of `data`, so that error offsets are payload offsets. A method that
    raises leaves `pos` where the item that failed starts.
    """

    def __init__(self, data: bytes, pos: int = 0) -> None: ...
    @property
    def data(self) -> bytes:
        """Holds the bytes that it reads."""
    @property
    def end(self) -> int:
        """Is the offset behind the last byte."""
    @property
    def pos(self) -> int:
        """Is the offset of the next item."""
    @property
    def left(self) -> int:
        """Counts the bytes that are not read yet."""
    def u32(self) -> int:
        """Reads an unsigned 32-bit integer (also an enum or a bool, if any value is allowed)."""
    def peek(self) -> int:
        """Returns the unsigned 32-bit integer that u32 would read, without moving."""
    def u64(self) -> int:
        """Reads an unsigned 64-bit integer."""
    def boolean(self) -> bool:
        """Reads a bool; any word but 0 and 1 is malformed."""
    def fixed(self, length: int) -> bytes:
        """Reads opaque data of a fixed length, without its padding."""
    def skip(self, length: int) -> None:
        """Moves past `length` bytes and their padding to a multiple of four."""
    def opaque(self, most: int = 0xFFFFFFFF) -> bytes:
        """Reads opaque data of variable length; a length word above `most` is malformed."""
    def text(self, most: int = 0xFFFFFFFF) -> str:
        """Reads a string; bytes that are not UTF-8 become escapes."""
