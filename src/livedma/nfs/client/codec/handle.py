# SPDX-License-Identifier: BSD-2-Clause
"""Codes filehandles and names: PUTROOTFH, PUTFH, GETFH, LOOKUP, LOOKUPP, SAVEFH, ACCESS."""

from __future__ import annotations

from livedma.nfs.client.operation import Operation, ReplyDecoder, nothing
from livedma.nfs.numbers import HANDLE_MOST, Op
from livedma.rpc.xdr import Encoder

__all__ = [
    "access",
    "decode_name",
    "encode_name",
    "getfh",
    "lookup",
    "lookupp",
    "putfh",
    "putrootfh",
    "savefh",
]


def encode_name(name: str) -> bytes:
    """Encodes a name for the wire. Bytes that are no UTF-8 are kept, as `os.fsencode` does."""
    out = Encoder()
    out.opaque(name.encode(errors="surrogateescape"))
    return bytes(out)


def decode_name(decoder: ReplyDecoder, most: int = 4096) -> str:
    return decoder.opaque(most).decode(errors="surrogateescape")


def putrootfh() -> Operation[None]:
    return Operation(Op.PUTROOTFH, b"", nothing)


def putfh(handle: bytes) -> Operation[None]:
    out = Encoder()
    out.opaque(handle, HANDLE_MOST)
    return Operation(Op.PUTFH, bytes(out), nothing)


def getfh() -> Operation[bytes]:
    return Operation(Op.GETFH, b"", lambda decoder: decoder.opaque(HANDLE_MOST), room=192)


def lookup(name: str) -> Operation[None]:
    return Operation(Op.LOOKUP, encode_name(name), nothing)


def lookupp() -> Operation[None]:
    return Operation(Op.LOOKUPP, b"", nothing)


def savefh() -> Operation[None]:
    return Operation(Op.SAVEFH, b"", nothing)


def access(wanted: int) -> Operation[int]:
    """Asks which of the wanted rights the server grants."""

    def granted(decoder: ReplyDecoder) -> int:
        decoder.u32()  # which of them the server can tell
        return decoder.u32() & wanted

    return Operation(Op.ACCESS, wanted.to_bytes(4, "big"), granted)
