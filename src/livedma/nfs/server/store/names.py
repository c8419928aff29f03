# SPDX-License-Identifier: BSD-2-Clause
"""Checks names of directory entries, as a client may send them."""

from __future__ import annotations

import re

from livedma.nfs.numbers import NfsError, Status

__all__ = ["NAME_MOST", "checked_name"]

NAME_MOST = 255

# Code points that are no characters: UTF-8 can encode them, but no text may (RFC 3454, C.4).
_LAST_OF_PLANES = "".join(chr(plane << 16 | low) for plane in range(17) for low in (0xFFFE, 0xFFFF))
_NO_CHARACTER = re.compile(f"[\ufdd0-\ufdef{_LAST_OF_PLANES}]")


def checked_name(name: bytes) -> bytes:
    """Returns `name` if it can be that of one entry of a directory.

    RFC 8881 §14.5: a name that is empty or not UTF-8 is INVAL, one with characters that no name can
    have is BADCHAR, and one with a meaning of its own is BADNAME.
    """
    if not name:
        raise NfsError(Status.INVAL)
    if len(name) > NAME_MOST:
        raise NfsError(Status.NAMETOOLONG)
    if not name.isascii():
        try:
            text = name.decode()
        except UnicodeDecodeError:
            raise NfsError(Status.INVAL) from None
        if _NO_CHARACTER.search(text):
            raise NfsError(Status.INVAL)
    if b"/" in name or b"\0" in name:
        raise NfsError(Status.BADCHAR)
    if name in (b".", b".."):
        raise NfsError(Status.BADNAME)
    return name
