# SPDX-License-Identifier: BSD-2-Clause
"""Takes RPC messages out of a byte stream (RFC 5531 section 11).

A record is one or more fragments. Each has four bytes in front of it: its length, and in the
highest bit whether it is the record's last.
"""

from __future__ import annotations

__all__ = ["RecordError", "RecordSplitter"]

_LAST = 0x80000000
_HEADER_BYTES = 4
FRAGMENT_MOST = _LAST - 1


class RecordError(ValueError):
    """Reports that the stream breaks a limit, and nothing after it can be understood.

    `records`: those that the bytes fed last had completed before.
    """

    def __init__(self, what: str, records: list[bytes]) -> None:
        super().__init__(what)
        self.records = records


class RecordSplitter:
    """Splits a stream into its records.

    It never holds more than one unfinished record, of at most `record_bytes` in at most `fragments`
    pieces: a header that announces more is an error before any of it is kept.
    """

    def __init__(self, record_bytes: int, fragments: int = 64) -> None:
        self._record_most = record_bytes
        self._fragments_most = fragments
        self._header = bytearray()
        self._record = bytearray()
        self._fragments = 0
        self._missing = 0  # of the fragment that has begun
        self._is_last = False
        self._wrong: str | None = None

    @property
    def held_bytes(self) -> int:
        """Counts the bytes that are kept until their record is whole."""
        return len(self._header) + len(self._record)

    @property
    def is_between_records(self) -> bool:
        """Tells whether the stream may end here."""
        return not self._header and not self._fragments

    def feed(self, data: bytes | bytearray | memoryview) -> list[bytes]:
        """Returns the records that these bytes complete.

        Raises `RecordError`, and from then on at each call.
        """
        if self._wrong is not None:
            raise RecordError(self._wrong, [])
        records: list[bytes] = []
        view, pos = memoryview(data), 0
        while pos < len(view):
            if self._missing:
                part = view[pos : pos + self._missing]
                self._record += part
                self._missing -= len(part)
            else:
                part = view[pos : pos + _HEADER_BYTES - len(self._header)]
                self._header += part
                if len(self._header) == _HEADER_BYTES:
                    self._begin(records)
            pos += len(part)
            if self._is_last and not self._missing:
                records.append(bytes(self._record))
                self._record, self._fragments, self._is_last = bytearray(), 0, False
        return records

    def _begin(self, records: list[bytes]) -> None:
        word = int.from_bytes(self._header, "big")
        self._header.clear()
        length = word & ~_LAST
        self._fragments += 1
        if length > self._record_most - len(self._record):
            announced = len(self._record) + length
            self._wrong = f"a record of {announced} bytes is above {self._record_most}"
        elif self._fragments > self._fragments_most:
            self._wrong = f"a record of more than {self._fragments_most} fragments"
        if self._wrong is not None:
            self._record.clear()
            raise RecordError(self._wrong, records)
        self._missing, self._is_last = length, word >= _LAST
