"""The token of those who may change something: in a file that only its owner reads."""

from __future__ import annotations

import contextlib
import hmac
import os
import re
import secrets
import stat
from pathlib import Path

from livedma.errors import LivedmaError

__all__ = ["fresh", "is_same", "kept"]

_BYTES = 24
_FORM = re.compile(r"[!-~]{16,256}")  # what an Authorization header can carry


def fresh(path: Path) -> str:
    """A new one in the file, whatever was there. Raises LivedmaError."""
    with contextlib.suppress(OSError):
        path.unlink()
    return _make(path)


def kept(path: Path) -> str:
    """The file's, which is made if it is missing. Raises LivedmaError."""
    try:
        # Not to wait for a writer, should it be a pipe.
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    except FileNotFoundError:
        return _make(path)
    except OSError as error:
        raise LivedmaError(f"the token in {path}: {error.strerror}") from None
    try:
        mode = os.fstat(fd).st_mode
        if not stat.S_ISREG(mode):
            raise LivedmaError(f"the token in {path}: it is no file")
        if stat.S_IMODE(mode) & 0o077:
            raise LivedmaError(f"others may use the token in {path}: chmod 600 {path}")
        text = os.read(fd, 1024).decode("ascii", errors="replace").strip()
    finally:
        os.close(fd)
    if not _FORM.fullmatch(text):
        raise LivedmaError(f"{path} has no token: 16 to 256 characters without spaces; remove it")
    return text


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
    """In a time that says nothing about where they differ."""
    return hmac.compare_digest(given.encode(errors="replace"), token.encode())
