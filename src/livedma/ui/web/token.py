# SPDX-License-Identifier: BSD-2-Clause
"""Keeps the token of users that may change something, in a file that only its owner can read."""

from __future__ import annotations

import contextlib
import hmac
import os
import re
import secrets
import shlex
import stat
from pathlib import Path

from livedma.errors import LivedmaError

__all__ = ["fresh", "is_same", "kept"]

_BYTES = 24
_MOST = 1024  # bytes of a file that may be a token's
_FORM = re.compile(r"[!-~]{16,256}")  # what an Authorization header can carry


def fresh(path: Path) -> str:
    """Puts a new one into the file, whatever was there. Raises LivedmaError."""
    with contextlib.suppress(OSError):
        path.unlink()
    return _make(path)


def kept(path: Path) -> str:
    """Returns the token of the file, which is made if it is missing. Raises LivedmaError."""
    try:
        # O_NONBLOCK: if it is a pipe, this does not wait for a writer.
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    except FileNotFoundError:
        return _make(path)
    except OSError as error:
        raise LivedmaError(f"the token in {path}: {error.strerror}") from None
    try:
        found = os.fstat(fd)
        is_file = stat.S_ISREG(found.st_mode)
        text = os.read(fd, _MOST).decode("ascii", errors="replace").strip() if is_file else ""
    except OSError as error:
        raise LivedmaError(f"the token in {path}: {error.strerror}") from None
    finally:
        os.close(fd)
    # The contents are checked before the permissions: a chmod of a file that is no token, such as
    # one of the system's, would do harm, and the error should not advise it.
    if not is_file or found.st_size > _MOST or not _FORM.fullmatch(text):
        raise LivedmaError(
            f"{path} is no token file: name another with --web-token. A token is one line of 16 to "
            "256 characters without spaces; a file that is missing is made"
        )
    if found.st_uid not in (os.geteuid(), 0):
        raise LivedmaError(
            f"{path} belongs to another user, and that user may know the token: "
            "name another with --web-token"
        )
    if stat.S_IMODE(found.st_mode) & 0o077:
        raise LivedmaError(_readable(path, found.st_uid))
    return text


def _readable(path: Path, uid: int) -> str:
    trouble = f"others may read the token in {path}"
    if uid != os.geteuid():
        return f"{trouble}, which is root's: name another with --web-token"
    return f"{trouble}: chmod 600 {shlex.quote(str(path))}, or name another with --web-token"


def _make(path: Path) -> str:
    token = secrets.token_urlsafe(_BYTES)
    try:
        fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        with open(fd, "w") as file:
            file.write(token + "\n")
    except OSError as error:
        raise LivedmaError(f"no token can be put into {path}: {error.strerror}") from None
    return token


def is_same(given: str, token: str) -> bool:
    """Compares in a time that does not depend on where they differ."""
    return hmac.compare_digest(given.encode(errors="replace"), token.encode())
