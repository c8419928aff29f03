# SPDX-License-Identifier: BSD-2-Clause
"""Tells the engine what it has to know of operations, apart from the functions that serve them."""

from __future__ import annotations

from livedma.nfs.numbers import Op

__all__ = ["HARMLESS", "OUTSIDE_SESSIONS", "SETS_HANDLE", "exists", "result_most"]

# These may come without a session, and are then alone (RFC 8881 2.10.2.3, 18.46.3).
OUTSIDE_SESSIONS = frozenset(
    {
        Op.EXCHANGE_ID,
        Op.CREATE_SESSION,
        Op.BIND_CONN_TO_SESSION,
        Op.DESTROY_SESSION,
        Op.DESTROY_CLIENTID,
    }
)
# These change nothing, so the check that the result has room may come afterwards.
HARMLESS = frozenset(
    {
        Op.ACCESS,
        Op.GETATTR,
        Op.GETFH,
        Op.GETXATTR,
        Op.LISTXATTRS,
        Op.LOCKT,
        Op.LOOKUP,
        Op.LOOKUPP,
        Op.NVERIFY,
        Op.PUTFH,
        Op.PUTPUBFH,
        Op.PUTROOTFH,
        Op.READ,
        Op.READDIR,
        Op.READLINK,
        Op.RESTOREFH,
        Op.SAVEFH,
        Op.SECINFO,
        Op.SECINFO_NO_NAME,
        Op.SEEK,
        Op.TEST_STATEID,
        Op.VERIFY,
    }
)
# These set the current filehandle; the current stateid does not belong to it (16.2.3.1.2).
SETS_HANDLE = frozenset(
    {Op.PUTFH, Op.PUTPUBFH, Op.PUTROOTFH, Op.LOOKUP, Op.LOOKUPP, Op.CREATE, Op.OPENATTR}
)

_RESULT_MOST = {Op.CLOSE: 24, Op.COMMIT: 16, Op.EXCHANGE_ID: 384, Op.WRITE: 24}
_RESULT_MOST_OTHERWISE = 128


def result_most(op: Op) -> int:
    """Returns the bytes of a success that has to be told, since it changed something (2.10.6.4)."""
    return _RESULT_MOST.get(op, _RESULT_MOST_OTHERWISE)


def exists(op: Op, minor: int) -> bool:
    """Returns whether a minor version knows an operation; 4.1 still knows what it took out."""
    return op != Op.ILLEGAL and (op < Op.ALLOCATE or minor > 1)
