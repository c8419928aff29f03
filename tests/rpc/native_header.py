# SPDX-License-Identifier: BSD-2-Clause
"""Headers of RPC-over-RDMA as `native/rpc/rpcrdma.c` reads and writes them.

The package has no binding for that file, so this module compiles it into a library of its own.
"""

from __future__ import annotations

import ctypes
import subprocess
import tempfile
from collections.abc import Iterator
from functools import cache
from itertools import islice
from pathlib import Path

_HERE = Path(__file__).parent
_NATIVE = _HERE.parents[1] / "native"
_NUMBERS = 11 + 2 * (16 + 16 + 1) + 3 * 256  # fields; each chunk's position and count; segments
_MOST_BYTES = 28 + 4 * _NUMBERS  # no header is longer

_Chunk = tuple[tuple[int, int, int], ...]


@cache
def _library() -> ctypes.CDLL:
    with tempfile.TemporaryDirectory() as folder:
        path = f"{folder}/native_header.so"
        sources = [_HERE / "native_header.c", _NATIVE / "rpc" / "rpcrdma.c"]
        options = ["-shared", "-fPIC", "-O1", "-D_GNU_SOURCE", f"-I{_NATIVE}"]
        subprocess.run(["cc", *options, "-o", path, *sources], check=True)
        library = ctypes.CDLL(path)
    library.header_size.restype = ctypes.c_size_t
    return library


class NativeHeader:
    """One header; segments are (handle, length, offset).

    `error` is 0, or what a responder answers: ERR_VERS or ERR_CHUNK.
    """

    def __init__(self, data: bytes, chunks: int, segments: int, list_bytes: int) -> None:
        library = _library()
        self._data = data
        self._c = ctypes.create_string_buffer(library.header_size())
        limits = ctypes.c_uint32(chunks), ctypes.c_uint32(segments), ctypes.c_uint64(list_bytes)
        self.error: int = library.header_decode(self._c, data, len(data), *limits)
        if self.error:
            return
        numbers = (ctypes.c_uint64 * _NUMBERS)()
        library.header_numbers(self._c, numbers)
        left = iter(numbers)
        self.fields = tuple(islice(left, 5))
        """xid, version, credits, proc, bytes of the header."""
        code, *versions = islice(left, 3)
        self.rdma_error = code, tuple(versions) if code == 1 else None
        """Of an RDMA_ERROR: its code, and the versions with ERR_VERS."""
        reads, writes, has_reply = islice(left, 3)
        self.reads = tuple(_chunk(left) for _ in range(reads))
        self.writes = tuple(_chunk(left)[1] for _ in range(writes))
        self.reply = _chunk(left)[1] if has_reply else None

    @property
    def only_handle(self) -> int:
        return int(_library().ldma_rpcrdma_only_handle(self._c)) & 0xFFFFFFFF

    def encode(self) -> bytes:
        """Its bytes, made anew."""
        out = ctypes.create_string_buffer(_MOST_BYTES)
        _library().ldma_rpcrdma_encode(self._c, out)
        return out[: _library().ldma_rpcrdma_bytes(self._c)]

    def encode_reply(self, granted: int, data_bytes: int, reply_bytes: int | None = None) -> bytes:
        """The header of a reply to it; reply_bytes: by the reply chunk."""
        is_long = ctypes.c_bool(reply_bytes is not None)
        written, replied = ctypes.c_uint64(data_bytes), ctypes.c_uint64(reply_bytes or 0)
        out = ctypes.create_string_buffer(_MOST_BYTES)
        _library().ldma_rpcrdma_encode_reply(self._c, granted, written, is_long, replied, out)
        return out[: _library().ldma_rpcrdma_reply_bytes(self._c, is_long)]

    def encode_error(self, granted: int) -> bytes | None:
        """How the error is answered; None: not at all."""
        if not _library().ldma_rpcrdma_is_answered(self._data, len(self._data)) & 0xFF:
            return None
        out = ctypes.create_string_buffer(28)
        length = _library().ldma_rpcrdma_encode_error(self._data, granted, self.error, out)
        return out[:length]


def _chunk(left: Iterator[int]) -> tuple[int, _Chunk]:
    """The next chunk: its position and its segments."""
    position, count = islice(left, 2)
    segments = []
    for _ in range(count):
        handle, length, offset = islice(left, 3)
        segments.append((handle, length, offset))
    return position, tuple(segments)
