# SPDX-License-Identifier: BSD-2-Clause
"""Decodes NFS inside RPC: COMPOUND and CB_COMPOUND of NFSv4, the status of NFSv3 replies.

A COMPOUND gives `tag`, `minor` (calls only: replies do not carry it), `status` (replies), `ops`
(names), `op_status` (replies, one per operation whose status is there), `sequence` {`session`,
`slot`, `highest_slot`, `sequence_id`} and `session` where CREATE_SESSION, DESTROY_SESSION or
BIND_CONN_TO_SESSION tells it. If the bytes end early, the result has what was there and
`truncated`.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from typing import Any

from livedma.wire import nfs4, rpc
from livedma.wire.nfsstat import name3, name4
from livedma.wire.shapes import Compiler, Shape, skip
from livedma.wire.xdr import Malformed, Reader

_SEQUENCE = struct.Struct(">16sIII")
_TAG_MOST = 1024  # The protocol has no limit; Linux sends up to 12 bytes, servers refuse 1024.

# number: (name, arguments, results with the status)
Operations = dict[int, tuple[str, Shape, Shape]]


def _compiled(table: Mapping[int, tuple[str, str, str]]) -> Operations:
    compiler = Compiler(nfs4.TYPES)
    ret: Operations = {}
    for number, (name, arguments, results) in table.items():
        whole = results if results.startswith("{") else f"{{0: {results} | *:}}"
        ret[number] = name, compiler.compile(arguments), compiler.compile(whole)
    return ret


OPERATIONS = _compiled({op: (op.name, *shapes) for op, shapes in nfs4.OPERATIONS.items()})
CALLBACKS = _compiled({op: (f"CB_{op.name}", *shapes) for op, shapes in nfs4.CALLBACKS.items()})


class Chunks:
    """Tells which data items chunks carry in place of the inline message (RFC 8166 section 3.4).

    `start` is the payload offset of the RPC message, from which positions count. In a call, the
    read list names each item by the position that it would have in the XDR stream without
    reduction. In a reply, the chunks of the write list belong to the eligible results in order,
    and an unused one comes back with length 0 (RFC 8267 section 4.3).
    """

    def __init__(self, header: dict[str, Any], start: int, is_call: bool) -> None:
        self._start = start
        self._removed = 0
        self._positions = {read["position"] for read in header.get("read_list", ())}
        self._writes = list(reversed(header.get("write_list", ())))
        self._is_call = is_call

    def reduced(self, pos: int, length: int) -> bool:
        """Returns whether a chunk carries the item of `length` bytes that would start at `pos`."""
        if self._is_call:
            elsewhere = pos - self._start + self._removed in self._positions
            if elsewhere:
                self._removed += length + (-length & 3)
            return elsewhere
        chunk: Sequence[dict[str, int]] = self._writes.pop() if self._writes else ()
        return any(segment["length"] for segment in chunk)


def decode(
    reader: Reader,
    program: int,
    version: int,
    procedure: int,
    ret: dict[str, Any],
    chunks: Chunks,
) -> None:
    """Adds to `ret` what the arguments or results at `reader` say.

    `program`, `version` and `procedure` are the call's, with `rpc.NFS_CALLBACK` in place of the
    number that a client chose. `ret["type"]` tells a call from a reply. Does nothing for what is
    not NFS. Raises `Malformed`; then `ret` holds what came before.
    """
    is_call = ret["type"] == "call"
    if program == rpc.NFS and version == 4 and procedure == 1:
        _compound(reader, ret, OPERATIONS, is_call, chunks)
    elif program == rpc.NFS_CALLBACK and procedure == 1:
        _compound(reader, ret, CALLBACKS, is_call, chunks)
    elif program in (rpc.NFS, rpc.NFSACL) and version == 3 and procedure and not is_call:
        ret["status"] = name3(reader.u32())


def _compound(
    reader: Reader, ret: dict[str, Any], table: Operations, is_call: bool, chunks: Chunks
) -> None:
    if not is_call:
        ret["status"] = name4(reader.u32())
    ret["tag"] = reader.text(_TAG_MOST)
    if is_call:
        ret["minor"] = reader.u32()
        if table is CALLBACKS:
            ret["callback_ident"] = reader.u32()
    count = reader.u32()
    names: list[str] = []
    ret["ops"] = names
    if not is_call:
        ret["op_status"] = []
    for _ in range(count):
        at = reader.pos
        number = reader.u32()
        if number not in table:
            raise Malformed(f"NFSv4 operation {number}", at)
        name, arguments, results = table[number]
        names.append(name)
        if not is_call:
            status = reader.peek()
            ret["op_status"].append(name4(status))
        start = reader.pos if is_call else reader.pos + 4
        skip(reader, arguments if is_call else results, chunks.reduced)
        if is_call or status == 0:
            _note(name, reader, start, ret)


def _note(name: str, reader: Reader, start: int, ret: dict[str, Any]) -> None:
    """Keeps wanted fields of one operation, whose checked bytes are data[start : reader.pos]."""
    is_call = ret["type"] == "call"
    if name in ("SEQUENCE", "CB_SEQUENCE"):
        session, sequence, slot, highest = _SEQUENCE.unpack_from(reader.data, start)
        ret["sequence"] = {
            "session": session.hex(),
            "slot": slot,
            "highest_slot": highest,
            "sequence_id": sequence,
        }
    elif name in ("DESTROY_SESSION", "BIND_CONN_TO_SESSION") or (
        name == "CREATE_SESSION" and not is_call
    ):
        if reader.pos > start:
            ret["session"] = reader.data[start : start + 16].hex()
    elif name == "EXCHANGE_ID" and not is_call:
        ret["client_id"] = f"0x{reader.data[start : start + 8].hex()}"
    elif name == "CREATE_SESSION":
        ret["client_id"] = f"0x{reader.data[start : start + 8].hex()}"
        channel = Reader(reader.data, start + 16)
        for _ in range(2):
            channel.skip(24)
            channel.skip(4 * channel.u32())
        ret["callback_program"] = channel.u32()
    elif name == "SETCLIENTID" and is_call:
        client = Reader(reader.data, start + 8)
        client.opaque()
        ret["callback_program"] = client.u32()
