# SPDX-License-Identifier: BSD-2-Clause
"""Codes CREATE, REMOVE, RENAME, LINK, READLINK and READDIR."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from livedma.nfs.bitmap import bits, decode_bitmap, encode_bitmap
from livedma.nfs.client.codec.attribute import (
    Values,
    decode_attributes,
    encode_attributes,
)
from livedma.nfs.client.codec.handle import decode_name, encode_name
from livedma.nfs.client.operation import Operation, ReplyDecoder
from livedma.nfs.numbers import Attribute, FileType, Op
from livedma.rpc.xdr import Decoder, Encoder

__all__ = ["Page", "RawEntry", "create", "link", "readdir", "readlink", "remove", "rename"]

_PATH_MOST = 4096
_ENTRY_LEAST = 24  # bytes of XDR


def _changed(directories: int) -> Callable[[ReplyDecoder], None]:
    def decode(decoder: ReplyDecoder) -> None:
        for _ in range(directories):
            decoder.boolean()  # atomic
            decoder.u64()
            decoder.u64()

    return decode


def create(
    kind: FileType, name: str, values: Values, *, target: str = "", device: tuple[int, int] = (0, 0)
) -> Operation[None]:
    """Creates anything but an ordinary file. target: of a symbolic link."""
    out = Encoder()
    out.enum(kind)
    if kind == FileType.LNK:
        out.raw(encode_name(target))
    elif kind in (FileType.BLK, FileType.CHR):
        out.u32(*device)
    out.raw(encode_name(name))
    encode_attributes(out, values)

    def created(decoder: ReplyDecoder) -> None:
        _changed(1)(decoder)
        decode_bitmap(decoder)

    return _change(Op.CREATE, out, created)


def remove(name: str) -> Operation[None]:
    out = Encoder()
    out.raw(encode_name(name))
    return _change(Op.REMOVE, out, _changed(1))


def rename(old: str, new: str) -> Operation[None]:
    """Moves a name from the saved directory to the current one."""
    out = Encoder()
    out.raw(encode_name(old))
    out.raw(encode_name(new))
    return _change(Op.RENAME, out, _changed(2))


def link(name: str) -> Operation[None]:
    """Links the saved file into the current directory."""
    out = Encoder()
    out.raw(encode_name(name))
    return _change(Op.LINK, out, _changed(1))


def _change(op: Op, out: Encoder, decode: Callable[[ReplyDecoder], None]) -> Operation[None]:
    return Operation(op, bytes(out), decode, room=128, is_repeatable=False, keeps_reply=True)


def readlink() -> Operation[str]:
    return Operation(
        Op.READLINK, b"", lambda decoder: decode_name(decoder, _PATH_MOST), room=_PATH_MOST + 4
    )


@dataclass(frozen=True, slots=True)
class RawEntry:
    """Holds one entry of a directory. cookie: where to go on behind it."""

    cookie: int
    name: str
    values: dict[Attribute, Any]


@dataclass(frozen=True, slots=True)
class Page:
    """Holds a part of a directory."""

    verifier: bytes
    entries: list[RawEntry]
    is_last: bool


def readdir(
    cookie: int, verifier: bytes, reply_bytes: int, wanted: Iterable[Attribute]
) -> Operation[Page]:
    out = Encoder()
    out.u64(cookie)
    out.fixed(verifier, 8)
    out.u32(reply_bytes, reply_bytes)
    out.raw(encode_bitmap(bits(*wanted)))

    def decode(decoder: ReplyDecoder) -> Page:
        verifier = decoder.fixed(8)
        entries = decoder.chain(_entry, most=reply_bytes // _ENTRY_LEAST)
        return Page(verifier, entries, decoder.boolean())

    return Operation(Op.READDIR, bytes(out), decode, room=reply_bytes + 16)


def _entry(decoder: Decoder) -> RawEntry:
    cookie, name = decoder.u64(), decoder.opaque(4096).decode(errors="surrogateescape")
    return RawEntry(cookie, name, decode_attributes(decoder))
