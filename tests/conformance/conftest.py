"""Kernels to conform with: their devices, with room for packets of 4096 bytes."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from endpoints import Rxe, rxe

from livedma.lab.guest import Lab


@pytest.fixture(scope="package")
def kernels(guests: Lab) -> Iterator[tuple[Rxe, Rxe]]:
    """The devices of guests a and b."""
    with guests.mtu(4500), rxe(guests.a) as a, rxe(guests.b) as b:
        yield a, b
