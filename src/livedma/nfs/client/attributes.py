# SPDX-License-Identifier: BSD-2-Clause
"""Shows attributes of files as users see them."""

from __future__ import annotations

import stat as stat_bits
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from livedma.nfs.client.codec.attribute import Time
from livedma.nfs.numbers import Attribute, FileType

__all__ = ["STAT", "STATFS", "Entry", "FileSystem", "Stat", "settable"]

STAT = (
    Attribute.TYPE,
    Attribute.CHANGE,
    Attribute.SIZE,
    Attribute.FSID,
    Attribute.FILEID,
    Attribute.MODE,
    Attribute.NUMLINKS,
    Attribute.OWNER,
    Attribute.OWNER_GROUP,
    Attribute.RAWDEV,
    Attribute.SPACE_USED,
    Attribute.TIME_ACCESS,
    Attribute.TIME_METADATA,
    Attribute.TIME_MODIFY,
)
STATFS = (
    Attribute.FILES_AVAIL,
    Attribute.FILES_FREE,
    Attribute.FILES_TOTAL,
    Attribute.MAXFILESIZE,
    Attribute.MAXLINK,
    Attribute.MAXNAME,
    Attribute.MAXREAD,
    Attribute.MAXWRITE,
    Attribute.SPACE_AVAIL,
    Attribute.SPACE_FREE,
    Attribute.SPACE_TOTAL,
)


@dataclass(frozen=True, slots=True)
class Stat:
    """Holds the status of one file; what the server does not tell is 0 or empty."""

    kind: FileType
    change: int
    size: int
    fsid: tuple[int, int]
    fileid: int
    mode: int  #: permissions alone
    links: int
    owner: str
    group: str
    device: tuple[int, int]
    used_bytes: int
    accessed_ns: int
    changed_ns: int
    modified_ns: int

    @property
    def is_dir(self) -> bool:
        return self.kind == FileType.DIR

    @property
    def is_file(self) -> bool:
        return self.kind == FileType.REG

    @property
    def is_symlink(self) -> bool:
        return self.kind == FileType.LNK

    @classmethod
    def of(cls, values: Mapping[Attribute, Any]) -> Stat:
        get = values.get
        return cls(
            kind=get(Attribute.TYPE, FileType.REG),
            change=get(Attribute.CHANGE, 0),
            size=get(Attribute.SIZE, 0),
            fsid=get(Attribute.FSID, (0, 0)),
            fileid=get(Attribute.FILEID, 0),
            mode=stat_bits.S_IMODE(get(Attribute.MODE, 0)),
            links=get(Attribute.NUMLINKS, 0),
            owner=get(Attribute.OWNER, ""),
            group=get(Attribute.OWNER_GROUP, ""),
            device=get(Attribute.RAWDEV, (0, 0)),
            used_bytes=get(Attribute.SPACE_USED, 0),
            accessed_ns=get(Attribute.TIME_ACCESS, 0),
            changed_ns=get(Attribute.TIME_METADATA, 0),
            modified_ns=get(Attribute.TIME_MODIFY, 0),
        )


@dataclass(frozen=True, slots=True)
class Entry:
    """Holds a name in a directory and its file's status; None if the server would not say."""

    name: str
    stat: Stat | None


@dataclass(frozen=True, slots=True)
class FileSystem:
    """Holds room and limits of a file system, in bytes and files; what the server does not tell is
    0."""

    total_bytes: int
    free_bytes: int
    available_bytes: int
    total_files: int
    free_files: int
    available_files: int
    read_most: int
    write_most: int
    name_most: int
    links_most: int
    file_most: int

    @classmethod
    def of(cls, values: Mapping[Attribute, Any]) -> FileSystem:
        get = values.get
        return cls(
            total_bytes=get(Attribute.SPACE_TOTAL, 0),
            free_bytes=get(Attribute.SPACE_FREE, 0),
            available_bytes=get(Attribute.SPACE_AVAIL, 0),
            total_files=get(Attribute.FILES_TOTAL, 0),
            free_files=get(Attribute.FILES_FREE, 0),
            available_files=get(Attribute.FILES_AVAIL, 0),
            read_most=get(Attribute.MAXREAD, 0),
            write_most=get(Attribute.MAXWRITE, 0),
            name_most=get(Attribute.MAXNAME, 0),
            links_most=get(Attribute.MAXLINK, 0),
            file_most=get(Attribute.MAXFILESIZE, 0),
        )


def settable(
    *,
    mode: int | None = None,
    owner: str | int | None = None,
    group: str | int | None = None,
    size: int | None = None,
    accessed_ns: Time | None = None,
    modified_ns: Time | None = None,
) -> dict[Attribute, Any]:
    """Returns the attributes to set; an owner or group may be a number."""
    wanted = {
        Attribute.SIZE: size,
        Attribute.MODE: mode,
        Attribute.OWNER: None if owner is None else str(owner),
        Attribute.OWNER_GROUP: None if group is None else str(group),
        Attribute.TIME_ACCESS_SET: accessed_ns,
        Attribute.TIME_MODIFY_SET: modified_ns,
    }
    return {number: value for number, value in wanted.items() if value is not None}
