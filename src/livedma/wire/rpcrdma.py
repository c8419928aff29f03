# SPDX-License-Identifier: BSD-2-Clause
"""Reads RPC-over-RDMA version 1 (RFC 8166): the header in front of each RPC message.

`decode` gives `xid`, `version`, `credits`, `proc` and, by procedure:

* RDMA_MSG, RDMA_NOMSG, RDMA_MSGP: `read_list` (segments with `position`, `handle`, `length`,
  `offset`), `write_list` (chunks, each a list of segments without position) and, only if there
  is one, `reply_chunk` (a list of segments); RDMA_MSGP adds `align` and `thresh`.
* RDMA_ERROR: `rdma_error` ("ERR_VERS" with `low` and `high`, or "ERR_CHUNK").

A procedure or error without a name is shown as its number in decimal.
"""

from __future__ import annotations

import struct
from typing import Any

from livedma.wire.xdr import Malformed, Reader

VERSION = 1
MSG, NOMSG, MSGP, DONE, ERROR = range(5)
PROCS = ("RDMA_MSG", "RDMA_NOMSG", "RDMA_MSGP", "RDMA_DONE", "RDMA_ERROR")
ERRORS = {1: "ERR_VERS", 2: "ERR_CHUNK"}

_SEGMENT = struct.Struct(">IIQ")

Segment = dict[str, int]


def decode(reader: Reader, ret: dict[str, Any]) -> None:
    """Reads one header into `ret`, and leaves `reader` at the RPC message behind it.

    Raises `Malformed` (`Short` if the bytes end early); then `ret` holds what came before. The
    cost is linear in the number of bytes, whatever the counts in them claim.
    """
    ret["xid"] = reader.u32()
    ret["version"] = version = reader.u32()
    ret["credits"] = reader.u32()
    proc = reader.u32()
    ret["proc"] = PROCS[proc] if proc < len(PROCS) else str(proc)
    if version != VERSION and proc != ERROR:
        raise Malformed(f"RPC-over-RDMA version {version}", 4)
    if proc > ERROR:
        raise Malformed(f"RPC-over-RDMA procedure {proc}", 12)
    if proc == ERROR:
        _error(reader, ret)
    elif proc != DONE:
        if proc == MSGP:
            ret["align"] = reader.u32()
            ret["thresh"] = reader.u32()
        _lists(reader, ret)


def _error(reader: Reader, ret: dict[str, Any]) -> None:
    code = reader.u32()
    ret["rdma_error"] = ERRORS.get(code, str(code))
    if code == 1:
        ret["low"] = reader.u32()
        ret["high"] = reader.u32()
    elif code not in ERRORS:
        raise Malformed(f"RPC-over-RDMA error {code}", reader.pos - 4)


def _lists(reader: Reader, ret: dict[str, Any]) -> None:
    reads: list[Segment] = []
    ret["read_list"] = reads
    while reader.boolean():
        position = reader.u32()
        reads.append({"position": position, **_segment(reader)})
    writes: list[list[Segment]] = []
    ret["write_list"] = writes
    while reader.boolean():
        writes.append(_chunk(reader))
    if reader.boolean():
        ret["reply_chunk"] = _chunk(reader)


def _chunk(reader: Reader) -> list[Segment]:
    # A segment is made only after its bytes are read, so a false count costs no more than them.
    return [_segment(reader) for _ in range(reader.u32())]


def _segment(reader: Reader) -> Segment:
    handle, length, offset = _SEGMENT.unpack(reader.fixed(_SEGMENT.size))
    return {"handle": handle, "length": length, "offset": offset}
