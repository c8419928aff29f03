# SPDX-License-Identifier: BSD-2-Clause
"""Codes the operations on extended attributes (RFC 8276): GETXATTR, SETXATTR, LISTXATTRS,
REMOVEXATTR."""

from __future__ import annotations

from dataclasses import dataclass

from livedma.nfs.client.codec.handle import encode_name
from livedma.nfs.client.operation import Operation, ReplyDecoder
from livedma.nfs.numbers import XATTR_MOST, Op, XattrOption
from livedma.rpc.xdr import Decoder, Encoder

__all__ = ["Names", "getxattr", "listxattrs", "removexattr", "setxattr"]

_NAME_MOST = 1024


def getxattr(name: str) -> Operation[bytes]:
    return Operation(
        Op.GETXATTR,
        encode_name(name),
        lambda decoder: decoder.opaque(XATTR_MOST),
        room=XATTR_MOST + 4,
    )


def setxattr(name: str, value: bytes, how: XattrOption) -> Operation[None]:
    out = Encoder()
    out.enum(how)
    out.raw(encode_name(name))
    out.opaque(value)
    return Operation(
        Op.SETXATTR,
        bytes(out),
        _changed,
        is_repeatable=how != XattrOption.CREATE,
        keeps_reply=True,
    )


def removexattr(name: str) -> Operation[None]:
    return Operation(
        Op.REMOVEXATTR, encode_name(name), _changed, is_repeatable=False, keeps_reply=True
    )


def _changed(decoder: ReplyDecoder) -> None:
    decoder.boolean()
    decoder.u64()
    decoder.u64()


@dataclass(frozen=True, slots=True)
class Names:
    """Holds a part of the names. cookie: where to go on behind it."""

    cookie: int
    names: list[str]
    is_last: bool


def listxattrs(cookie: int, reply_bytes: int) -> Operation[Names]:
    out = Encoder()
    out.u64(cookie)
    out.u32(reply_bytes)

    def decode(decoder: ReplyDecoder) -> Names:
        return Names(decoder.u64(), decoder.array(_name), decoder.boolean())

    return Operation(Op.LISTXATTRS, bytes(out), decode, room=reply_bytes + 24)


def _name(decoder: Decoder) -> str:
    return decoder.opaque(_NAME_MOST).decode(errors="surrogateescape")
