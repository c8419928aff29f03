# SPDX-License-Identifier: BSD-2-Clause
"""Lists the numbers of NFSv4.1 and 4.2 (RFC 8881, RFC 7862, RFC 8276) of client and server."""

from __future__ import annotations

from enum import IntEnum

from livedma.wire.nfs_numbers import CallbackOp, Op, Status
from livedma.wire.rpc import NFS as PROGRAM

__all__ = [
    "PROGRAM",
    "VERSION",
    "Attribute",
    "CallbackOp",
    "CreateMode",
    "DelegationType",
    "FileType",
    "NfsError",
    "Op",
    "Stable",
    "Status",
    "XattrOption",
]

VERSION = 4


class Attribute(IntEnum):
    """Numbers the file attributes, named without their prefix; each is a bit in a bitmap4."""

    SUPPORTED_ATTRS = 0
    TYPE = 1
    FH_EXPIRE_TYPE = 2
    CHANGE = 3
    SIZE = 4
    LINK_SUPPORT = 5
    SYMLINK_SUPPORT = 6
    NAMED_ATTR = 7
    FSID = 8
    UNIQUE_HANDLES = 9
    LEASE_TIME = 10
    RDATTR_ERROR = 11
    ACL = 12
    ACLSUPPORT = 13
    ARCHIVE = 14
    CANSETTIME = 15
    CASE_INSENSITIVE = 16
    CASE_PRESERVING = 17
    CHOWN_RESTRICTED = 18
    FILEHANDLE = 19
    FILEID = 20
    FILES_AVAIL = 21
    FILES_FREE = 22
    FILES_TOTAL = 23
    FS_LOCATIONS = 24
    HIDDEN = 25
    HOMOGENEOUS = 26
    MAXFILESIZE = 27
    MAXLINK = 28
    MAXNAME = 29
    MAXREAD = 30
    MAXWRITE = 31
    MIMETYPE = 32
    MODE = 33
    NO_TRUNC = 34
    NUMLINKS = 35
    OWNER = 36
    OWNER_GROUP = 37
    QUOTA_AVAIL_HARD = 38
    QUOTA_AVAIL_SOFT = 39
    QUOTA_USED = 40
    RAWDEV = 41
    SPACE_AVAIL = 42
    SPACE_FREE = 43
    SPACE_TOTAL = 44
    SPACE_USED = 45
    SYSTEM = 46
    TIME_ACCESS = 47
    TIME_ACCESS_SET = 48
    TIME_BACKUP = 49
    TIME_CREATE = 50
    TIME_DELTA = 51
    TIME_METADATA = 52
    TIME_MODIFY = 53
    TIME_MODIFY_SET = 54
    MOUNTED_ON_FILEID = 55
    SUPPATTR_EXCLCREAT = 75
    CHANGE_ATTR_TYPE = 79
    MODE_UMASK = 81
    XATTR_SUPPORT = 82


class FileType(IntEnum):
    """Has the values of nfs_ftype4, named without their prefix."""

    REG = 1
    DIR = 2
    BLK = 3
    CHR = 4
    LNK = 5
    SOCK = 6
    FIFO = 7
    ATTRDIR = 8
    NAMEDATTR = 9


class Stable(IntEnum):
    """Has the values of stable_how4: what a WRITE may leave in memory."""

    UNSTABLE = 0
    DATA_SYNC = 1
    FILE_SYNC = 2


class CreateMode(IntEnum):
    """Has the values of createmode4: what an OPEN that creates does where the file exists."""

    UNCHECKED = 0
    GUARDED = 1
    EXCLUSIVE = 2
    EXCLUSIVE_1 = 3


class DelegationType(IntEnum):
    """Has the values of open_delegation_type4: what an OPEN gives besides the open itself."""

    NONE = 0
    READ = 1
    WRITE = 2
    NONE_EXT = 3


class XattrOption(IntEnum):
    """Has the values of setxattr_option4: whether the attribute must be new, or must exist."""

    EITHER = 0
    CREATE = 1
    REPLACE = 2


class NfsError(Exception):
    """Reports a failed operation: `status` is its result, `body` the XDR behind it, if any."""

    def __init__(self, status: Status, body: bytes = b"") -> None:
        super().__init__(status.name)
        self.status = status
        self.body = body
