# SPDX-License-Identifier: BSD-2-Clause
"""Names the NFSv3 and NFSv4 status codes (RFC 1813, 7530, 8881, 7862, 8276)."""

from __future__ import annotations

from livedma.wire.nfs_numbers import Status

_ONLY_V3 = {13: "ACCES", 19: "NODEV", 71: "REMOTE", 10002: "NOT_SYNC", 10008: "JUKEBOX"}
_V4 = {status.value: status.name for status in Status if status}
_NAMES4 = {0: "NFS4_OK"} | {n: f"NFS4ERR_{name}" for n, name in _V4.items()}
# The two versions share the numbers below NFS4ERR_DELAY.
_V3 = {n: name for n, name in _V4.items() if n < Status.DELAY} | _ONLY_V3
_NAMES3 = {0: "NFS3_OK"} | {n: f"NFS3ERR_{name}" for n, name in _V3.items()}


def name3(status: int) -> str:
    """Returns the name of an NFSv3 status, or its number in decimal if it has no name."""
    return _NAMES3.get(status, str(status))


def name4(status: int) -> str:
    """Returns the name of an NFSv4 status, or its number in decimal if it has no name."""
    return _NAMES4.get(status, str(status))
