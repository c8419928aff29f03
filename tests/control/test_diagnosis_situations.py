"""The limit that is named is the one there is, in situations that are made so that it is known."""

from __future__ import annotations

from situations import situation

from livedma.control.diagnosis import Diagnostician
from livedma.control.limits import Limit


def test_memory_is_named() -> None:
    made, diagnostician = situation(Limit.MEMORY, 0), Diagnostician()
    for snapshot in made.snapshots():
        (said,) = diagnostician.see(snapshot)
        if made.is_settled(snapshot):
            assert (said.limit, said.is_degraded) == (Limit.MEMORY, True), said
