# SPDX-License-Identifier: BSD-2-Clause
"""Codes GETATTR, SETATTR, and fattr4 both ways."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Literal

from livedma.nfs.bitmap import bits, decode_bitmap, encode_bitmap
from livedma.nfs.client.operation import Operation, ReplyDecoder
from livedma.nfs.numbers import OPAQUE_MOST, Attribute, FileType, Op, Status, TimeHow
from livedma.nfs.stateid import Stateid
from livedma.rpc.xdr import Decoder, Encoder, XdrError

__all__ = [
    "Values",
    "decode_attributes",
    "encode_attributes",
    "getattr_of",
    "setattr_of",
]

Values = Mapping[Attribute, Any]
Time = int | Literal["now"]  # nanoseconds since 1970, or the server's clock

_ATTRIBUTES_MOST = 65536
_NS = 1_000_000_000


def _time(decoder: Decoder) -> int:
    seconds, fraction = decoder.i64(), decoder.u32()
    if fraction >= _NS:
        raise XdrError(f"{fraction} nanoseconds of a second", decoder.pos - 4)
    return seconds * _NS + fraction


def _encode_time(out: Encoder, value: Time) -> None:
    if value == "now":
        out.enum(TimeHow.SERVER)
        return
    out.enum(TimeHow.CLIENT)
    out.i64(value // _NS)
    out.u32(value % _NS)


def _pair(one: Callable[[Decoder], int]) -> Callable[[Decoder], tuple[int, int]]:
    return lambda decoder: (one(decoder), one(decoder))


def _owner(decoder: Decoder) -> str:
    return decoder.opaque(OPAQUE_MOST).decode(errors="surrogateescape")


_DECODERS: dict[int, Callable[[Decoder], Any]] = {
    Attribute.SUPPORTED_ATTRS: decode_bitmap,
    Attribute.TYPE: lambda decoder: decoder.enum(FileType),
    Attribute.CHANGE: Decoder.u64,
    Attribute.SIZE: Decoder.u64,
    Attribute.FSID: _pair(Decoder.u64),
    Attribute.LEASE_TIME: Decoder.u32,
    Attribute.RDATTR_ERROR: lambda decoder: decoder.enum(Status),
    Attribute.FILEHANDLE: lambda decoder: decoder.opaque(128),
    Attribute.FILEID: Decoder.u64,
    Attribute.FILES_AVAIL: Decoder.u64,
    Attribute.FILES_FREE: Decoder.u64,
    Attribute.FILES_TOTAL: Decoder.u64,
    Attribute.MAXFILESIZE: Decoder.u64,
    Attribute.MAXLINK: Decoder.u32,
    Attribute.MAXNAME: Decoder.u32,
    Attribute.MAXREAD: Decoder.u64,
    Attribute.MAXWRITE: Decoder.u64,
    Attribute.MODE: Decoder.u32,
    Attribute.NUMLINKS: Decoder.u32,
    Attribute.OWNER: _owner,
    Attribute.OWNER_GROUP: _owner,
    Attribute.RAWDEV: _pair(Decoder.u32),
    Attribute.SPACE_AVAIL: Decoder.u64,
    Attribute.SPACE_FREE: Decoder.u64,
    Attribute.SPACE_TOTAL: Decoder.u64,
    Attribute.SPACE_USED: Decoder.u64,
    Attribute.TIME_ACCESS: _time,
    Attribute.TIME_METADATA: _time,
    Attribute.TIME_MODIFY: _time,
    Attribute.MOUNTED_ON_FILEID: Decoder.u64,
    Attribute.SUPPATTR_EXCLCREAT: decode_bitmap,
    Attribute.XATTR_SUPPORT: Decoder.boolean,
}

_ENCODERS: dict[Attribute, Callable[[Encoder, Any], None]] = {
    Attribute.SIZE: Encoder.u64,
    Attribute.MODE: lambda out, value: out.u32(value),
    Attribute.OWNER: lambda out, value: out.opaque(value.encode(errors="surrogateescape")),
    Attribute.OWNER_GROUP: lambda out, value: out.opaque(value.encode(errors="surrogateescape")),
    Attribute.TIME_ACCESS_SET: _encode_time,
    Attribute.TIME_MODIFY_SET: _encode_time,
}


def decode_attributes(decoder: Decoder) -> dict[Attribute, Any]:
    """Decodes a fattr4; an attribute that is not known, so was not asked for, is an error."""
    numbers = decode_bitmap(decoder)
    start = decoder.pos + 4
    inner = Decoder(decoder.opaque(_ATTRIBUTES_MOST))
    values = {}
    try:
        for number in (one for one in range(numbers.bit_length()) if numbers >> one & 1):
            if number not in _DECODERS:
                raise XdrError(f"attribute {number} was not asked for", inner.pos)
            values[Attribute(number)] = _DECODERS[number](inner)
        inner.finish()
    except XdrError as wrong:
        raise XdrError(wrong.what, start + wrong.at) from None
    return values


def encode_attributes(out: Encoder, values: Values) -> None:
    out.raw(encode_bitmap(bits(*values)))
    inner = Encoder()
    for number in sorted(values):
        _ENCODERS[number](inner, values[number])
    out.opaque(bytes(inner))


def getattr_of(wanted: Iterable[Attribute]) -> Operation[dict[Attribute, Any]]:
    return Operation(Op.GETATTR, encode_bitmap(bits(*wanted)), decode_attributes, room=4096)


def setattr_of(stateid: Stateid, values: Values) -> Operation[int]:
    """Returns a SETATTR, whose result is the bitmap of the attributes that were set."""
    out = Encoder()
    stateid.encode(out)
    encode_attributes(out, values)

    def failed(decoder: ReplyDecoder, status: Status, path: str) -> None:
        decode_bitmap(decoder)  # what had been set before it failed

    return Operation(Op.SETATTR, bytes(out), decode_bitmap, failed=failed)
