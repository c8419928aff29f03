"""Names of directory entries, as a client may send them."""

from __future__ import annotations

from livedma.nfs.numbers import NfsError, Status

__all__ = ["NAME_MOST", "checked_name"]

NAME_MOST = 255


def checked_name(name: bytes) -> bytes:
    """`name`, if it can be that of one entry of a directory.

    RFC 8881 §14.5: what is empty or no UTF-8 is INVAL, what has characters that no name has is
    BADCHAR, and what has a meaning of its own is BADNAME.
    """
    if not name:
        raise NfsError(Status.INVAL)
    if len(name) > NAME_MOST:
        raise NfsError(Status.NAMETOOLONG)
    if not name.isascii():
        try:
            name.decode()
        except UnicodeDecodeError:
            raise NfsError(Status.INVAL) from None
    if b"/" in name or b"\0" in name:
        raise NfsError(Status.BADCHAR)
    if name in (b".", b".."):
        raise NfsError(Status.BADNAME)
    return name
