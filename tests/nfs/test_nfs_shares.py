# SPDX-License-Identifier: BSD-2-Clause
"""Share reservations: all combinations of access and deny, and what a downgrade may ask for."""

from __future__ import annotations

from functools import reduce
from itertools import chain, combinations, product
from operator import or_

import pytest

from livedma.nfs.server.state.shares import BOTH, READ, WRITE, Share, downgraded

ALL = [Share(access, deny) for access, deny in product((READ, WRITE, BOTH), range(4))]


@pytest.mark.parametrize("one", ALL)
def test_conflicts(one: Share) -> None:
    """Said once more by what each may do: for reading and writing apart."""
    for other in ALL:
        expected = any(
            one.access & bit & other.deny or other.access & bit & one.deny for bit in (READ, WRITE)
        )
        assert one.conflicts(other) == other.conflicts(one) == expected


@pytest.mark.parametrize("to", ALL)
def test_a_downgrade_is_to_what_some_opens_add_up_to(to: Share) -> None:
    for opened in chain(combinations(ALL, 1), combinations(ALL, 2), combinations(ALL, 3)):
        subsets = chain.from_iterable(combinations(opened, n) for n in (1, 2, 3))
        is_a_sum = any(reduce(or_, subset) == to for subset in subsets)
        left = downgraded(opened, to)
        assert (left is not None) == is_a_sum
        if left is not None:
            assert left == {share for share in opened if share | to == to}
