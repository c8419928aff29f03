# SPDX-License-Identifier: BSD-2-Clause
"""Lists the numbers of NFSv4.1 and 4.2 (RFC 8881, RFC 7862, RFC 8276) of client and server."""

from __future__ import annotations

from enum import IntEnum, IntFlag

from livedma.wire.nfs_numbers import CallbackOp, Op, Status
from livedma.wire.rpc import NFS as PROGRAM

__all__ = [
    "HANDLE_MOST",
    "OPAQUE_MOST",
    "PROGRAM",
    "SESSION_ID_BYTES",
    "SHARE_BOTH",
    "SHARE_READ",
    "SHARE_WRITE",
    "TO_THE_END",
    "VERIFIER_BYTES",
    "VERSION",
    "XATTR_MOST",
    "Attribute",
    "BindFrom",
    "Bound",
    "CallbackOp",
    "Claim",
    "CreateMode",
    "DelegationType",
    "ExchangeFlag",
    "FileType",
    "LockType",
    "NfsError",
    "Op",
    "OpenType",
    "Procedure",
    "Stable",
    "StateProtection",
    "Status",
    "StatusFlag",
    "TimeHow",
    "Want",
    "WhyNot",
    "XattrOption",
]

VERSION = 4

HANDLE_MOST = 128  # NFS4_FHSIZE
OPAQUE_MOST = 1024  # NFS4_OPAQUE_LIMIT: bytes of an owner and of a server's scope
SESSION_ID_BYTES = 16
VERIFIER_BYTES = 8
XATTR_MOST = 65536  # bytes of a value, as in Linux (XATTR_SIZE_MAX)
TO_THE_END = (1 << 64) - 1  # as the length of a lock: to the end of the file, wherever that is

# OPEN4_SHARE_ACCESS_* and OPEN4_SHARE_DENY_*, as plain numbers: each READ and WRITE compares them.
SHARE_READ, SHARE_WRITE, SHARE_BOTH = 1, 2, 3


class Procedure(IntEnum):
    """Numbers the procedures of the program."""

    NULL = 0
    COMPOUND = 1


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


class Claim(IntEnum):
    """Has the values of open_claim_type4."""

    NULL = 0
    PREVIOUS = 1
    DELEGATE_CUR = 2
    DELEGATE_PREV = 3
    FH = 4
    DELEG_CUR_FH = 5
    DELEG_PREV_FH = 6


class Want(IntEnum):
    """Names the delegation that a client would like to have."""

    NO_PREFERENCE = 0
    READ = 0x100
    WRITE = 0x200
    ANY = 0x300
    NONE = 0x400
    CANCEL = 0x500


class OpenType(IntEnum):
    """Has the values of opentype4."""

    NOCREATE = 0
    CREATE = 1


class WhyNot(IntEnum):
    """Has the values of why_no_delegation4."""

    NOT_WANTED = 0
    CONTENTION = 1
    RESOURCE = 2
    CANCELLED = 7


class LockType(IntEnum):
    """Has the values of nfs_lock_type4. Servers refuse a lock that would wait, too: its client asks
    again, and says by the type that it does.
    """

    READ = 1
    WRITE = 2
    READ_WAITING = 3
    WRITE_WAITING = 4

    @property
    def is_exclusive(self) -> bool:
        """Returns whether the lock keeps all other owners out."""
        return self in (LockType.WRITE, LockType.WRITE_WAITING)


class TimeHow(IntEnum):
    """Has the values of time_how4."""

    SERVER = 0
    CLIENT = 1


class BindFrom(IntEnum):
    """Names the direction that a client wants a connection for (channel_dir_from_client4)."""

    FORE = 1
    BACK = 2
    FORE_OR_BOTH = 3
    BACK_OR_BOTH = 7


class Bound(IntEnum):
    """Names the direction that a connection serves (channel_dir_from_server4)."""

    FORE = 1
    BACK = 2
    BOTH = 3


class StatusFlag(IntFlag):
    """Has the flags by which SEQUENCE tells about the client's state (RFC 8881 section 18.46.3)."""

    CB_PATH_DOWN = 0x1
    EXPIRED_ALL_STATE_REVOKED = 0x8
    EXPIRED_SOME_STATE_REVOKED = 0x10
    ADMIN_STATE_REVOKED = 0x20
    RECALLABLE_STATE_REVOKED = 0x40
    LEASE_MOVED = 0x80
    RESTART_RECLAIM_NEEDED = 0x100
    CB_PATH_DOWN_SESSION = 0x200
    BACKCHANNEL_FAULT = 0x400


class ExchangeFlag(IntEnum):
    """Names those of EXCHGID4_FLAG_* that are used here; each is one bit."""

    USE_NON_PNFS = 0x00010000
    UPDATE_CONFIRMED_REC_A = 0x40000000
    CONFIRMED_R = 0x80000000


class StateProtection(IntEnum):
    """Has the values of state_protect_how4."""

    NONE = 0
    MACH_CRED = 1
    SSV = 2


class NfsError(Exception):
    """Reports a failed operation: `status` is its result, `body` the XDR behind it, if any."""

    def __init__(self, status: Status, body: bytes = b"") -> None:
        super().__init__(status.name)
        self.status = status
        self.body = body
