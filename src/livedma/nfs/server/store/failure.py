# SPDX-License-Identifier: BSD-2-Clause
"""Maps errors of the kernel to statuses of NFS."""

from __future__ import annotations

import errno
import functools
from collections.abc import Callable
from typing import ParamSpec, TypeVar

from livedma.nfs.numbers import NfsError, Status

__all__ = ["status_of", "translated"]

P = ParamSpec("P")
T = TypeVar("T")

_STATUSES = {
    errno.EPERM: Status.PERM,
    errno.ENOENT: Status.NOENT,
    errno.EIO: Status.IO,
    errno.ENXIO: Status.NXIO,
    errno.E2BIG: Status.XATTR2BIG,
    errno.EACCES: Status.ACCESS,
    errno.EBUSY: Status.FILE_OPEN,
    errno.ETXTBSY: Status.FILE_OPEN,
    errno.EEXIST: Status.EXIST,
    errno.EXDEV: Status.XDEV,
    errno.ENOTDIR: Status.NOTDIR,
    errno.EISDIR: Status.ISDIR,
    errno.EINVAL: Status.INVAL,
    errno.EOVERFLOW: Status.INVAL,
    errno.EILSEQ: Status.BADCHAR,
    errno.EFBIG: Status.FBIG,
    errno.ENOSPC: Status.NOSPC,
    errno.EROFS: Status.ROFS,
    errno.EMLINK: Status.MLINK,
    errno.ENAMETOOLONG: Status.NAMETOOLONG,
    errno.ENOTEMPTY: Status.NOTEMPTY,
    errno.EDQUOT: Status.DQUOT,
    errno.ESTALE: Status.STALE,
    errno.ELOOP: Status.SYMLINK,
    errno.EOPNOTSUPP: Status.NOTSUPP,
    errno.ENODATA: Status.NOXATTR,
    errno.EUCLEAN: Status.IO,
    # These pass by themselves: the client asks again.
    errno.EAGAIN: Status.DELAY,
    errno.ENOMEM: Status.DELAY,
    errno.EMFILE: Status.DELAY,
    errno.ENFILE: Status.DELAY,
    errno.ETIMEDOUT: Status.DELAY,
}


def status_of(failure: OSError) -> Status:
    """Returns the status for a failed system call; an error that is not in the table is IO."""
    return _STATUSES.get(failure.errno or 0, Status.IO)


def translated(function: Callable[P, T]) -> Callable[P, T]:
    """Returns `function` with its `OSError`s turned into `NfsError`s."""

    @functools.wraps(function)
    def call(*args: P.args, **kwargs: P.kwargs) -> T:
        try:
            return function(*args, **kwargs)
        except OSError as failure:
            raise NfsError(status_of(failure)) from failure

    return call
