# SPDX-License-Identifier: BSD-2-Clause
"""The bytes of RPC-over-RDMA headers, from what livedma.wire.rpcrdma decodes them to."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Any

from livedma.wire.rpcrdma import DONE, ERROR, MSGP, PROCS, Segment


def encode(header: dict[str, Any]) -> bytes:
    """The inverse of livedma.wire.rpcrdma.decode; absent lists count as empty."""
    name = header["proc"]
    proc = PROCS.index(name) if name in PROCS else int(name)
    out = [_words(header["xid"], header["version"], header["credits"], proc)]
    if proc == ERROR:
        name = header["rdma_error"]
        out.append(_words({"ERR_VERS": 1, "ERR_CHUNK": 2}[name]))
        if name == "ERR_VERS":
            out.append(_words(header["low"], header["high"]))
    elif proc != DONE:
        if proc == MSGP:
            out.append(_words(header["align"], header["thresh"]))
        for read in header.get("read_list", ()):
            out.append(_words(1, read["position"]) + _pack(read))
        out.append(_words(0))
        for chunk in header.get("write_list", ()):
            out.append(_words(1) + _pack_chunk(chunk))
        out.append(_words(0))
        reply = header.get("reply_chunk")
        out.append(_words(0) if reply is None else _words(1) + _pack_chunk(reply))
    return b"".join(out)


def _words(*values: int) -> bytes:
    return struct.pack(f">{len(values)}I", *values)


def _pack(segment: Segment) -> bytes:
    return struct.pack(">IIQ", segment["handle"], segment["length"], segment["offset"])


def _pack_chunk(chunk: Sequence[Segment]) -> bytes:
    return _words(len(chunk)) + b"".join(map(_pack, chunk))
