# SPDX-License-Identifier: BSD-2-Clause
"""Describes attributes that a client wants a file to have."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

__all__ = ["NOTHING", "NOW", "Settings", "Time"]

NOW = float("inf")  # the time of the server's clock when the attribute is set

Time = int | float


@dataclass(frozen=True, slots=True)
class Settings:
    """Says which attributes to set. None leaves one as it is; times in nanoseconds, or `NOW`.

    `umask` is for a new file and goes with `mode`: it does not count if the directory has a default
    ACL (RFC 8275).
    """

    size: int | None = None
    mode: int | None = None
    umask: int | None = None
    uid: int | None = None
    gid: int | None = None
    accessed_ns: Time | None = None
    modified_ns: Time | None = None

    def in_order(self) -> Iterator[Settings]:
        """Yields them one by one: a new owner clears bits of the mode, any change sets times."""
        if self.size is not None:
            yield Settings(size=self.size)
        if self.uid is not None or self.gid is not None:
            yield Settings(uid=self.uid, gid=self.gid)
        if self.mode is not None:
            yield Settings(mode=self.mode)
        if self.accessed_ns is not None or self.modified_ns is not None:
            yield Settings(accessed_ns=self.accessed_ns, modified_ns=self.modified_ns)


NOTHING = Settings()
