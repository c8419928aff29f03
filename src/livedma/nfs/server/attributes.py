# SPDX-License-Identifier: BSD-2-Clause
"""Attributes that files have, as clients see them (RFC 8881 §5, RFC 7862 §12, RFC 8275, RFC 8276).

A set of attributes is a number whose bit n stands for attribute n. What a client asks for is turned
into a tuple of functions once; later requests for the same set use that tuple.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Callable
from functools import cached_property, lru_cache
from typing import Protocol

from livedma.nfs.bitmap import bits, encode_bitmap
from livedma.nfs.numbers import Attribute, NfsError, Status
from livedma.nfs.server.store import Kind, Node, Store, syscalls
from livedma.nfs.server.store.failure import translated
from livedma.nfs.server.store.metadata import SIZE_MOST
from livedma.nfs.server.store.names import NAME_MOST

__all__ = [
    "EXCLUSIVE_SETTABLE",
    "SETTABLE",
    "Limits",
    "Serving",
    "encode_attributes",
    "encode_entry",
    "encode_error",
    "io_bytes",
    "supported",
]

_ROOM_FOR_HEADERS = 16 << 10  # the most that a call or reply has beside its data


WRITE_ONLY = bits(Attribute.TIME_ACCESS_SET, Attribute.TIME_MODIFY_SET, Attribute.MODE_UMASK)
SETTABLE = WRITE_ONLY | bits(Attribute.SIZE, Attribute.MODE, Attribute.OWNER, Attribute.OWNER_GROUP)
# An exclusive create keeps its verifier in the times.
EXCLUSIVE_SETTABLE = SETTABLE & ~bits(Attribute.TIME_ACCESS_SET, Attribute.TIME_MODIFY_SET)
_ONLY_IN_MINOR_2 = bits(Attribute.CHANGE_ATTR_TYPE, Attribute.MODE_UMASK, Attribute.XATTR_SUPPORT)

_FH4_PERSISTENT = 0
_FH4_VOLATILE_ANY = 2
_CHANGE_TYPE_IS_TIME_METADATA = 3

_u32 = struct.Struct(">I").pack
_u64 = struct.Struct(">Q").pack
_two_u32 = struct.Struct(">II").pack
_two_u64 = struct.Struct(">QQ").pack
_time = struct.Struct(">qI").pack
_TRUE, _FALSE = _u32(1), _u32(0)
_PADDING = (b"", b"\0\0\0", b"\0\0", b"\0")


class Limits(Protocol):
    """Holds the settings of a server that attributes show."""

    @property
    def lease_s(self) -> int: ...
    @property
    def request_bytes(self) -> int: ...
    @property
    def response_bytes(self) -> int: ...


class Serving(Protocol):
    """Describes the server whose files have these attributes."""

    @property
    def store(self) -> Store: ...
    @property
    def config(self) -> Limits: ...


class _View:
    """Shows a file at one moment."""

    def __init__(self, serving: Serving, node: Node, minor: int) -> None:
        self.serving, self.node, self.minor = serving, node, minor
        self.status = node.stat()

    @cached_property
    def filesystem(self) -> os.statvfs_result:
        return os.fstatvfs(self.node.fd)


def io_bytes(config: Limits) -> int:
    """Returns the most data of one READ or WRITE."""
    return min(config.request_bytes, config.response_bytes) - _ROOM_FOR_HEADERS


def supported(serving: Serving, minor: int) -> int:
    """Returns all attributes that files here have or that clients can set."""
    ret = _ALL if minor >= 2 else _ALL & ~_ONLY_IN_MINOR_2
    return ret if serving.store.has_birth else ret & ~bits(Attribute.TIME_CREATE)


def _opaque(data: bytes) -> bytes:
    return _u32(len(data)) + data + _PADDING[len(data) % 4]


def _ns(time_ns: int) -> bytes:
    return _time(*divmod(time_ns, 10**9))


def _set_of(wanted: int) -> bytes:
    return encode_bitmap(wanted)


def _fsid(view: _View) -> bytes:
    return _two_u64(*view.serving.store.fsid(view.node.key))


def _space(blocks: Callable[[os.statvfs_result], int]) -> Callable[[_View], bytes]:
    return lambda view: _u64(blocks(view.filesystem) * view.filesystem.f_frsize)


def _rawdev(view: _View) -> bytes:
    device = view.status.st_rdev if view.node.kind in (Kind.BLK, Kind.CHR) else 0
    return _two_u32(os.major(device), os.minor(device))


def _expiry(view: _View) -> bytes:
    is_persistent = view.serving.store.is_persistent
    return _u32(_FH4_PERSISTENT if is_persistent else _FH4_VOLATILE_ANY)


_ENCODERS: dict[Attribute, Callable[[_View], bytes]] = {
    Attribute.SUPPORTED_ATTRS: lambda view: _set_of(supported(view.serving, view.minor)),
    Attribute.TYPE: lambda view: _u32(view.node.kind),
    Attribute.FH_EXPIRE_TYPE: _expiry,
    Attribute.CHANGE: lambda view: _u64(view.serving.store.change(view.node, view.status)),
    Attribute.SIZE: lambda view: _u64(view.status.st_size),
    Attribute.LINK_SUPPORT: lambda view: _TRUE,
    Attribute.SYMLINK_SUPPORT: lambda view: _TRUE,
    Attribute.NAMED_ATTR: lambda view: _FALSE,
    Attribute.FSID: _fsid,
    Attribute.UNIQUE_HANDLES: lambda view: _TRUE,
    Attribute.LEASE_TIME: lambda view: _u32(view.serving.config.lease_s),
    Attribute.RDATTR_ERROR: lambda view: _u32(Status.OK),
    Attribute.ACLSUPPORT: lambda view: _u32(0),
    Attribute.CANSETTIME: lambda view: _TRUE,
    Attribute.CASE_INSENSITIVE: lambda view: _FALSE,
    Attribute.CASE_PRESERVING: lambda view: _TRUE,
    Attribute.CHOWN_RESTRICTED: lambda view: _TRUE,
    Attribute.FILEHANDLE: lambda view: _opaque(view.node.handle),
    Attribute.FILEID: lambda view: _u64(view.status.st_ino),
    Attribute.FILES_AVAIL: lambda view: _u64(view.filesystem.f_favail),
    Attribute.FILES_FREE: lambda view: _u64(view.filesystem.f_ffree),
    Attribute.FILES_TOTAL: lambda view: _u64(view.filesystem.f_files),
    Attribute.HOMOGENEOUS: lambda view: _TRUE,
    Attribute.MAXFILESIZE: lambda view: _u64(SIZE_MOST),
    Attribute.MAXLINK: lambda view: _u32(view.serving.store.links_most),
    Attribute.MAXNAME: lambda view: _u32(NAME_MOST),
    Attribute.MAXREAD: lambda view: _u64(io_bytes(view.serving.config)),
    Attribute.MAXWRITE: lambda view: _u64(io_bytes(view.serving.config)),
    Attribute.MODE: lambda view: _u32(view.status.st_mode & 0o7777),
    Attribute.NO_TRUNC: lambda view: _TRUE,
    Attribute.NUMLINKS: lambda view: _u32(view.status.st_nlink),
    Attribute.OWNER: lambda view: _opaque(b"%d" % view.status.st_uid),
    Attribute.OWNER_GROUP: lambda view: _opaque(b"%d" % view.status.st_gid),
    Attribute.RAWDEV: _rawdev,
    Attribute.SPACE_AVAIL: _space(lambda filesystem: filesystem.f_bavail),
    Attribute.SPACE_FREE: _space(lambda filesystem: filesystem.f_bfree),
    Attribute.SPACE_TOTAL: _space(lambda filesystem: filesystem.f_blocks),
    Attribute.SPACE_USED: lambda view: _u64(view.status.st_blocks * 512),
    Attribute.TIME_ACCESS: lambda view: _ns(view.status.st_atime_ns),
    Attribute.TIME_CREATE: lambda view: _ns(syscalls.birth_ns(view.node.fd) or 0),
    Attribute.TIME_DELTA: lambda view: _ns(1),
    Attribute.TIME_METADATA: lambda view: _ns(view.status.st_ctime_ns),
    Attribute.TIME_MODIFY: lambda view: _ns(view.status.st_mtime_ns),
    Attribute.MOUNTED_ON_FILEID: lambda view: _u64(view.status.st_ino),
    Attribute.SUPPATTR_EXCLCREAT: lambda view: _set_of(
        EXCLUSIVE_SETTABLE & supported(view.serving, view.minor)
    ),
    Attribute.CHANGE_ATTR_TYPE: lambda view: _u32(_CHANGE_TYPE_IS_TIME_METADATA),
    Attribute.XATTR_SUPPORT: lambda view: _u32(view.serving.store.has_xattrs),
}

_ALL = bits(*_ENCODERS) | WRITE_ONLY

# These attributes of a directory's entry are known without a look at the file.
_BY_ENTRY = bits(Attribute.RDATTR_ERROR, Attribute.FILEID, Attribute.MOUNTED_ON_FILEID)


@lru_cache(maxsize=256)
def _plan(wanted: int) -> tuple[bytes, tuple[Callable[[_View], bytes], ...]]:
    chosen = tuple(encode for attr, encode in _ENCODERS.items() if wanted >> attr & 1)
    return encode_bitmap(wanted), chosen


@translated
def encode_attributes(serving: Serving, node: Node, wanted: int, minor: int) -> bytes:
    """Returns fattr4 with all of `wanted` that there is; INVAL if one can only be set."""
    wanted &= supported(serving, minor)
    if wanted & WRITE_ONLY:
        raise NfsError(Status.INVAL)
    named, plan = _plan(wanted)
    view = _View(serving, node, minor)
    return named + _opaque(b"".join([encode(view) for encode in plan]))


def encode_entry(wanted: int, inode: int) -> bytes | None:
    """Returns fattr4 of a directory's entry by its inode; None if the file itself is needed."""
    if wanted & ~_BY_ENTRY:
        return None
    values = b""
    if wanted & bits(Attribute.RDATTR_ERROR):
        values += _u32(Status.OK)
    for attr in (Attribute.FILEID, Attribute.MOUNTED_ON_FILEID):
        if wanted & bits(attr):
            values += _u64(inode)
    return encode_bitmap(wanted) + _opaque(values)


def encode_error(status: Status) -> bytes:
    """Returns fattr4 of an entry whose attributes cannot be had: it says why."""
    return encode_bitmap(bits(Attribute.RDATTR_ERROR)) + _opaque(_u32(status))
