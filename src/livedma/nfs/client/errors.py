# SPDX-License-Identifier: BSD-2-Clause
"""The client raises these errors."""

from __future__ import annotations

import errno
import os

from livedma.errors import LivedmaError
from livedma.nfs.numbers import NfsError, Op, Status
from livedma.rpc.client import RpcError

__all__ = ["BadReply", "Conflict", "OperationFailed", "OutcomeUnknown", "StateLost", "WritesLost"]


class OperationFailed(NfsError, LivedmaError):
    """Reports that the server answered an operation with an error."""

    def __init__(self, op: Op | None, status: Status, path: str = "", detail: str = "") -> None:
        super().__init__(status)
        self.op = op
        self.path = path
        what = op.name if op is not None else "COMPOUND"
        where = f" of {path}" if path else ""
        self.args = (f"{what}{where}: {status.name}{f' ({detail})' if detail else ''}",)

    @property
    def errno(self) -> int:
        """Returns the nearest errno, EIO if there is none."""
        if self.status < 10000:
            return int(_ERRNO.get(self.status, self.status))
        return _ERRNO.get(self.status, errno.EIO)

    @property
    def strerror(self) -> str:
        return os.strerror(self.errno)


class Conflict(OperationFailed):
    """Reports that another owner holds a lock: `start`, `length` (None: to the end), its kind and
    its owner.
    """

    def __init__(
        self, op: Op, path: str, start: int, length: int | None, write: bool, owner: bytes
    ) -> None:
        end = "the end" if length is None else str(start + length)
        kind = "write" if write else "read"
        super().__init__(op, Status.DENIED, path, f"a {kind} lock from {start} to {end}")
        self.start, self.length, self.write, self.owner = start, length, write, owner


class BadReply(RpcError):
    """Reports that the server's reply makes no sense. None of it was used."""


class OutcomeUnknown(RpcError):
    """Reports that the server lost the session before it gave the result of a call that must not be
    made twice: the call may or may not have been executed.
    """


class StateLost(LivedmaError):
    """Reports that an open file or its locks were lost and could not be reclaimed: the caller
    closes it.
    """


class WritesLost(LivedmaError):
    """Reports that the server restarted before data was on stable storage: what was written since
    the last commit has to be written again.
    """


_ERRNO = {
    Status.NAMETOOLONG: errno.ENAMETOOLONG,
    Status.NOTEMPTY: errno.ENOTEMPTY,
    Status.DQUOT: errno.EDQUOT,
    Status.STALE: errno.ESTALE,
    Status.BADHANDLE: errno.ESTALE,
    Status.FHEXPIRED: errno.ESTALE,
    Status.NOTSUPP: errno.EOPNOTSUPP,
    Status.ATTRNOTSUPP: errno.EOPNOTSUPP,
    Status.UNION_NOTSUPP: errno.EOPNOTSUPP,
    Status.DELAY: errno.EAGAIN,
    Status.GRACE: errno.EAGAIN,
    Status.DENIED: errno.EAGAIN,
    Status.LOCKED: errno.EAGAIN,
    Status.SHARE_DENIED: errno.EBUSY,
    Status.FILE_OPEN: errno.EBUSY,
    Status.SYMLINK: errno.ELOOP,
    Status.WRONG_TYPE: errno.EINVAL,
    Status.BADNAME: errno.EINVAL,
    Status.BADCHAR: errno.EINVAL,
    Status.BADTYPE: errno.EINVAL,
    Status.BADOWNER: errno.EINVAL,
    Status.OPENMODE: errno.EBADF,
    Status.DEADLOCK: errno.EDEADLK,
    Status.NOXATTR: errno.ENODATA,
    Status.XATTR2BIG: errno.E2BIG,
}
