# SPDX-License-Identifier: BSD-2-Clause
"""Codes server-sent events, as the HTML standard defines them: the stream to views is made of
these."""

from __future__ import annotations

from collections.abc import Iterator

__all__ = ["KEEP_ALIVE", "MESSAGE_MOST", "TYPE", "Parser", "message"]

TYPE = "text/event-stream"
KEEP_ALIVE = b": still here\n\n"
MESSAGE_MOST = 64 << 20  #: bytes: more than ten thousand sessions take


def message(event: str, data: bytes) -> bytes:
    """Encodes a message; data: one line, as JSON is."""
    return b"event: %s\ndata: %s\n\n" % (event.encode(), data)


class Parser:
    """Parses a stream as it comes. Raises ValueError at a message longer than `most`."""

    def __init__(self, most: int = MESSAGE_MOST) -> None:
        self._most = most
        self._rest = bytearray()
        self._event = "message"
        self._data: list[bytes] = []
        self._size = 0

    def feed(self, chunk: bytes) -> Iterator[tuple[str, bytes]]:
        """Yields the messages that end in this chunk, each as its event and data."""
        *lines, rest = chunk.split(b"\n")
        if lines:
            lines[0] = bytes(self._rest) + lines[0]
            self._rest.clear()
        self._rest += rest
        for line in lines:
            yield from self._line(line.removesuffix(b"\r"))
        if len(self._rest) + self._size > self._most:
            raise ValueError(f"a message of more than {self._most} bytes")

    def _line(self, line: bytes) -> Iterator[tuple[str, bytes]]:
        if not line:
            if self._data:
                yield self._event, b"\n".join(self._data)
            self._event, self._data, self._size = "message", [], 0
            return
        name, _, value = line.partition(b":")
        value = value.removeprefix(b" ")
        if name == b"event":
            self._event = value.decode(errors="replace")
        elif name == b"data":
            self._data.append(value)
            self._size += len(value)
