# SPDX-License-Identifier: BSD-2-Clause
"""Encodes a reply that may hold data to be placed directly."""

from __future__ import annotations

from livedma.rpc.service import Data, Part
from livedma.rpc.xdr import WORD_BYTES, Encoder

__all__ = ["ReplyEncoder"]


class ReplyEncoder(Encoder):
    """Encodes a reply that can contain, once, data that is moved instead of copied."""

    def __init__(self) -> None:
        super().__init__()
        self._data: bytes | bytearray | memoryview | None = None
        self._at = 0

    @property
    def size(self) -> int:
        """Returns the bytes that the reply so far takes on a stream."""
        placed = 0 if self._data is None else len(self._data) + -len(self._data) % WORD_BYTES
        return len(self) + placed

    def data(self, data: bytes | bytearray | memoryview) -> None:
        """Adds opaque data of variable length; only the first data is not copied."""
        if self._data is not None:
            self.opaque(data)
            return
        self.u32(len(data))
        self._data, self._at = data, len(self)

    def rewind(self, length: int) -> None:
        """Takes back what was encoded since `len(self)` was `length`."""
        del self._out[length:]
        if self._data is not None and self._at > length:
            self._data = None

    def parts(self) -> list[Part]:
        """Returns what was encoded, in order."""
        whole = bytes(self)
        if self._data is None:
            return [whole]
        return [whole[: self._at], Data(self._data), whole[self._at :]]

    def flat(self) -> bytes:
        """Returns what was encoded, as on a stream."""
        whole = bytes(self)
        if self._data is None:
            return whole
        padding = bytes(-len(self._data) % WORD_BYTES)
        return b"".join((whole[: self._at], self._data, padding, whole[self._at :]))
