# SPDX-License-Identifier: BSD-2-Clause
"""Decides by share reservations what an open may do and denies to others (RFC 8881, 9.7)."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import reduce
from operator import or_

from livedma.nfs.numbers import SHARE_BOTH as BOTH
from livedma.nfs.numbers import SHARE_READ as READ
from livedma.nfs.numbers import SHARE_WRITE as WRITE

__all__ = ["BOTH", "READ", "WRITE", "Share", "downgraded"]


@dataclass(frozen=True, slots=True)
class Share:
    """Has the bits READ and WRITE."""

    access: int
    deny: int = 0

    def __or__(self, other: Share) -> Share:
        return Share(self.access | other.access, self.deny | other.deny)

    def conflicts(self, other: Share) -> bool:
        """Returns whether the two exclude each other, unless one open-owner has both."""
        return bool(self.access & other.deny or self.deny & other.access)

    def covers(self, other: Share) -> bool:
        """Returns whether it has all bits of the other."""
        return self | other == self


def downgraded(opened: Iterable[Share], to: Share) -> frozenset[Share] | None:
    """Returns the shares of `opened` that are left after a downgrade to `to`, their sum.

    None: their sum is not `to` (18.18.3), so the downgrade is refused.
    """
    left = frozenset(share for share in opened if to.covers(share))
    return left if left and reduce(or_, left) == to else None
