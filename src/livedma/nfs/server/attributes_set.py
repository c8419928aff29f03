# SPDX-License-Identifier: BSD-2-Clause
"""Attributes that clients send, to be set or to be compared."""

from __future__ import annotations

import grp
import pwd
from collections.abc import Callable

from livedma.nfs.bitmap import bits, decode_bitmap, encode_bitmap
from livedma.nfs.numbers import OPAQUE_MOST, Attribute, NfsError, Status, TimeHow
from livedma.nfs.server.attributes import (
    SETTABLE,
    WRITE_ONLY,
    Serving,
    encode_attributes,
    supported,
)
from livedma.nfs.server.store import NOW, Node, Settings
from livedma.rpc.xdr import Decoder

__all__ = ["bits_of", "decode_settings", "is_same"]

_ID_MOST = 0xFFFFFFFE  # the one above stands for "as it is"
_MODE_MOST = 0o7777
_SECOND_NS = 10**9


def decode_settings(
    decoder: Decoder, serving: Serving, minor: int, settable: int = SETTABLE
) -> Settings:
    """Decodes a fattr4 that is to be set; `settable` says what a file here can be given.

    Attributes that files here do not have are ATTRNOTSUPP. Those that cannot be set at all or in
    this operation are INVAL. Values that no file can have are INVAL, or BADOWNER.
    """
    wanted = decode_bitmap(decoder)
    values = Decoder(decoder.opaque())
    if wanted & ~supported(serving, minor):
        raise NfsError(Status.ATTRNOTSUPP)
    if wanted & ~settable:
        raise NfsError(Status.INVAL)
    if wanted & bits(Attribute.MODE) and wanted & bits(Attribute.MODE_UMASK):  # RFC 8275 §4
        raise NfsError(Status.INVAL)
    size = values.u64() if wanted & bits(Attribute.SIZE) else None
    mode = _mode(values.u32()) if wanted & bits(Attribute.MODE) else None
    owner = values.opaque(OPAQUE_MOST) if wanted & bits(Attribute.OWNER) else None
    group = values.opaque(OPAQUE_MOST) if wanted & bits(Attribute.OWNER_GROUP) else None
    accessed_ns = _time(values) if wanted & bits(Attribute.TIME_ACCESS_SET) else None
    modified_ns = _time(values) if wanted & bits(Attribute.TIME_MODIFY_SET) else None
    umask = None
    if wanted & bits(Attribute.MODE_UMASK):
        mode, umask = _mode(values.u32()), _mode(values.u32())
        if umask > 0o777:
            raise NfsError(Status.INVAL)
    values.finish()
    return Settings(
        size=size,
        mode=mode,
        umask=umask,
        uid=None if owner is None else _uid(owner),
        gid=None if group is None else _gid(group),
        accessed_ns=accessed_ns,
        modified_ns=modified_ns,
    )


def bits_of(settings: Settings) -> int:
    """Returns the attributes that these settings set."""
    ret = 0
    for value, attr in (
        (settings.size, Attribute.SIZE),
        (settings.mode, Attribute.MODE if settings.umask is None else Attribute.MODE_UMASK),
        (settings.uid, Attribute.OWNER),
        (settings.gid, Attribute.OWNER_GROUP),
        (settings.accessed_ns, Attribute.TIME_ACCESS_SET),
        (settings.modified_ns, Attribute.TIME_MODIFY_SET),
    ):
        if value is not None:
            ret |= bits(attr)
    return ret


def is_same(decoder: Decoder, serving: Serving, node: Node, minor: int) -> bool:
    """Returns whether a fattr4 says what the file says (VERIFY, NVERIFY)."""
    wanted = decode_bitmap(decoder)
    values = decoder.opaque()
    if wanted & ~supported(serving, minor):
        raise NfsError(Status.ATTRNOTSUPP)
    if wanted & (WRITE_ONLY | bits(Attribute.RDATTR_ERROR)):  # RFC 8881 §18.30.3
        raise NfsError(Status.INVAL)
    mine = Decoder(encode_attributes(serving, node, wanted, minor), len(encode_bitmap(wanted)))
    return mine.opaque() == values


def _mode(value: int) -> int:
    if value > _MODE_MOST:
        raise NfsError(Status.INVAL)
    return value


def _time(values: Decoder) -> int | float:
    if values.enum(TimeHow) == TimeHow.SERVER:
        return NOW
    seconds, nanoseconds = values.i64(), values.u32()
    if nanoseconds >= _SECOND_NS:
        raise NfsError(Status.INVAL)
    return seconds * _SECOND_NS + nanoseconds


def _text(name: bytes) -> str:
    try:
        return name.decode()
    except UnicodeDecodeError:
        raise NfsError(Status.INVAL) from None


def _number(name: str) -> int | None:
    if not name.isascii() or not name.isdigit():
        return None
    if len(name) > 10 or int(name) > _ID_MOST:
        raise NfsError(Status.BADOWNER)
    return int(name)


def _local(name: str) -> str:
    """Returns the part before the domain, which is taken for ours."""
    local = name.rpartition("@")[0] or name
    if not local or "\0" in local:
        raise NfsError(Status.BADOWNER)
    return local


def _id(name: bytes, of_name: Callable[[str], int]) -> int:
    text = _text(name)
    number = _number(text)
    if number is not None:
        return number
    try:
        return of_name(_local(text))
    except KeyError:
        raise NfsError(Status.BADOWNER) from None


def _uid(name: bytes) -> int:
    return _id(name, lambda local: pwd.getpwnam(local).pw_uid)


def _gid(name: bytes) -> int:
    return _id(name, lambda local: grp.getgrnam(local).gr_gid)
