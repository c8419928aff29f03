# SPDX-License-Identifier: BSD-2-Clause
"""A monitor that is attached to nothing: tests show it frames."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from talk import Talk

from livedma.monitor import Monitor


@pytest.fixture
def monitor(bpf: None) -> Iterator[Monitor]:
    with Monitor([], connections=4, sessions=16, patience_s=3600) as monitor:
        yield monitor


@pytest.fixture
def talk(monitor: Monitor) -> Talk:
    """A connection that was made before its eyes."""
    return Talk(monitor).connect()
