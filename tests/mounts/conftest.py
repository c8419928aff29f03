# SPDX-License-Identifier: BSD-2-Clause
"""A server of ours between the guests."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from serving import Serving, serving

from livedma.lab.guest import Lab


@pytest.fixture(scope="module")
def wide(guests: Lab) -> Iterator[Lab]:
    """Guests with room for packets of 4096 bytes."""
    with guests.mtu(4500):
        yield guests


@pytest.fixture
def server(wide: Lab, tmp_path: Path) -> Iterator[Serving]:
    """Clients keep their root: what is not about it is easier so."""
    with serving(wide.host, tmp_path, "--squash=none") as ret:
        yield ret
