# SPDX-License-Identifier: BSD-2-Clause
"""Makes directories of one user in places where every user may write, such as /tmp.

Another user can be first to make a directory, or a symbolic link, of any name there. A server puts
its files into such a directory only after a check that it is this user's, and closed to all others.
"""

from __future__ import annotations

import os
import stat
from pathlib import Path

from livedma.errors import LivedmaError

__all__ = ["is_private", "make_private"]

_OF_OTHERS = 0o077


def make_private(path: Path) -> None:
    """Makes the directory with mode 0700, or takes over one that this user has already.

    Its parent has to exist. Raises LivedmaError if the directory is another user's, is none, or
    cannot be made.
    """
    try:
        os.mkdir(path, 0o700)
    except FileExistsError:
        pass
    except OSError as error:
        raise LivedmaError(f"{path} cannot be made: {error.strerror}") from None
    try:
        # O_NOFOLLOW: the check is of the directory itself, which stays the same while fd is open.
        fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError as error:
        why = _what_it_is(path) or error.strerror
        raise LivedmaError(f"{path} cannot be used: {why}") from None
    try:
        found = os.fstat(fd)
        if found.st_uid != os.geteuid():
            raise LivedmaError(f"{path} cannot be used: it belongs to user {found.st_uid}")
        if found.st_mode & _OF_OTHERS or found.st_mode & 0o700 != 0o700:
            os.fchmod(fd, 0o700)
    finally:
        os.close(fd)


def is_private(path: Path) -> bool:
    """Returns whether it is a directory of this user that no other user can write to."""
    try:
        found = os.lstat(path)
    except OSError:
        return False
    is_closed = not found.st_mode & (stat.S_IWGRP | stat.S_IWOTH)
    return stat.S_ISDIR(found.st_mode) and found.st_uid == os.geteuid() and is_closed


def _what_it_is(path: Path) -> str:
    try:
        found = os.lstat(path)
    except OSError:
        return ""
    if found.st_uid != os.geteuid():
        return f"it belongs to user {found.st_uid}"
    if stat.S_ISLNK(found.st_mode):
        return "it is a symbolic link"
    return "" if stat.S_ISDIR(found.st_mode) else "it is no directory"
