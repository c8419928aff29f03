"""Share reservations: what an open may do, and what others may not meanwhile (RFC 8881, 9.7)."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import reduce
from operator import or_

__all__ = ["BOTH", "READ", "WRITE", "Share", "downgraded"]

READ = 1
WRITE = 2
BOTH = READ | WRITE


@dataclass(frozen=True, slots=True)
class Share:
    """Bits READ and WRITE."""

    access: int
    deny: int = 0

    def __or__(self, other: Share) -> Share:
        return Share(self.access | other.access, self.deny | other.deny)

    def conflicts(self, other: Share) -> bool:
        """Both cannot be at once, unless one open-owner has both."""
        return bool(self.access & other.deny or self.deny & other.access)

    def covers(self, other: Share) -> bool:
        """All bits of the other are here."""
        return self | other == self


def downgraded(opened: Iterable[Share], to: Share) -> frozenset[Share] | None:
    """Those of `opened` that are left if an open is cut down to `to`, which they add up to.

    None: they do not (18.18.3), so that it cannot be.
    """
    left = frozenset(share for share in opened if to.covers(share))
    return left if left and reduce(or_, left) == to else None
